"""Which denoising steps a rank takes."""

from __future__ import annotations

import pytest

from gpubench_plugin.core.errors import Unsupported, UsageProblem
from gpubench_plugin.workloads.diffusion.schedulers import REMAINDERS, steps_of


def assigned(total: int, world_size: int, remainder: str = "refuse", together: int = 1):
    return [
        steps_of(
            rank,
            world_size=world_size,
            total=total,
            remainder=remainder,
            evaluations_per_step=together,
        )
        for rank in range(world_size)
    ]


def test_ranks_take_equal_shares_in_their_order() -> None:
    """A rank starts at rank * (total // world) and ends where the next one starts."""
    assert assigned(8, 4) == [range(2), range(2, 4), range(4, 6), range(6, 8)]


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
    assert assigned(8, 3, remainder) == expected


@pytest.mark.parametrize("remainder", REMAINDERS)
@pytest.mark.parametrize("total", [5, 6, 7, 13])
def test_every_step_is_taken_once(remainder: str, total: int) -> None:
    """Whatever the remainder, the ranks' steps follow each other without a gap."""
    steps = [step for own in assigned(total, 4, remainder) for step in own]
    assert steps == list(range(total))


def test_remainder_is_refused_with_the_numbers_and_the_modes() -> None:
    """Steps that do not divide are not dropped silently."""
    said = (
        r"denoising_steps: 9 steps are not divisible by 4 ranks \(remainder 1\); allowed: a "
        r"multiple of 4, or diffusion\.remainder=first or last or spread"
    )
    with pytest.raises(Unsupported, match=said):
        steps_of(0, world_size=4, total=9)


@pytest.mark.parametrize("remainder", ["refuse", *REMAINDERS])
def test_more_ranks_than_steps_are_refused(remainder: str) -> None:
    """No remainder gives a step to a rank for which there is none."""
    with pytest.raises(Unsupported, match="3 steps are too few for 4 ranks; allowed: at least 4"):
        steps_of(0, world_size=4, total=3, remainder=remainder)


def test_unknown_remainder_is_refused_with_the_nearest() -> None:
    """A typing error is told from a mode."""
    with pytest.raises(UsageProblem, match="unknown 'sprad' \\(did you mean 'spread'\\?\\)"):
        steps_of(0, world_size=2, total=8, remainder="sprad")


def test_step_of_two_evaluations_stays_on_one_rank() -> None:
    """Of 15 evaluations two ranks take 8 and 7, never 7 and 8, which would tear a step apart."""
    assert assigned(15, 2, "first", together=2) == [range(8), range(8, 15)]
    said = r"between ranks 0 and 1, at 7 of 15.* allowed: diffusion\.remainder=first or spread"
    with pytest.raises(Unsupported, match=said):
        assigned(15, 2, "last", together=2)


def test_refusal_offers_only_what_tears_no_step_apart() -> None:
    """Where no remainder fits, other numbers are asked for."""
    with pytest.raises(Unsupported, match=r"remainder=first or spread$"):
        assigned(15, 2, together=2)
    with pytest.raises(Unsupported, match="choose a different number of steps or ranks"):
        assigned(15, 3, together=2)
