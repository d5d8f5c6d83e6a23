"""The language models with mixtures of experts."""

from __future__ import annotations

import sys

import pytest
import torch
from torch.nn.functional import cross_entropy

from gpubench_plugin.measure.probes.operations import count_flops
from gpubench_plugin.training.parallelism.base import split_dependent_layers
from gpubench_plugin.workloads._mixture import router_loss
from gpubench_plugin.workloads.base import run_fake_step
from tests.support.messages import mentions

CPU = torch.device("cpu")
both = pytest.mark.parametrize("name", ["mixtral", "qwen-moe"])


def loss_and_gradient(workload, batch):
    torch.manual_seed(0)
    module = workload.build().train()
    loss = workload.loss(module, batch)
    loss.backward()
    return loss.detach(), torch.cat([p.grad.flatten() for p in module.parameters()])


@both
def test_both_ways_to_compute_experts_agree(name, make_workload):
    """One expert after the other and all by one grouped product give one loss and gradient."""
    grouped, eager = (
        make_workload(name, "tiny", f"model.experts_implementation={way}")
        for way in ("grouped", "eager")
    )
    batch = grouped.synthetic_batch(2, device=CPU)
    (loss, gradient), (expected, reference) = (
        loss_and_gradient(workload, batch) for workload in (grouped, eager)
    )
    assert float(loss) == pytest.approx(float(expected), rel=1e-6)
    assert float((gradient - reference).norm() / reference.norm()) < 1e-5


@both
def test_experts_follow_autocast(name, make_workload, monkeypatch):
    """Under autocast to bf16 the grouped products are in bf16, not in the weights' fp32."""
    seen = []
    product = torch.nn.functional.grouped_mm

    def noted(left, right, **kwargs):
        seen.append((left.dtype, right.dtype))
        return product(left, right, **kwargs)

    monkeypatch.setattr(torch.nn.functional, "grouped_mm", noted)
    workload = make_workload(name, "tiny")
    module = workload.build()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        workload.loss(module, workload.synthetic_batch(1, device=CPU))
    assert set(seen) == {(torch.bfloat16, torch.bfloat16)}


@both
def test_training_adds_the_weighted_loss_of_the_router(name, make_workload):
    """In training the loss is the cross entropy and the router's part; in eval mode the first."""
    workload = make_workload(name, "tiny", "model.router_loss_weight=0.5")
    module, batch = workload.build(), workload.synthetic_batch(2, device=CPU)
    with torch.no_grad():
        logits = workload.forward(module, batch)
        plain = cross_entropy(logits.flatten(0, 1), batch.targets.flatten())
        trained = workload.loss(module.train(), batch)
        evaluated = workload.loss(module.eval(), batch)
    # experts × Σ share × probability, where the shares of a token's experts sum to their number.
    least = 0.5 * workload.section.experts_per_token
    assert float(evaluated) == pytest.approx(float(plain))
    assert float(trained - plain) == pytest.approx(least, rel=0.2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@both
def test_the_loss_of_the_router_is_that_of_transformers(name, dtype, make_workload):
    """It equals that of the installed version, and so does the gradient of the logits."""
    architecture = type(make_workload(name, "tiny").build()).__base__
    library = sys.modules[architecture.__module__].load_balancing_loss_func
    layers = [torch.randn(37, 8, dtype=dtype, requires_grad=True) for _ in range(3)]
    loss, expected = router_loss(layers, experts_per_token=3), library(tuple(layers), 8, 3)
    gradients, wanted = torch.autograd.grad(loss, layers), torch.autograd.grad(expected, layers)
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=0)
    assert all(map(torch.equal, gradients, wanted))


@both
def test_the_output_with_the_router_s_loss_is_that_of_transformers(name, make_workload):
    """Logits and the router's loss of a training step are those of the model's own class."""
    workload = make_workload(name, "tiny")
    module, tokens = workload.build().train(), workload.synthetic_batch(2, device=CPU).inputs
    output = module(input_ids=tokens, output_router_logits=True)
    module.__class__ = type(module).__base__
    expected = module(input_ids=tokens, output_router_logits=True)
    assert torch.equal(output.logits, expected.logits)
    torch.testing.assert_close(output.aux_loss, expected.aux_loss, rtol=1e-6, atol=0)


@both
def test_ranks_with_parts_of_the_batch_are_said_to_differ(name, make_workload):
    """In training each layer's router says that it looks at one rank's batch; in eval mode none."""
    module = make_workload(name, "tiny").build()
    said = ("router balances", "each rank's own batch (2 layers)")
    assert mentions(split_dependent_layers(module.train()), *said)
    assert split_dependent_layers(module.eval()) is None


@pytest.mark.slow
@both
def test_experts_in_a_loop_are_counted_like_grouped_ones(name, make_workload):
    """The loop depends on data that a count does not have, and does the same mathematics."""
    eager, grouped = (
        count_flops(
            lambda workload=workload: run_fake_step(workload, samples=1, backward=True)
        ).per_call
        for workload in (
            make_workload(name, "tiny", "model.experts_implementation=eager"),
            make_workload(name, "tiny"),
        )
    )
    assert eager == grouped > 0
