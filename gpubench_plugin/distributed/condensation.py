"""Samples reduced to what a rank may send, so that those of all ranks still belong together.

What is kept is chosen by position alone, never by value: ranks that ran the same calls keep the
same ones. Imports no torch.
"""

from __future__ import annotations

from dataclasses import replace
from math import fsum
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpubench_plugin.records import Samples

    T = TypeVar("T", int, float)

DURATIONS: Final = 4096
BLOCKS: Final = 512
WARMUPS: Final = 256
"""The most that is kept of each; as text of 8-byte numbers, 56 KiB in all."""

CONDENSED: Final = "condensed"
"""The flag of what was reduced."""


def condensed(samples: Samples) -> Samples:
    """`samples` within the limits; flagged ``condensed`` where they were not.

    Too many durations become the medians of their rounds, each of which then stands for all calls
    of its round; still too many are thinned out evenly. Neighbouring blocks, and groups of the
    warm-up, are merged: their seconds and calls add up to what they were. The warm-up alone is
    worth no flag: no metric looks at its groups. A sketch is left out, since of several no maximum
    can be taken value by value: the medians of rounds beside it stand for the durations.
    """
    whole = samples
    samples = replace(samples, sketch=None)
    kept = _with_blocks_merged(_with_fewer_durations(samples))
    if len(samples.warmup_s) > WARMUPS:
        kept = replace(kept, warmup_s=tuple(map(fsum, _merged(samples.warmup_s, WARMUPS))))
    timed = (kept.durations_s, kept.block_s)
    if whole.sketch is None and timed == (samples.durations_s, samples.block_s):
        return kept
    return kept.flagged(CONDENSED)


def _with_fewer_durations(samples: Samples) -> Samples:
    if len(samples.durations_s) <= DURATIONS:
        return samples
    if samples.durations_per_round > 1 and samples.rounds_s:
        samples = replace(
            samples,
            durations_s=samples.rounds_s,
            calls_per_duration=samples.calls_per_duration * samples.durations_per_round,
            durations_per_round=1,
            reduced_from=samples.timing,
        )
    return replace(
        samples,
        durations_s=_thinned(samples.durations_s, DURATIONS),
        reduced_from=samples.timing,
    )


def _with_blocks_merged(samples: Samples) -> Samples:
    return replace(
        samples,
        block_s=tuple(map(fsum, _merged(samples.block_s, BLOCKS))),
        block_calls=tuple(map(sum, _merged(samples.block_calls, BLOCKS))),
    )


def _thinned(values: Sequence[float], limit: int) -> tuple[float, ...]:
    """At most `limit` of `values`, evenly by position."""
    count = len(values)
    return (
        tuple(values[at * count // limit] for at in range(limit)) if count > limit else (*values,)
    )


def _merged(values: Sequence[T], limit: int) -> Iterator[Sequence[T]]:
    """`values` in order, in at most `limit` groups of nearly equal size."""
    count, groups = len(values), min(len(values), limit)
    for at in range(groups):
        yield values[at * count // groups : (at + 1) * count // groups]
