"""The mixture-of-experts layer on ranks, against one process with all tokens and all experts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    Run = Callable[..., list[Any]]

pytestmark = pytest.mark.followed

EXACT = ("output", "dX", "dW_in", "dW_out")
PHASES = 8
"""The router and the seven phases that follow it."""


def test_two_ranks_that_share_experts_are_one_process(torchrun: Run) -> None:
    """Output, dX and dW are exact, the router's gradient to 2e-6, however tokens travel.

    So for both dispatchers, both kinds of experts, fp32 and bf16, with dropping, with one token per
    rank, and with experts on other ranks. Ranks with the same weights or parts of them are near.
    A wrong expert on rank one is noticed by both ranks; what rank one alone notices lets rank zero
    go on without it.
    """
    ranks = torchrun("moe.py", 2)
    for rank, found in enumerate(ranks):
        alone = found.pop("wrong on rank one")
        assert alone.startswith("the layer's dX") if rank else alone == ""
        assert "differs from a single process" in found.pop("wrong expert")
        assert found.pop("right again") == ""
        near = {name: found.pop(name) for name in ("data", "tensor")}
        assert len(found) == 32
        for case, told in found.items():
            errors = told["error_against_one_process"]
            assert {name: errors[name] for name in EXACT} == dict.fromkeys(EXACT, 0.0), case
            assert errors["dRouter"] <= 2e-6, case
            own = range(8)[4 * rank : 4 * rank + 4]
            if case.endswith("sorted"):
                own = range(8)[::-1][4 * rank : 4 * rank + 4]
            assert told["experts_of_rank"] == list(own)
            assert len(told["phases"]) == PHASES
            assert (told.get("dropped_fraction", 0) > 0) == case.endswith("dropping")
        for told in near.values():
            assert max(told["error_against_one_process"].values()) <= 2e-6
        assert (near["data"]["tokens"], near["tensor"]["tokens"]) == (32, 16)
    loads = [found["all-to-all grouped fp32 all"]["expert_load"] for found in ranks]
    assert sum(loads) == len(ranks)


@pytest.mark.exhaustive
def test_four_ranks_mix_data_expert_and_tensor_parallelism(torchrun: Run) -> None:
    """Groups of their own within four ranks: still one process with all tokens, to 2e-6."""
    for found in torchrun("moe.py", 4):
        del found["wrong on rank one"]
        assert "differs from a single process" in found.pop("wrong expert")
        assert found.pop("right again") == ""
        assert set(found) == {"data", "tensor", "data expert", "tensor expert"}
        for case, told in found.items():
            assert max(told["error_against_one_process"].values()) <= 2e-6, case
