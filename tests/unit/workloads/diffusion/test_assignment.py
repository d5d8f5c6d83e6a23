"""Which denoising steps a rank takes."""

from __future__ import annotations

from typing import Any

import pytest

from gpubench_plugin.core.errors import Unsupported
from gpubench_plugin.workloads.diffusion.denoising import REMAINDERS, steps_by_rank


def test_ranks_take_equal_shares_in_their_order() -> None:
    """A rank starts at rank * (total // world) and ends where the next one starts."""
    assert steps_by_rank(4, total=8) == [range(2), range(2, 4), range(4, 6), range(6, 8)]


@pytest.mark.parametrize(
    ("remainder", "expected"),
    [
        ("first", [range(4), range(4, 6), range(6, 8)]),
        ("last", [range(2), range(2, 4), range(4, 8)]),
        ("spread", [range(3), range(3, 6), range(6, 8)]),
    ],
)
def test_remainder_goes_where_it_is_said(remainder: str, expected: list[range]) -> None:
    """Two steps too many are the first rank's, the last one's, or the first two ranks'."""
    assert steps_by_rank(3, total=8, remainder=remainder) == expected


@pytest.mark.parametrize("remainder", REMAINDERS)
@pytest.mark.parametrize("total", [5, 6, 7, 13])
def test_every_step_is_taken_once(remainder: str, total: int) -> None:
    """Whatever the remainder, the ranks' steps follow each other without a gap."""
    steps = [step for own in steps_by_rank(4, total=total, remainder=remainder) for step in own]
    assert steps == list(range(total))


@pytest.mark.parametrize(
    ("ranks", "total", "keys", "said"),
    [
        (4, 9, {}, r"9 steps .* 4 ranks \(remainder 1\).*=first, last, spread"),
        (4, 3, {}, "3 steps are too few for 4 ranks; allowed: at least 4"),
        (4, 3, {"remainder": "spread"}, "3 steps are too few for 4 ranks"),
        # Of 15 evaluations two ranks take 8 and 7, never 7 and 8, which would tear a step apart.
        (2, 15, {"remainder": "last", "evaluations_per_step": 2}, "ranks 0 and 1, at 7 of 15"),
        (2, 15, {"evaluations_per_step": 2}, "15 steps are not divisible by 2 ranks"),
    ],
)
def test_steps_that_cannot_be_shared_are_refused(
    ranks: int, total: int, keys: dict[str, Any], said: str
) -> None:
    """Steps that do not divide are not dropped silently, and a solver's step is not torn apart."""
    with pytest.raises(Unsupported, match=said):
        steps_by_rank(ranks, total=total, **keys)


def test_step_of_two_evaluations_stays_on_one_rank() -> None:
    """Of 15 evaluations, the last of which is alone, the first of two ranks takes 8."""
    steps = steps_by_rank(2, total=15, remainder="first", evaluations_per_step=2)
    assert steps == [range(8), range(8, 15)]
