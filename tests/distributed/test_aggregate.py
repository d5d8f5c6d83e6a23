"""The samples of several ranks as one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpubench_plugin.distributed.aggregate import over_ranks, summed_work, worst_facts
from gpubench_plugin.errors import MeasurementError
from gpubench_plugin.records import Samples, Work

FAST = Samples(
    timer="cpu",
    durations_s=(1.0, 5.0, 2.0, 2.0),
    durations_per_round=2,
    block_s=(6.5, 4.5),
    block_calls=(2, 2),
    first_step_s=9.0,
    warmup_s=(3.0, 1.0),
    warmup_calls=2,
    flags=("unsteady",),
)
SLOW = replace(
    FAST,
    durations_s=(2.0, 4.0, 3.0, 1.0),
    block_s=(6.0, 5.0),
    first_step_s=10.0,
    warmup_s=(2.0, 2.0),
    flags=("throttled", "unsteady"),
)


def test_every_time_is_the_slowest_ranks() -> None:
    """Each duration, block and warm-up sample is the maximum of its own; flags are united."""
    expected = replace(
        FAST,
        durations_s=(2.0, 5.0, 3.0, 2.0),
        block_s=(6.5, 5.0),
        first_step_s=10.0,
        warmup_s=(3.0, 2.0),
        flags=("unsteady", "throttled"),
    )
    assert expected == over_ranks([FAST, SLOW])


def test_one_rank_is_itself() -> None:
    """Nothing changes in a world of one."""
    assert over_ranks([FAST]) == FAST


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"durations_s": (1.0,) * 6}, "number of durations: rank 0 has 4, rank 2 has 6"),
        ({"block_s": (1.0,)}, "number of blocks: rank 0 has 2, rank 2 has 1"),
        ({"block_calls": (2, 3)}, r"calls per block: rank 0 has \(2, 2\), rank 2 has \(2, 3\)"),
        ({"warmup_s": ()}, "number of warm-up durations: rank 0 has 2, rank 2 has 0"),
        ({"warmup_calls": 7}, "calls of the warm-up: rank 0 has 2, rank 2 has 7"),
        ({"calls_per_duration": 10}, "calls per duration: rank 0 has 1, rank 2 has 10"),
        ({"durations_per_round": 1}, "durations per round: rank 0 has 2, rank 2 has 1"),
        ({"timer": "cuda"}, "the timer: rank 0 has cpu, rank 2 has cuda"),
    ],
)
def test_ranks_that_ran_different_calls_are_refused(change: dict[str, Any], message: str) -> None:
    """Times of different calls have no common maximum: the rank and the difference are named."""
    with pytest.raises(MeasurementError, match=message):
        over_ranks([FAST, SLOW, replace(SLOW, **change)])


def test_work_is_summed_where_every_rank_knows_it() -> None:
    """Samples of all ranks add up; tokens that one rank does not know are left out."""
    ranks = [Work(samples=8, tokens=64), Work(samples=4)]
    assert summed_work(ranks) == Work(samples=12)


def test_facts_are_the_worst_ranks_and_losses_the_mean() -> None:
    """Memory is the most any rank held; the global batch's loss is the mean of the ranks'."""
    ranks = [
        {"peak_memory_bytes": 3.0, "loss_last": 1.0},
        {"peak_memory_bytes": 5.0, "loss_last": 2.0},
    ]
    assert worst_facts(ranks) == {"peak_memory_bytes": 5.0, "loss_last": 1.5}
