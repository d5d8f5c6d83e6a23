"""The router."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from pydantic import ValidationError

from gpubench_plugin.workloads.moe.routing import Router, capacity
from gpubench_plugin.workloads.moe.workload import MoEModelSection
from tests.unit.workloads.moe.made import section


def routed(tokens, **keys):
    """The routing by a router whose logits are the first features of a token."""
    made = section(**keys)
    return Router(made, torch.eye(made.experts, made.width))(tokens)


def tokens_with(*logits, width=16):
    rows = torch.zeros(len(logits), width)
    rows[:, : len(logits[0])] = torch.tensor(logits)
    return rows


def test_the_likeliest_experts_come_first_and_their_weights_sum_to_one():
    """Of logits 2, 0, 1 the first two are experts 0 and 2, weighted by their softmax alone."""
    routing = routed(tokens_with([2.0, 0.0, 1.0]), experts=3)
    assert routing.experts.tolist() == [[0, 2]]
    assert routing.weights[0].tolist() == pytest.approx(torch.tensor([2.0, 1.0]).softmax(0))
    assert routing.counts.tolist() == [1, 0, 1]
    assert routing.kept_mask is None


def test_a_single_expert_keeps_its_probability():
    """With top_k of one the weight is the softmax over all experts, which the router learns by."""
    routing = routed(tokens_with([2.0, 0.0, 1.0]), experts=3, top_k=1)
    expected = torch.tensor([2.0, 0.0, 1.0]).softmax(0)[0]
    assert routing.weights.item() == pytest.approx(expected.item())


def test_aux_loss_is_its_weight_where_experts_are_equally_busy():
    """Σ f·P times the number of experts is one for an even load."""
    even = tokens_with([9.0, 0.0], [0.0, 9.0])
    assert routed(even, experts=2, top_k=1).balancing_loss.item() == pytest.approx(0.01)


def test_aux_loss_is_the_formula_of_switch():
    """E · Σ f·P of three tokens, of which two visit the first of two experts."""
    tokens = tokens_with([1.0, 0.0], [2.0, 0.0], [0.0, 3.0])
    probabilities = tokens[:, :2].softmax(1).mean(0)
    expected = 0.5 * 2 * (2 / 3 * probabilities[0] + 1 / 3 * probabilities[1])
    loss = routed(tokens, experts=2, top_k=1, balancing_weight=0.5).balancing_loss
    assert loss.item() == pytest.approx(expected.item())


def test_z_loss_is_the_formula_of_st_moe():
    """The mean square of the logarithm of the sum of exponentials of the logits."""
    tokens = tokens_with([1.0, 0.0], [2.0, -1.0])
    expected = sum(tokens[:, :2].exp().sum(1).log() ** 2) / 2
    loss = routed(tokens, experts=2, top_k=1, balancing="z-loss", balancing_weight=1.0)
    assert loss.balancing_loss.item() == pytest.approx(expected.item())


@pytest.mark.parametrize(("balancing", "aux_weight"), [("aux-loss", 0.5), ("none", 0.0)])
def test_a_z_loss_adds_to_the_balancing_loss(balancing, aux_weight):
    """Each has its weight, as in Megatron; without balancing the z-loss is alone."""
    tokens = tokens_with([1.0, 0.0], [2.0, 0.0], [0.0, 3.0])
    sizes = {"experts": 2, "top_k": 1}
    aux = routed(tokens, balancing_weight=1.0, **sizes).balancing_loss
    z = routed(tokens, balancing="z-loss", balancing_weight=1.0, **sizes).balancing_loss
    both = routed(
        tokens, balancing=balancing, balancing_weight=0.5, z_loss_weight=0.25, **sizes
    ).balancing_loss
    assert both.item() == pytest.approx(aux_weight * aux.item() + 0.25 * z.item())


@pytest.mark.parametrize("made", [section, partial(MoEModelSection, name="moe")])
def test_a_z_loss_is_not_added_to_itself(made):
    """Two weights of one loss are refused, with what is allowed."""
    with pytest.raises(ValidationError, match=r"z_loss_weight=0\.1 beside balancing=z-loss"):
        made(balancing="z-loss", z_loss_weight=0.1)


def test_nothing_balances_when_told_so_or_in_eval_mode():
    """balancing=none has a loss of zero, and so has every router in eval mode."""
    tokens = tokens_with([1.0, 0.0])
    assert routed(tokens, experts=2, balancing="none").balancing_loss.item() == 0
    made = section(experts=2)
    assert Router(made, torch.eye(2, 16)).eval()(tokens).balancing_loss.item() == 0


def test_first_choices_are_kept_before_second_ones():
    """Of three tokens that all want expert 0, capacity two keeps the two whose first choice it is.

    The last token's first choice counts before the first token's second.
    """
    tokens = tokens_with([1.0, 2.0], [2.0, 1.0], [2.0, 1.0])
    routing = routed(tokens, experts=2, capacity_factor=0.5)
    assert capacity(section(experts=2, capacity_factor=0.5), 3) == 2
    assert routing.experts.tolist() == [[1, 0], [0, 1], [0, 1]]
    assert routing.kept_mask.tolist() == [[True, False], [True, True], [True, False]]
    assert routing.counts.tolist() == [3, 3]


def test_capacity_is_rounded_up():
    """1.25 · 10 tokens · 2 visits / 4 experts are 6.25: seven fit."""
    assert capacity(section(capacity_factor=1.25), 10) == 7


def test_the_router_computes_in_fp32_under_autocast():
    """Weights are the same with and without bf16 autocast."""
    tokens = torch.randn(8, 16, generator=torch.Generator().manual_seed(0))
    router = Router(section(), torch.randn(4, 16, generator=torch.Generator().manual_seed(1)))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = router(tokens)
    assert inside.weights.equal(router(tokens).weights)
