"""The work of a step, before and after the timing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional

from gpubench_plugin.core.errors import CorrectnessError
from gpubench_plugin.measure.probes.operations import StepWork

INPUTS, TARGETS = torch.randn(8, 4), torch.randint(3, (8,))


class Training:
    """Steps of two layers whose parts a test can change between two looks."""

    def __init__(self) -> None:
        self.module = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5), nn.Linear(6, 3))
        self.optimizer: torch.optim.Optimizer = torch.optim.SGD(self.module.parameters(), lr=0.1)
        self.hidden: Callable[[torch.Tensor], torch.Tensor] = self.module[0]
        self.samples = 8
        self.updates = True

    def step(self) -> None:
        outputs = self.module[2](self.module[1](self.hidden(INPUTS)))
        functional.cross_entropy(outputs[: self.samples], TARGETS[: self.samples]).backward()
        if self.updates:
            self.optimizer.step()
        self.optimizer.zero_grad()

    def work(self, *, counts: bool = True) -> StepWork:
        return StepWork.of(self.step, self.module, counts=counts)


def stop_updating(training: Training) -> None:
    training.updates = False


def detach(training: Training) -> None:
    training.hidden = lambda inputs: training.module[0](inputs).detach()


def freeze(training: Training) -> None:
    training.module[0].requires_grad_(requires_grad=False)


def take_one_sample(training: Training) -> None:
    training.samples = 1


def skip_layer(training: Training) -> None:
    training.hidden = lambda inputs: inputs.new_zeros(8, 6)


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (stop_updating, "no update of 0.bias; no update of 0.weight"),
        (detach, "no gradient of 0.bias; no gradient of 0.weight"),
        (freeze, "no gradient of 0.bias"),
        (take_one_sample, "4 values in the loss, 32 before"),
        (skip_layer, "576 FLOPs, 1,632 before"),
    ],
)
def test_other_work_is_named(change: Callable[[Training], None], difference: str) -> None:
    """What is lost of the gradients, the updates, the products or the loss."""
    training = Training()
    before = training.work()
    change(training)
    with pytest.raises(CorrectnessError, match=difference):
        training.work().require_equal(before)


def lower_rate(training: Training) -> None:
    training.optimizer.param_groups[0]["lr"] = 0.0


def another_optimizer(training: Training) -> None:
    training.optimizer = torch.optim.AdamW(training.module.parameters(), fused=True)


@pytest.mark.parametrize("change", [lower_rate, another_optimizer, lambda _: None])
@pytest.mark.parametrize("counts", [True, False])
def test_equal_work_is_equal(change: Callable[[Training], None], counts: bool) -> None:
    """Neither a learning rate of zero nor dropout changes it, nor how parameters are updated."""
    training = Training()
    before = training.work(counts=counts)
    change(training)
    training.work(counts=counts).require_equal(before)


def test_experts_without_a_sample_have_lost_nothing() -> None:
    """They are not used, have no gradient, and the others do their work."""
    experts = nn.ModuleList([nn.Linear(4, 3), nn.Linear(4, 3)])
    optimizer, first_expert = torch.optim.SGD(experts.parameters(), lr=0.1), 4

    def step() -> None:
        parts = [INPUTS[:first_expert], INPUTS[first_expert:]]
        outputs = [e(part) for e, part in zip(experts, parts, strict=True) if len(part)]
        functional.cross_entropy(torch.cat(outputs), TARGETS).backward()
        optimizer.step()
        optimizer.zero_grad()

    before = StepWork.of(step, experts, counts=True)
    first_expert = 8
    after = StepWork.of(step, experts, counts=True)
    assert after.effects < before.effects
    after.require_equal(before)
