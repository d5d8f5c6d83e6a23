"""What is checked in preset full: one step beside fp32, and a loss that falls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.exhaustive import shown

if TYPE_CHECKING:
    from tests.support.projects import Project, Run

CONFIGURATION = """
model: {name: mlp, image_size: 8, hidden_sizes: [64], classes: 10}
data: {source: digits}
precision: {init_scale: 128.0}
presets:
  full: {training: {batch_size: 64, learning_rate: 0.2, loss_drop: 0.9}}
"""

BENCHMARK = """
import pytest
@pytest.mark.gpubench(config="own")
def test_x(gpubench, trainer):
    gpubench(trainer.step)
"""


def run(project: Project, *args: str, mutant: str = "") -> Run:
    """A session in preset full; `mutant` is the body of a conftest.py."""
    project.write("configs/own.yaml", CONFIGURATION)
    project.write("test_it.py", BENCHMARK)
    project.write(
        "conftest.py",
        f"""
        import pytest
        import torch
        from gpubench_plugin.training.optimization import Optimization
        @pytest.fixture(autouse=True)
        def mutant(monkeypatch):
            {mutant or "pass"}
        """,
    )
    return project.run("--preset=full", *args)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_first_step_is_compared(project: Project, precision: str) -> None:
    """Of a full preset one step stands beside the reference, and no flag is raised."""
    (benchmark,) = run(project, f"--precision={precision}").summary["benchmarks"]
    assert benchmark["outcome"] == "measured", benchmark["reason"]
    assert benchmark["correctness"]["reference"]["steps"] == 1
    assert "unchecked" not in benchmark["flags"]


IDLE = """monkeypatch.setattr(
                Optimization, "update", lambda self: self.optimizer.zero_grad(set_to_none=True)
            )"""
SCALED = """backward = Optimization.backward
            monkeypatch.setattr(
                Optimization, "backward", lambda self, loss: backward(self, loss * {})
            )"""


@pytest.mark.parametrize(
    ("mutant", "said"),
    [
        pytest.param(IDLE, "training.loss_drop=0.9", id="update that does nothing"),
        pytest.param(SCALED.format(0.5), "step 1: the gradient norm", id="gradients halved"),
        pytest.param(SCALED.format(1.6), "step 1: the gradient norm", id="gradients too large"),
    ],
)
@pytest.mark.parametrize("precision", shown("amp", exhaustively=["bf16"]))
def test_wrong_training_fails(project: Project, mutant: str, said: str, precision: str) -> None:
    """A step that computes something else is no number, whatever the preset."""
    (benchmark,) = run(project, f"--precision={precision}", mutant=mutant).summary["benchmarks"]
    assert benchmark["outcome"] == "failed"
    assert said in benchmark["reason"]


def test_reference_that_does_not_fit_is_told(project: Project) -> None:
    """Measured all the same, with a flag, and the allocation that failed."""
    too_large = (
        'monkeypatch.setattr("gpubench_plugin.training.reference.build_model",'
        " lambda *a, **k: torch.empty(1 << 50))"
    )
    (benchmark,) = run(project, mutant=too_large).summary["benchmarks"]
    assert benchmark["outcome"] == "measured", benchmark["reason"]
    assert "unchecked" in benchmark["flags"]
    assert "can't allocate memory" in benchmark["correctness"]["reference"]["unchecked"]
