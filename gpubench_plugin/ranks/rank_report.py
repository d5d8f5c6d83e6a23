"""Report of one rank on one benchmark, about 100 KB of JSON at most.

Samples are condensed by position, never by value, so that ranks that ran the same calls keep the
same ones. Imports no torch.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import fsum
from statistics import median
from typing import Final, Self, TypeVar

from gpubench_plugin.core.quality_flags import CONDENSED
from gpubench_plugin.core.records import Json, RankTimes, Samples, Work, has_quantile

T = TypeVar("T", int, float)

# Kept of each series.
DURATIONS: Final = 4096
BLOCKS: Final = 512
WARMUPS: Final = 256

_FRACTIONS: Final = (0.05, 0.95, 0.99)


@dataclass(frozen=True, kw_only=True)
class RankReport:
    """A rank's time statistics, condensed samples, work and facts.

    `machine` has facts by dot key: those of the ``rank``, and from the first one of each host, if
    there are several, those of the ``host``.
    """

    times: RankTimes
    samples: Samples
    work: Work
    facts: Mapping[str, float]
    machine: Mapping[str, Json] = field(default_factory=dict)

    @classmethod
    def of(
        cls, samples: Samples, work: Work, facts: Mapping[str, float], *, rank: int, host: str
    ) -> Self:
        """Build the report of `rank` on `host`."""
        times = _times(samples, rank, host)
        return cls(times=times, samples=condense(samples), work=work, facts=facts)


def condense(samples: Samples) -> Samples:
    """Shrink `samples` to the size limits, flagged ``condensed`` if data was dropped.

    Too many durations become the medians of their rounds, which then stand for all calls of a
    round; if still too many, an even subsample. Neighbouring blocks, and groups of the warm-up, are
    merged and keep their totals; no metric uses the groups of the warm-up, so they set no flag. A
    sample of durations is dropped, since it has no maximum over ranks: the medians of rounds stand
    for the durations.
    """
    reduced = replace(
        _subsampled(samples),
        block_s=tuple(map(fsum, _groups(samples.block_s, BLOCKS))),
        block_calls=tuple(map(sum, _groups(samples.block_calls, BLOCKS))),
        warmup_s=tuple(map(fsum, _groups(samples.warmup_s, WARMUPS))),
        sample_s=(),
    )
    time_series = (reduced.durations_s, reduced.block_s)
    if not samples.sample_s and time_series == (samples.durations_s, samples.block_s):
        return reduced
    return reduced.flagged(CONDENSED)


def _subsampled(samples: Samples) -> Samples:
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
    count = len(samples.durations_s)
    kept = min(count, DURATIONS)
    durations_s = tuple(samples.durations_s[at * count // kept] for at in range(kept))
    return replace(samples, durations_s=durations_s, reduced_from=samples.timing)


def _groups(values: Sequence[T], limit: int) -> Iterator[Sequence[T]]:
    """Split `values` into at most `limit` groups of nearly equal size."""
    count, groups = len(values), min(len(values), limit)
    for at in range(groups):
        yield values[at * count // groups : (at + 1) * count // groups]


def _times(samples: Samples, rank: int, host: str) -> RankTimes:
    import numpy as np

    durations_s = sorted(samples.spread_s)
    if not durations_s or not math.isfinite(sum(durations_s)):
        durations_s = [math.nan]  # NaN has no order, so no quantiles
    rounds = samples.rounds_s if math.isfinite(durations_s[0]) else ()
    count = samples.timing.durations
    p5_s, p95_s, p99_s = (
        value if has_quantile(count, fraction) else None
        for value, fraction in zip(
            np.quantile(durations_s, _FRACTIONS).tolist(), _FRACTIONS, strict=True
        )
    )
    return RankTimes(
        rank=rank,
        host=host,
        count=count,
        min_s=durations_s[0],
        p5_s=p5_s,
        median_s=median(rounds or durations_s),
        p95_s=p95_s,
        p99_s=p99_s,
        max_s=durations_s[-1],
        total_s=math.fsum(samples.block_s),
    )
