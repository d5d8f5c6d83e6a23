"""The small model made of our layer."""

from __future__ import annotations

import pytest
import torch

from gpubench_plugin.measure.probes.operations import count_flops

CPU = torch.device("cpu")


@pytest.mark.parametrize("kind", ["sequential", "grouped"])
def test_both_kinds_of_experts_are_one_model(kind, make_workload):
    """The same seed gives the same loss and gradients, whatever computes the experts."""
    found = []
    for name in ("grouped", kind):
        workload = make_workload("moe", "tiny", f"model.expert_kind={name}")
        torch.manual_seed(3)
        module = workload.build()
        batch = workload.synthetic_batch(4, device=CPU, generator=torch.Generator().manual_seed(0))
        workload.loss(module, batch).backward()
        found.append(torch.cat([p.grad.flatten() for p in module.parameters()]))
    torch.testing.assert_close(*found, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_flops_do_not_depend_on_the_precision(precision, make_workload):
    """Without data only bf16 has a grouped product; what stands in for it costs the same."""
    workload = make_workload("moe", "tiny")

    def forward():
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=precision == "bf16"):
            workload.forward(workload.build(), workload.synthetic_batch(4, device=CPU))

    block = 2 * 64 * 4 + 6 * 2 * 64 * 64
    expected = 4 * 8 * (2 * 8 * 64 + 2 * block) + 4 * 2 * 64 * 10
    assert count_flops(forward).per_call == expected


def test_blocks_differ(make_workload):
    """Layers of one model do not share their first weights."""
    module = make_workload("moe", "tiny").build()
    first, second = (block.moe.experts.w_in for block in module.blocks)
    assert not first.equal(second)


def test_balancing_is_part_of_the_loss_and_says_where_it_differs(make_workload):
    """The aux-loss balances each rank's own tokens, and the layer says so; the z-loss does not."""
    losses, said = {}, {}
    for name in ("none", "z-loss", "aux-loss"):
        workload = make_workload(
            "moe", "tiny", f"model.balancing={name}", "model.balancing_weight=1.0"
        )
        torch.manual_seed(0)
        module = workload.build()
        batch = workload.synthetic_batch(4, device=CPU, generator=torch.Generator().manual_seed(0))
        losses[name] = float(workload.loss(module, batch).detach())
        said[name] = module.blocks[0].moe.router.differs_per_rank
    assert losses["aux-loss"] > losses["none"] + 1.9  # each of two layers adds at least one
    assert losses["z-loss"] > losses["none"]
    assert (said["none"], said["z-loss"]) == (None, None)
    assert "each rank's own batch" in said["aux-loss"]
