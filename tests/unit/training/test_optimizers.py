"""Optimizers from the configuration."""

from __future__ import annotations

import pytest
import torch

from gpubench_plugin.config.sections import TrainingSection
from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import Unsupported, UsageProblem

every_optimizer = pytest.mark.parametrize("name", catalog.choices("optimizers"))


def build(name, device="cpu", **training):
    parameters = [torch.nn.Parameter(torch.ones(3))]
    builder = catalog.load("optimizers", name)(TrainingSection(**training), torch.device(device))
    return builder, builder.build(parameters), parameters[0]


@every_optimizer
def test_takes_rate_and_decay_from_the_configuration(name):
    """The configured learning rate and weight decay are the optimizer's."""
    _, optimizer, _ = build(name, learning_rate=0.25, weight_decay=0.125)
    group = optimizer.param_groups[0]
    assert (group["lr"], group.get("weight_decay", 0.125)) == (0.25, 0.125)


@every_optimizer
@pytest.mark.parametrize(
    ("device", "configured", "expected"),
    [("cpu", None, False), ("cuda", None, True), ("cpu", True, True), ("cuda", False, False)],
)
def test_fused_on_accelerators_unless_configured(name, device, configured, expected):
    """Without a word of the configuration an optimizer is fused on accelerators only."""
    if configured and not catalog.load("optimizers", name).can_fuse:
        with pytest.raises(UsageProblem, match=r"training\.fused"):
            build(name, device, fused=configured)
        return
    builder, optimizer, _ = build(name, device, fused=configured)
    if not builder.can_fuse:
        expected = False
    assert (expected, expected) == (builder.fused, optimizer.param_groups[0].get("fused", False))


@every_optimizer
def test_lowers_a_loss(name):
    """A few updates go downhill."""
    _, optimizer, weight = build(name, learning_rate=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        weight.square().sum().backward()
        optimizer.step()
    assert float(weight.detach().square().sum()) < 3.0


def test_sgd_has_the_configured_momentum():
    """Momentum is SGD's key."""
    _, optimizer, _ = build("sgd", momentum=0.5)
    assert optimizer.param_groups[0]["momentum"] == 0.5


@every_optimizer
def test_sharded_parameters_are_fused_where_torch_can(name):
    """An optimizer that torch cannot fuse for shards is not fused, and asking for it is refused."""
    kind = catalog.load("optimizers", name)
    cuda = torch.device("cuda")
    assert kind(TrainingSection(), cuda, sharded=True).fused == kind.can_fuse_sharded
    if not kind.can_fuse_sharded:
        with pytest.raises(UsageProblem, match=f"{name} has no fused .* sharded parameters"):
            kind(TrainingSection(optimizer=name, fused=True), cuda, sharded=True)


def test_adamw_on_fp16_parameters_is_unsupported():
    """AdamW would divide by zero in fp16, so it is refused with what to choose instead."""
    builder = catalog.load("optimizers", "adamw")(TrainingSection(), torch.device("cpu"))
    with pytest.raises(Unsupported, match=r"adamw with fp16 .* underflow in fp16"):
        builder.build([torch.nn.Parameter(torch.ones(3, dtype=torch.float16))])
