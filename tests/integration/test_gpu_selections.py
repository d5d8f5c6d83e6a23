"""What is selected on a GPU is what is expected: collected here, without a device."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from gpubench_plugin.cli.gpu_check.stages import breadth, decode, headline, traces
from tests.support.exhaustive import shown
from tests.support.gpu_selections import SELECTIONS, Selection
from tests.support.gpu_stages import EMPTY, CannedRun

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpubench_plugin.cli.gpu_check.stage import Session, StageRun

REPOSITORY = Path(__file__).parents[2]
GPU_TESTS = Path(__file__).parent / "gpu"


@pytest.mark.parametrize("selection", SELECTIONS.values(), ids=SELECTIONS)
def test_a_selection_holds_what_its_test_unpacks(selection: Selection) -> None:
    """The benchmarks collected for CUDA by the arguments are the expected ones, in order."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "benchmarks", "--device=cuda", *selection.arguments),
            *("--collect-only", "-q", "-p", "no:cacheprovider"),
        ],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    names = [line.partition("::")[2] for line in done.stdout.splitlines() if "::" in line]
    assert tuple(names) == selection.names


def test_tests_on_a_gpu_select_by_these_names_alone() -> None:
    """No test on a GPU states a selection of its own, which nothing would check here."""
    for module in GPU_TESTS.glob("test_*.py"):
        assert '"-k"' not in module.read_text(encoding="utf-8"), module.name


class CollectingRun(CannedRun):
    """Collects what its stage would measure."""

    collected: ClassVar[list[list[str]]] = []

    def pytest(self, name: str, *arguments: str, **options: Any) -> Session:
        """Collect the session's benchmarks for CUDA."""
        plugins = [a for a in arguments if a != "--profile"]
        done = subprocess.run(
            [
                *(sys.executable, "-m", "pytest", *plugins, "--device=cuda"),
                *("--collect-only", "-q", "-p", "no:cacheprovider"),
            ],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        lines = done.stdout.splitlines()
        self.collected.append([line.partition("::")[2] for line in lines if "::" in line])
        return EMPTY


STAGES: Mapping[Callable[[StageRun], None], Sequence[Sequence[str]]] = {
    headline.resnet50: [
        ["test_resnet50_train[channels_last-compiled-amp-ws1]"],
        ["test_resnet50_train[channels_last-amp-ws1]"],
    ],
    headline.resnet50_b1024: [["test_resnet50_train[channels_last-compiled-b1024-amp-ws1]"]],
    headline.llama: [
        ["test_llama_train[compiled-step-bf16-ws1]"],
        ["test_llama_train[bf16-ws1]"],
        ["test_llama_train[compiled-step-bf16-true-ws1]"],
    ],
    decode.decode: [
        [f"test_llama_decode[{execution}-{batch}-bf16-true-ws1]"]
        for execution in ("eager", "reduce-overhead")
        for batch in ("b1", "bmax")
    ],
    breadth.breadth: [
        [f"test_matmul[x1-{p}-ws1]" for p in ("fp32", "tf32", "bf16", "fp16-true")],
        ["test_matmul_fp8[bf16-ws1]", "test_matmul_fp8[fast-bf16-ws1]"],
        [f"test_attention[{b}-forward-bf16-ws1]" for b in ("flash", "efficient", "cudnn")],
        [
            *("test_copy_device[ws1]", "test_copy_device[cold-ws1]"),
            *(
                f"test_copy_host[{way}-{memory}-ws1]"
                for way in ("host_to_device", "device_to_host")
                for memory in ("pinned", "pageable")
            ),
            "test_launch[ws1]",
        ],
        ["test_gpt2_train[bf16-ws1]"],
        ["test_vit_train[bf16-ws1]"],
        ["test_bert_train[bf16-ws1]"],
        ["test_unet_cond_train[bf16-ws1]"],
        ["test_mixtral_train[bf16-ws1]"],
    ],
}


@pytest.mark.parametrize(
    "stage", shown(headline.resnet50, exhaustively=STAGES), ids=lambda stage: str(stage.__name__)
)
def test_stages_of_gpu_check_select_what_they_show(
    stage: Callable[[StageRun], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each session has the benchmarks that its stage is about."""
    monkeypatch.setattr(CollectingRun, "collected", [])
    stage(CollectingRun(folder=tmp_path, repository=REPOSITORY, limit_s=600))

    assert CollectingRun.collected == STAGES[stage]


def test_stage_of_traces_selects_the_tiny_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One benchmark; the snapshot needs a device."""
    monkeypatch.setattr(CollectingRun, "collected", [])
    monkeypatch.setattr(traces, "snapshot_of_step", lambda: ([], 1.0))
    traces.traces(CollectingRun(folder=tmp_path, repository=REPOSITORY, limit_s=600))

    assert CollectingRun.collected == [["test_resnet18_train[channels_last-amp-ws1]"]]
