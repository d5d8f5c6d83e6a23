"""What the tests on a GPU measure in sessions of their own, so that it is checked without one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

REPOSITORY: Final = Path(__file__).parents[2]
RESULTS: Final = REPOSITORY / "results"
EXPERIMENT: Final = "gpu"

FIGURES: Final = yaml.safe_load((REPOSITORY / "tests/gpu/figures.yaml").read_text("utf-8"))
"""Goals by device and benchmark, and published figures."""


@dataclass(frozen=True)
class Measured:
    """A run of this repository's benchmarks."""

    folder: Path

    @property
    def benchmarks(self) -> dict[str, dict[str, Any]]:
        """Those of the summary by name."""
        summary = json.loads((self.folder / "summary.json").read_text("utf-8"))
        return {benchmark["name"]: benchmark for benchmark in summary["benchmarks"]}

    @property
    def outcomes(self) -> dict[str, str]:
        """Each benchmark's outcome by name."""
        return {name: benchmark["outcome"] for name, benchmark in self.benchmarks.items()}

    def trace(self, name: str) -> list[dict[str, Any]]:
        """Events of the trace of the benchmark with that name."""
        file = f"{name.replace('[', '-').removesuffix(']')}.json"
        trace = json.loads((self.folder / "traces" / file).read_text("utf-8"))
        events: list[dict[str, Any]] = trace["traceEvents"]
        return events


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Arguments of pytest, the names of the benchmarks that they select, and their fixed bounds."""

    arguments: tuple[str, ...]
    names: tuple[str, ...]
    bounds: Mapping[str, str] = field(default_factory=dict)

    def command(self, **goals: str) -> list[str]:
        """What measures the benchmarks, and fails without a number, or where a bound is broken."""
        bounds = {**self.bounds, **goals}
        return [
            *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *self.arguments),
            *("--device=cuda", f"--experiment={EXPERIMENT}", "--baseline=bounds", "--gate"),
            *(f"--gate.limits.{metric}={bound}" for metric, bound in bounds.items()),
        ]

    def measured(self, **goals: str) -> Measured:
        """Measure the benchmarks on CUDA: some are measured, and the others unsupported."""
        done = subprocess.run(
            [*self.command(**goals), f"--results-dir={RESULTS}"],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        # Names of runs begin with their time: the last one has just ended.
        return Measured(max((RESULTS / EXPERIMENT).glob("*/summary.json")).parent)


# Neither compiled nor accumulated: a compilation takes about a minute.
_PLAIN: Final = "channels_last and not compiled and not accumulated"

TINY_TRAINING: Final = Selection(
    arguments=(
        *("benchmarks/training/test_resnet.py", "-k", f"resnet18_train and {_PLAIN}"),
        *("--preset=tiny", "--precision=fp32,tf32,amp,bf16"),
    ),
    names=tuple(
        f"test_resnet18_train[channels_last-{precision}]"
        for precision in ("fp32", "tf32", "amp", "bf16")
    ),
)

TRACED_TRAINING: Final = Selection(
    arguments=(
        *("benchmarks/training/test_resnet.py", "-k", f"resnet18_train and {_PLAIN}"),
        *("--preset=tiny", "--precision=amp", "--profile", "--measure.profile=quick"),
    ),
    names=("test_resnet18_train[channels_last-amp]",),
)

FULL_TRAINING: Final = Selection(
    arguments=(
        *("benchmarks/training/test_resnet.py", "-k", f"resnet50_train and {_PLAIN}"),
        *("--preset=full", "--precision=amp"),
        "--measure.profile=quick",  # a sustained rate would take 13 s
    ),
    names=("test_resnet50_train[channels_last-amp]",),
)

_CACHES: Final = ("", "-cold")

KERNELS: Final = Selection(
    arguments=(
        *("benchmarks/micro", "-k", "test_norm or test_copy_device or test_layout_elementwise"),
        *("--preset=tiny", "--precision=fp32"),  # copies have no other
    ),
    names=(
        *(f"test_copy_device{cache}" for cache in ("", "[cold]")),
        *(
            f"test_layout_elementwise[{layout}{cache}]"
            for layout in ("contiguous", "padded", "transposed")
            for cache in _CACHES
        ),
        *(
            f"test_norm[{operation}{cache}-fp32]"
            for operation in ("softmax", "layer_norm", "rms_norm")
            for cache in _CACHES
        ),
    ),
)

FULL_CONVOLUTIONS: Final = Selection(
    arguments=("benchmarks/micro", "-k", "test_conv2d", "--preset=full", "--precision=fp32"),
    names=tuple(
        f"test_conv2d[{memory_format}-{direction}-fp32]"
        for memory_format in ("channels_last", "contiguous")
        for direction in ("forward", "backward")
    ),
)
"""Where cuDNN may take Winograd's algorithms, and the tolerance holds none of TF32."""

