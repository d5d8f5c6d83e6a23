"""What the tests on a GPU select from the suite, so that it is checked without one, too."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

REPOSITORY: Final = Path(__file__).parents[2]


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Arguments of pytest, and the names of the benchmarks that they select."""

    arguments: tuple[str, ...]
    names: tuple[str, ...]

    def measured(self, results: Path) -> dict[str, dict[str, Any]]:
        """Measure this repository's selected benchmarks on CUDA; the summary's by name."""
        command = [sys.executable, "-m", "pytest", "benchmarks", "--device=cuda"]
        command += [*self.arguments, f"--results-dir={results}", "-p", "no:cacheprovider"]
        done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        (summary,) = results.glob("*/*/summary.json")
        return {b["name"]: b for b in json.loads(summary.read_text())["benchmarks"]}


# Neither compiled nor accumulated: a compilation takes about a minute.
_PLAIN: Final = "channels_last and not compiled and not accumulated"

TINY_TRAINING: Final = Selection(
    arguments=(
        *("-k", f"resnet18_train and {_PLAIN}"),
        "--preset=tiny",
        "--precision=fp32,tf32,amp,bf16",
    ),
    names=tuple(
        f"test_resnet18_train[channels_last-{precision}-ws1]"
        for precision in ("fp32", "tf32", "amp", "bf16")
    ),
)

FULL_TRAINING: Final = Selection(
    arguments=(
        *("-k", f"resnet50_train and {_PLAIN}", "--preset=full", "--precision=amp"),
        "--measure.profile=quick",  # a sustained rate would take 13 s
    ),
    names=("test_resnet50_train[channels_last-amp-ws1]",),
)

_CACHES: Final = ("", "cold-")

KERNELS: Final = Selection(
    arguments=(
        *("-k", "test_norm or test_copy_device or test_layout_elementwise"),
        *("--preset=tiny", "--precision=bf16"),
    ),
    names=(
        *(f"test_copy_device[{cache}ws1]" for cache in _CACHES),
        *(
            f"test_layout_elementwise[{layout}-{cache}ws1]"
            for layout in ("contiguous", "padded", "transposed")
            for cache in _CACHES
        ),
        *(
            f"test_norm[{operation}-{cache}bf16-ws1]"
            for operation in ("softmax", "layer_norm", "rms_norm")
            for cache in _CACHES
        ),
    ),
)

FULL_CONVOLUTIONS: Final = Selection(
    arguments=("-k", "test_conv2d", "--preset=full", "--precision=fp32"),
    names=tuple(
        f"test_conv2d[{memory_format}-{direction}-fp32-ws1]"
        for memory_format in ("channels_last", "contiguous")
        for direction in ("forward", "backward")
    ),
)
"""Where cuDNN may take Winograd's algorithms, and the tolerance holds none of TF32."""

COLD_START: Final = Selection(
    arguments=(
        *("-k", "test_cold_start and eager", "--preset=tiny"),
        "--precision=fp32",
    ),
    names=("test_cold_start[eager-fp32-ws1]",),
)

SELECTIONS: Final = {
    "tiny training": TINY_TRAINING,
    "full training": FULL_TRAINING,
    "kernels": KERNELS,
    "full convolutions": FULL_CONVOLUTIONS,
    "cold start": COLD_START,
}
