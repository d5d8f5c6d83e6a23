"""Training steps that are wrong on purpose: the checks before the timing must find each."""

from __future__ import annotations

import pytest
import torch

from gpubench_plugin.config.sections import MeasureSection
from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import CorrectnessError
from gpubench_plugin.ranks.agreement import RankAgreement
from gpubench_plugin.training.optimization import Optimization
from gpubench_plugin.training.reference import Fp32Reference
from tests.support.presets import CONFIGURED
from tests.unit.training.conftest import silent

CPU = torch.device("cpu")

QUICK_IN_FP16 = ("cnn", "mlp", "moe", "regression", "resnet18", "resnet50", "vit")
"""A CPU computes fp16 a hundred times slower than fp32."""

ALWAYS = {("mlp", "amp"), ("mlp", "bf16"), ("resnet18", "amp"), ("resnet50", "bf16")}
"""What every run of the tests looks at; the others are for the long run."""

CASES = [
    pytest.param(
        name,
        precision,
        marks=[] if (name, precision) in ALWAYS else [pytest.mark.exhaustive],
        id=f"{name}-{precision}",
    )
    for name in CONFIGURED
    for precision in ("amp", "bf16", "bf16-true")
    if name != "diffusion" and (precision != "amp" or name in QUICK_IN_FP16)
]


@pytest.fixture
def first_steps(shipped):
    """Checks the first steps of a workload's tiny preset."""

    def check(name, precision):
        trainer = shipped(name, precision, "training.steps=5", "training.loss_drop=null")
        chosen = catalog.load("precision", precision)()
        trainer.reference = Fp32Reference(
            workload=trainer.workload,
            training=trainer.training,
            measure=MeasureSection(),
            precision=precision,
            compute_dtypes=[chosen.compute_dtype],
            seed=0,
            device=CPU,
            agreement=RankAgreement(),
            averaging=False,
            steps=5,
        )
        torch.manual_seed(0)
        with chosen.switches():
            return trainer.prepare(silent)

    return check


@pytest.mark.slow
@pytest.mark.parametrize(("name", "precision"), CASES)
def test_gradients_of_a_wrong_scale_fail_at_the_first_step(
    name, precision, first_steps, monkeypatch
):
    """Half as large, or 1.6 times: found before the first update; right ones are within bands."""
    backward = Optimization.backward
    first_steps(name, precision)
    for factor in (0.5, 1.6):
        monkeypatch.setattr(
            Optimization, "backward", lambda self, loss, f=factor: backward(self, loss * f)
        )
        with pytest.raises(CorrectnessError, match=r"step \d: the gradient norm") as error:
            first_steps(name, precision)
        # Later ones only where a scale that was too high skipped those before it.
        assert "step 1" in str(error.value) or precision == "amp"


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_update_that_does_nothing_fails(precision, shipped, monkeypatch):
    """The loss of an optimizer that leaves the weights alone does not fall."""

    def nothing(self):
        self.optimizer.zero_grad(set_to_none=True)

    monkeypatch.setattr(Optimization, "update", nothing)
    with pytest.raises(CorrectnessError, match=r"training\.loss_drop=0\.5: in 20 steps"):
        shipped("mlp", precision).prepare(silent)