COLD_START: Final = Selection(
    arguments=(
        *("benchmarks/system", "-k", "test_cold_start and eager"),
        *("--preset=tiny", "--precision=fp32"),
    ),
    names=("test_cold_start[eager-fp32]",),
)

DECODING: Final = Selection(
    arguments=(
        *("benchmarks/inference/test_llama.py", "-k", "decode and (eager or reduce-overhead)"),
        *("--preset=full", "--precision=bf16-true", "--profile", "--measure.profile=quick"),
    ),
    names=tuple(
        f"test_llama_decode[{execution}-{batch}-bf16-true]"
        for execution in ("eager", "reduce-overhead")
        for batch in ("b1", "bmax")
    ),
)

CLOCKS: Final = Selection(
    arguments=("tests/gpu/bench_clocks.py",),
    names=(
        *(f"test_step[{load}]" for load in ("product-4096", "product-1024", "softmax")),
        *(f"test_step[{load}]" for load in ("convolution", "20-us", "50-us", "200-us")),
        *(f"test_step[{load}]" for load in ("1000-us", "300-kernels", "busy-host")),
        "test_step_that_waits",
        *(f"test_kernel[{load}]" for load in ("product-4096", "200-us")),
        "test_cache",
    ),
)
COUNTERS: Final = Selection(arguments=("tests/gpu/bench_counters.py",), names=("test_counters",))


def _headline(file: str, test: str, case: str, precision: str) -> Selection:
    """A training step that measuring may make 0.5% slower than the loop by hand beside it."""
    name = f"{test}[{case}]"
    return Selection(
        arguments=(
            f"benchmarks/training/{file}::{name}",
            *("--preset=full", f"--precision={precision}", "-p", "tests.support.hand_loop"),
        ),
        names=(name,),
        bounds={"from_hand_loop": "<=0.005"},
    )


HEADLINES: Final = tuple(
    _headline("test_resnet.py", "test_resnet50_train", f"{variant}-amp", "amp")
    for variant in ("channels_last-compiled", "channels_last", "channels_last-compiled-b1024")
) + tuple(
    _headline("test_llama.py", "test_llama_train", f"{variant}", precision)
    for variant, precision in (
        ("compiled-step-bf16", "bf16"),
        ("bf16", "bf16"),
        ("compiled-step-bf16-true", "bf16-true"),
    )
)


def _one_number(file: str, keyword: str, precisions: str, *names: str) -> Selection:
    return Selection(
        arguments=(
            *(f"benchmarks/{file}", f"--precision={precisions}", "-k", keyword),
            *("--preset=full", "--measure.profile=quick"),
        ),
        names=names,
    )


def _training(model: str, test: str, further: str = "") -> Selection:
    plain = "not compiled and not accumulated and not checkpointed and not fsdp2"
    keyword = f"{test} and {further}{plain}"
    return _one_number(f"training/test_{model}.py", keyword, "bf16", f"test_{test}[bf16]")


BREADTH: Final = (
    _one_number(
        "micro/test_gemm.py",
        "test_matmul and x1 and not cold",
        "fp32,tf32,bf16,fp16-true",
        *(f"test_matmul[x1-{p}]" for p in ("fp32", "tf32", "bf16", "fp16-true")),
    ),
    _one_number(
        "micro/test_gemm.py",
        "fp8 and not cold",
        "bf16",
        *("test_matmul_fp8[bf16]", "test_matmul_fp8[fast-bf16]"),
    ),
    _one_number(
        "micro/test_attention.py",
        "attention and not backward and not math",
        "bf16",
        *(f"test_attention[{b}-forward-bf16]" for b in ("flash", "efficient", "cudnn")),
    ),
    _one_number(
        "micro/test_copies.py",
        "",
        "fp32",
        *("test_copy_device", "test_copy_device[cold]"),
        *(
            f"test_copy_host[{way}-{memory}]"
            for way in ("host_to_device", "device_to_host")
            for memory in ("pinned", "pageable")
        ),
        "test_launch",
    ),
    _training("gpt2", "gpt2_train"),
    _training("vit", "vit_train"),
    _training("bert", "bert_train"),
    _training("unet", "unet_cond_train", "not channels_last and "),
    _training("moe", "mixtral_train", "not eager and "),
)

SELECTIONS: Final = {
    "tiny training": TINY_TRAINING,
    "traced training": TRACED_TRAINING,
    "full training": FULL_TRAINING,
    "kernels": KERNELS,
    "full convolutions": FULL_CONVOLUTIONS,
    "cold start": COLD_START,
    "decoding": DECODING,
    "clocks": CLOCKS,
    "counters": COUNTERS,
    **{selection.names[0]: selection for selection in (*HEADLINES, *BREADTH)},
}
