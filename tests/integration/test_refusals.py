"""What cannot run here: no other benchmark of the session is the worse for it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.projects import InlineProject

if TYPE_CHECKING:
    from tests.support.projects import Run

BENCHMARKS = """
    import sys

    import pytest

    config = pytest.mark.gpubench(config="cnn")
    keys = pytest.mark.gpubench_set


    @config
    @keys("training.optimizer=adamw")
    @pytest.mark.precision("fp16-true")
    def test_fp16(gpubench, trainer):
        gpubench(trainer.step)


    @config
    @keys("distributed.parallelism=fsdp2", "distributed.fsdp_param_dtype=bf16")
    @pytest.mark.precision("bf16")
    def test_sharded_batch_norm(gpubench, trainer):
        gpubench(trainer.step)


    @pytest.fixture
    def no_transformers(monkeypatch):
        monkeypatch.setitem(sys.modules, "transformers", None)


    @keys("model.name=vit")
    @pytest.mark.gpubench
    def test_missing_package(no_transformers, gpubench, trainer):
        gpubench(trainer.step)


    @config
    @keys("model.channels_last=true")
    def test_layout(gpubench, model, tmp_path):
        from gpubench_plugin.training.checkpoint_formats import CheckpointIO

        checkpoint = CheckpointIO("safetensors", model.state_dict(), tmp_path)
        checkpoint.verify()
        gpubench(checkpoint.save)


    @config
    def test_the_rest(gpubench, inference):
        gpubench(inference.step)
"""

ENDINGS = {
    "fp16": ("unsupported", "adamw with fp16 parameters .* use precision amp or bf16-true"),
    "sharded_batch_norm": (
        "unsupported",
        "distributed.fsdp_param_dtype=bf16: 1 is a batch norm, .*; remove the key",
    ),
    "missing_package": (
        "unsupported",
        r"vit requires transformers, .* pip install 'pytest-gpubench\[suite\]'",
    ),
    "layout": (
        "unsupported",
        "safetensors requires contiguous tensors, .*; set model.channels_last=false",
    ),
    "the_rest": ("measured", ""),
}


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One session of all of them."""
    project = InlineProject(tmp_path_factory.mktemp("project"))
    project.write("configs/cnn.yaml", "model: {name: cnn}\ntraining: {batch_size: 4}\n")
    project.write("test_it.py", BENCHMARKS)
    return project.run()


@pytest.mark.parametrize("name", ENDINGS)
def test_each_ends_with_its_reason(name: str, ended: Run) -> None:
    """Unsupported, with what to do; never a pass."""
    benchmark = _benchmark(ended, name)
    outcome, reason = ENDINGS[name]
    assert benchmark["outcome"] == outcome, benchmark["reason"]
    assert re.match(reason, benchmark["reason"]), benchmark["reason"]
    assert (benchmark["metrics"] != {}) == (outcome == "measured")


def _benchmark(run: Run, name: str) -> dict[str, Any]:
    (found,) = (b for b in run.summary["benchmarks"] if b["name"].startswith(f"test_{name}["))
    return dict(found)
