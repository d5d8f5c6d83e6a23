"""Report of one rank on one benchmark, limited to 64 KiB.

In JSON its series of numbers are base64 of little-endian 8-byte values, exact to the last bit.
Samples are condensed by position, never by value, so that ranks that ran the same calls keep the
same ones. Imports no torch.
"""

from __future__ import annotations

import json
import math
import struct
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import fsum
from statistics import median
from typing import Any, Final, NamedTuple, TypeVar

from gpubench_plugin.core.quality_flags import CONDENSED
from gpubench_plugin.core.records import Json, RankTimes, Samples, Work, has_quantile
from gpubench_plugin.environment import stored

T = TypeVar("T", int, float)

DURATIONS: Final = 4096
BLOCKS: Final = 512
WARMUPS: Final = 256
"""Kept of each; base64 of 8-byte numbers, with calls per block 56 KiB in all."""


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


LIMIT_BYTES: Final = 64 * 1024
"""The JSON text of any report is smaller; 1,000 ranks send 64 MiB at most."""

_PACKED: Final = {"durations_s": "d", "block_s": "d", "block_calls": "q", "warmup_s": "d"}
"""The series of `Samples`, and their types as :mod:`struct` has them."""

# With 56 KiB of samples these leave 2 KiB for the rest.
_FLAGS_BYTES: Final = 2048
_FACTS_BYTES: Final = 4096
_MAX_FLAG_CHARS: Final = 100
_MAX_HOST_CHARS: Final = 64  # HOST_NAME_MAX of Linux

_FRACTIONS: Final = (0.05, 0.95, 0.99)


class CallCounts(NamedTuple):
    """Call counts of a rank before condensing, which must be equal on all ranks."""

    timer: str
    calls_per_duration: int
    durations_per_round: int
    durations: int
    blocks: int
    warmup_durations: int
    warmup_calls: int

    @classmethod
    def of(cls, samples: Samples) -> CallCounts:
        """Counts of `samples`."""
        return cls(
            timer=samples.timer,
            calls_per_duration=samples.timing.calls_per_duration,
            durations_per_round=samples.timing.durations_per_round,
            durations=samples.timing.durations,
            blocks=len(samples.block_s),
            warmup_durations=len(samples.warmup_s),
            warmup_calls=samples.warmup_calls,
        )


@dataclass(frozen=True, kw_only=True)
class RankReport:
    """A rank's time statistics, call counts, condensed samples, work and facts."""

    times: RankTimes
    calls: CallCounts
    samples: Samples
    work: Work
    facts: Mapping[str, float]

    @classmethod
    def of(
        cls, samples: Samples, work: Work, facts: Mapping[str, float], *, rank: int, host: str
    ) -> RankReport:
        """Build the report of `rank` on `host`.

        Flags and facts beyond their limits are dropped, and long flags cut; then, too, samples are
        flagged ``condensed``.
        """
        flags = tuple(
            _within_limit((flag[:_MAX_FLAG_CHARS] for flag in samples.flags), _FLAGS_BYTES)
        )
        fitting_facts = dict(_within_limit(facts.items(), _FACTS_BYTES))
        condensed_samples = condense(replace(samples, flags=flags))
        is_complete = (flags, fitting_facts) == (samples.flags, facts)
        return cls(
            times=_times(samples, rank, host[:_MAX_HOST_CHARS]),
            calls=CallCounts.of(samples),
            samples=condensed_samples if is_complete else condensed_samples.flagged(CONDENSED),
            work=work,
            facts=fitting_facts,
        )

    def to_json(self) -> Json:
        """Serialize to JSON values."""
        return {
            "times": asdict(self.times),
            "calls": list(self.calls),
            "samples": _packed(self.samples),
            "work": asdict(self.work),
            "facts": dict(self.facts),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> RankReport:
        """Deserialize the output of :meth:`to_json`."""
        return cls(
            times=RankTimes(**data["times"]),
            calls=CallCounts(*data["calls"]),
            samples=_unpacked(data["samples"]),
            work=Work(**data["work"]),
            facts=data["facts"],
        )


def _within_limit(items: Iterable[Any], limit: int) -> Iterator[Any]:
    """Leading `items` that fit into `limit` bytes of JSON."""
    size = 0
    for part in items:
        size += len(json.dumps(part)) + 2
        if size > limit:
            return
        yield part


def _times(samples: Samples, rank: int, host: str) -> RankTimes:
    sorted_durations = sorted(samples.spread_s)
    if not sorted_durations or not math.isfinite(sum(sorted_durations)):
        sorted_durations = [math.nan]  # NaN has no order, so no quantiles
    rounds = samples.rounds_s if math.isfinite(sorted_durations[0]) else ()
    p5_s, p95_s, p99_s = _quantiles(sorted_durations, samples.timing.durations)
    return RankTimes(
        rank=rank,
        host=host,
        count=samples.timing.durations,
        min_s=sorted_durations[0],
        p5_s=p5_s,
        median_s=median(rounds or sorted_durations),
        p95_s=p95_s,
        p99_s=p99_s,
        max_s=sorted_durations[-1],
        total_s=math.fsum(samples.block_s),
    )


def _quantiles(sorted_durations: Sequence[float], count: int) -> list[float | None]:
    import numpy as np

    quantiles = np.quantile(sorted_durations, _FRACTIONS).tolist()
    return [
        value if has_quantile(count, fraction) else None
        for value, fraction in zip(quantiles, _FRACTIONS, strict=True)
    ]


def _packed(samples: Samples) -> Json:
    fields = {name: value for name, value in asdict(samples).items() if name not in _PACKED}
    for name, kind in _PACKED.items():
        values = getattr(samples, name)
        fields[name] = b64encode(struct.pack(f"<{len(values)}{kind}", *values)).decode("ascii")
    return fields


def _unpacked(data: Mapping[str, Any]) -> Samples:
    fields = dict(data)
    for name, kind in _PACKED.items():
        encoded = b64decode(data[name])
        fields[name] = struct.unpack(f"<{len(encoded) // 8}{kind}", encoded)
    return stored.restore(Samples, fields, "the samples of a rank")
