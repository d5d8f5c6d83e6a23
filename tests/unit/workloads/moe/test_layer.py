"""The layer on one rank, against a loop over tokens and the formula of its cost."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
import torch
from torch import nn
from torch.nn.functional import silu

from gpubench_plugin.measure.probes.operations import count_flops
from gpubench_plugin.workloads.moe.experts import TEGrouped
from tests.unit.workloads.moe.made import construction, measured

kinds = pytest.mark.parametrize("kind", ["sequential", "grouped"])


def by_hand(made, tokens):
    """Token after token, visit after visit, in double precision."""
    w_in, w_out = (weight.double() for weight in made.all_weights())
    routing = made.router()(tokens)
    output = torch.zeros(tokens.shape, dtype=torch.float64)
    for token, (experts, weights) in enumerate(zip(routing.experts, routing.weights, strict=True)):
        for choice, expert in enumerate(experts.tolist()):
            if routing.kept_mask is None or routing.kept_mask[token, choice]:
                gate, up = (tokens[token].double() @ w_in[expert]).chunk(2)
                output[token] += weights[choice].double() * ((silu(gate) * up) @ w_out[expert])
    return output


@kinds
@pytest.mark.parametrize(
    "keys", [{}, {"capacity_factor": 0.5}, {"top_k": 3}, {"top_k": 1}], ids=str
)
def test_the_output_is_the_sum_over_visits(kind, keys):
    """Every token gets the weighted outputs of the experts it visits, and of no other."""
    made = construction(expert_kind=kind, **keys)
    tokens = made.tokens(0)
    output, _ = made.layer(made.placement())(tokens)
    torch.testing.assert_close(output.double(), by_hand(made, tokens), rtol=1e-5, atol=1e-6)


@kinds
@pytest.mark.parametrize("precision", ["fp32", "bf16", "bf16-true", "amp"])
def test_output_and_gradients_are_the_references(kind, precision):
    """Two visits: exact in every precision; also where experts are empty, or some are full."""
    for keys in ({}, {"experts": 16, "tokens": 4}, {"capacity_factor": 0.5}):
        check = measured(expert_kind=kind, precision=precision, **keys).prepare(None)
        assert check.correctness["error_against_one_process"] == dict.fromkeys(
            ("output", "dX", "dW_in", "dW_out", "dRouter"), 0.0
        )


def test_a_dropped_visit_leaves_the_token_out():
    """With room for one visit per expert, most outputs are zero, and the record says how many."""
    layer = measured("forward", capacity_factor=0.01, top_k=1)
    layer.prepare(None)
    facts = layer.finish()
    busy = int(layer._output.abs().sum(1).count_nonzero())
    assert facts["expert_capacity"] == 1
    assert busy == 4
    assert facts["dropped_fraction"] == pytest.approx(1 - 4 / 24)
    assert facts["expert_load"] == pytest.approx(4 / 24)


@kinds
@pytest.mark.parametrize(
    ("part", "factor"), [("forward", 1), ("forward-backward", 3), ("router", 1), ("experts", 1)]
)
def test_flops_are_the_formula(kind, part, factor):
    """2·d·E of the router and 6·d·h of each visit per token; thrice that with the backward pass."""
    layer = measured(part, expert_kind=kind)
    layer.prepare(None)
    router, experts = 24 * 2 * 16 * 4, 24 * 2 * 6 * 16 * 8
    expected = {"router": router, "experts": experts}.get(part, router + experts) * factor
    assert count_flops(layer.flops_step).per_call == pytest.approx(expected, rel=0.01)


@pytest.fixture
def _transformer_engine(monkeypatch):
    """A stand-in for Transformer Engine's grouped layer."""

    class GroupedLinear(nn.Module):
        def __init__(self, num_gemms, inputs, outputs, *, bias, device, params_dtype):
            super().__init__()
            assert not bias
            for number in range(num_gemms):
                weight = torch.empty(outputs, inputs, device=device, dtype=params_dtype)
                self.register_parameter(f"weight{number}", nn.Parameter(weight))

        def forward(self, rows, m_splits):
            parts = zip(rows.split(m_splits), self.parameters(), strict=True)
            return torch.cat([part @ weight.t() for part, weight in parts])

    package, module = ModuleType("transformer_engine"), ModuleType("transformer_engine.pytorch")
    module.GroupedLinear = GroupedLinear
    monkeypatch.setitem(sys.modules, "transformer_engine", package)
    monkeypatch.setitem(sys.modules, "transformer_engine.pytorch", module)
    monkeypatch.setattr(TEGrouped, "unsupported", classmethod(lambda *_: None))


@pytest.mark.usefixtures("_transformer_engine")
def test_transformer_engine_gets_our_weights_and_gives_their_gradients():
    """Through a stand-in the layer and its gradients are the reference's, up to rounding."""
    check = measured(expert_kind="te-grouped").prepare(None)
    assert max(check.correctness["error_against_one_process"].values()) < 1e-6
