"""What all ranks saw, reduced to one: a step is over when the slowest rank is."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING

from gpubench_plugin.errors import MeasurementError
from gpubench_plugin.records import Samples, Work

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


def over_ranks(samples: Sequence[Samples]) -> Samples:
    """The maximum over the ranks of every time, one by one, and the flags of all.

    The ranks ran the same calls, so that the n-th duration of one belongs to the n-th of another.

    Raises:
        MeasurementError: the ranks did not run or time the same calls.
    """
    first = samples[0]
    for rank, other in enumerate(samples[1:], start=1):
        _check_same_calls(first, other, rank)
    return Samples(
        timer=first.timer,
        durations_s=_slowest(rank.durations_s for rank in samples),
        calls_per_duration=first.calls_per_duration,
        durations_per_round=first.durations_per_round,
        block_s=_slowest(rank.block_s for rank in samples),
        block_calls=first.block_calls,
        first_step_s=max(rank.first_step_s for rank in samples),
        warmup_s=_slowest(rank.warmup_s for rank in samples),
        warmup_calls=first.warmup_calls,
        flags=tuple(dict.fromkeys(flag for rank in samples for flag in rank.flags)),
    )


def _slowest(ranks: Iterable[Sequence[float]]) -> tuple[float, ...]:
    return tuple(max(times) for times in zip(*ranks, strict=True))


def _check_same_calls(first: Samples, other: Samples, rank: int) -> None:
    for what, of_first, of_other in zip(_CALLS, _calls(first), _calls(other), strict=True):
        if of_first != of_other:
            raise MeasurementError(
                f"the ranks differ in {what}: rank 0 has {of_first}, rank {rank} has {of_other}"
            )


_CALLS = (
    "the timer",
    "calls per duration",
    "durations per round",
    "the number of durations",
    "the number of blocks",
    "calls per block",
    "the number of warm-up durations",
    "calls of the warm-up",
)


def _calls(samples: Samples) -> tuple[object, ...]:
    """What must be equal on all ranks, in the order of `_CALLS`."""
    return (
        samples.timer,
        samples.calls_per_duration,
        samples.durations_per_round,
        len(samples.durations_s),
        len(samples.block_s),
        samples.block_calls,
        len(samples.warmup_s),
        samples.warmup_calls,
    )


def summed_work(ranks: Sequence[Work]) -> Work:
    """The work of one call on all ranks; an amount that a rank does not know is left out."""
    amounts = _by_key([asdict(rank) for rank in ranks])
    return Work(**{key: math.fsum(values) for key, values in amounts.items()})


def worst_facts(ranks: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The largest of each fact; a loss is the mean of the ranks', as the global batch's is."""
    return {
        key: math.fsum(values) / len(values) if key.startswith("loss_") else max(values)
        for key, values in _by_key(ranks).items()
    }


def _by_key(ranks: Sequence[Mapping[str, float | None]]) -> dict[str, list[float]]:
    """The values of each key that every rank has."""
    told = {key: [rank.get(key) for rank in ranks] for key in ranks[0]}
    return {
        key: [value for value in values if value is not None]
        for key, values in told.items()
        if None not in values
    }
