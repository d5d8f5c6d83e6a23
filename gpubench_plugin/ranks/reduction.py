"""Reduction over ranks: merge their reports, and propagate a failure to all.

A step ends when the slowest rank does. A report is about 100 KB of JSON at most: samples are
condensed by position, never by value, so that ranks that ran the same calls keep the same ones.
Reports are merged one at a time, so that memory holds one rank's samples and a row of numbers per
rank. Imports no torch.
"""

from __future__ import annotations

import math
import socket
from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from reprlib import repr as shortened
from statistics import median
from typing import TYPE_CHECKING, Final, Self, TypeVar

from gpubench_plugin.core.errors import (
    CorrectnessError,
    LostMessage,
    MeasurementError,
    Misuse,
    UsageProblem,
    error_text,
)
from gpubench_plugin.core.format import listed
from gpubench_plugin.core.quality_flags import CONDENSED
from gpubench_plugin.core.records import Json, Observation, RankTimes, Samples, Work, has_quantile
from gpubench_plugin.environment.fingerprints import ABSENT, differences
from gpubench_plugin.environment.system_facts import host_machine
from gpubench_plugin.system import stored

if TYPE_CHECKING:
    from gpubench_plugin.ranks.process_group import ProcessGroup
    from gpubench_plugin.ranks.ranks import Alone

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
        block_s=tuple(map(math.fsum, _groups(samples.block_s, BLOCKS))),
        block_calls=tuple(map(sum, _groups(samples.block_calls, BLOCKS))),
        warmup_s=tuple(map(math.fsum, _groups(samples.warmup_s, WARMUPS))),
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

    durations_s = sorted(samples.spread_s)  # finite: the recording refuses others
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
        median_s=median(samples.rounds_s or durations_s),
        p95_s=p95_s,
        p99_s=p99_s,
        max_s=durations_s[-1],
        total_s=math.fsum(samples.block_s),
    )


_MEANS: Final = ("loss_", "phase_")
_SUMS: Final = ("energy_j",)
_MINIMA: Final = ("sm_clock_", "memory_clock_")
"""Prefixes of facts of which the mean, the sum and the minimum is taken over ranks; of others it is
the maximum.

So a loss is that of the global batch. Maxima of phases would count the time in which a fast rank
waits for a slow one twice: as the slow one's work, and in the phase in which the fast one waits.
"""

_NONE: Final = "none"
"""Value of a machine fact that rank zero has and another rank has not."""


class RankAggregate:
    """Combines the reports of all ranks, in rank order.

    The ranks ran the same calls, so that the n-th duration of one belongs to the n-th of another.
    """

    def __init__(self) -> None:
        self.error = ""
        """Why the reports cannot be merged; empty if they can."""
        self._ranks: list[RankTimes] = []
        self._machine: Json = {}
        """Facts by dot key in which a rank differs from the first, with its host."""
        self._first: RankReport | None = None
        self._longest: Samples | None = None
        # Values of all ranks, 8 bytes each.
        self._work: defaultdict[str, array[float]] = defaultdict(lambda: array("d"))
        self._facts: defaultdict[str, array[float]] = defaultdict(lambda: array("d"))

    def add(self, report: RankReport) -> None:
        """Add the report of one rank."""
        self._ranks.append(report.times)
        for name, amount in report.work.known_amounts.items():
            self._work[name].append(amount)
        for name, fact in report.facts.items():
            self._facts[name].append(fact)
        if self._first is None or self._longest is None:
            self._first, self._longest = report, report.samples
            return
        for part, facts in report.machine.items():
            changes = differences(self._first.machine.get(part, {}), facts)
            for key, (_, fact) in changes.items():
                self._machine[f"hosts.{report.times.host}.{key}"] = (
                    _NONE if fact is ABSENT else fact
                )
        self.error = self.error or _difference(self._first, report)
        if not self.error:
            self._longest = _longest(self._longest, report.samples)

    def merged(self, own: Observation) -> Observation:
        """Rank zero's `own` observation with the numbers of all ranks.

        Times are the element-wise maximum, flags are united, and work is summed. Amounts and facts
        that are unknown on any rank are omitted; a fact is combined as its name demands.

        Raises:
            MeasurementError: the ranks ran or timed different calls.
        """
        if self._longest is None or self.error:
            raise MeasurementError(self.error)
        work = {name: math.fsum(values) for name, values in self._complete(self._work)}
        return replace(
            own,
            samples=self._longest,
            ranks=tuple(self._ranks),
            work=Work(**work),
            facts={name: _combined(name, values) for name, values in self._complete(self._facts)},
            machine={**own.machine, **self._machine},
            world_size=len(self._ranks),
        )

    def _complete(self, columns: Mapping[str, array[float]]) -> list[tuple[str, array[float]]]:
        """Columns in which every rank has a value."""
        return [(name, c) for name, c in columns.items() if len(c) == len(self._ranks)]


def _combined(name: str, values: Sequence[float]) -> float:
    if name.startswith(_MEANS):
        return math.fsum(values) / len(values)
    if name.startswith(_SUMS):
        return math.fsum(values)
    return min(values) if name.startswith(_MINIMA) else max(values)


def _longest(first: Samples, second: Samples) -> Samples:
    firsts_s = first.first_step_s, second.first_step_s
    return replace(
        first.flagged(*second.flags),
        durations_s=_maxima(first.durations_s, second.durations_s),
        block_s=_maxima(first.block_s, second.block_s),
        first_step_s=max((s for s in firsts_s if s is not None), default=None),
        warmup_s=_maxima(first.warmup_s, second.warmup_s),
    )


def _maxima(first: Sequence[float], second: Sequence[float]) -> tuple[float, ...]:
    # Four times as fast as max() per pair, of which there are ranks × samples.
    return tuple([a if a > b else b for a, b in zip(first, second, strict=True)])


def _difference(first_report: RankReport, other_report: RankReport) -> str:
    """Describe how the calls that two ranks ran and timed differ; empty if they do not."""
    first_counts, other_counts = _counts(first_report.samples), _counts(other_report.samples)
    for label, first_count in first_counts.items():
        if first_count != (other_count := other_counts[label]):
            first, other = first_report.times.rank, other_report.times.rank
            return (
                f"the ranks differ in {label}: rank {first} has {shortened(first_count)}, "
                f"rank {other} has {shortened(other_count)}"
            )
    return ""


def _counts(samples: Samples) -> dict[str, object]:
    """What must be equal on all ranks, of condensed samples as of complete ones."""
    return {
        "the timer": samples.timer,
        "calls per duration": samples.timing.calls_per_duration,
        "durations per round": samples.timing.durations_per_round,
        "the number of durations": samples.timing.durations,
        "the number of blocks": len(samples.block_s),
        "the number of warm-up durations": len(samples.warmup_s),
        "calls of the warm-up": samples.warmup_calls,
        "calls per block": samples.block_calls,
    }


_MAX_REASON_CHARS: Final = 2000
_REASONS_SHOWN: Final = 4
"""Together 8 KB, which every rank reads."""


class Reduction:
    """Reduces the results of one `benchmark` over `group`; every rank must call each method.

    A rank whose check failed waits for the others no longer than `grace_s`: one of them may wait
    for it in a collective of the check. A single rank sends nothing.
    """

    def __init__(
        self, group: ProcessGroup | Alone, benchmark: str, *, grace_s: float | None = None
    ):
        self._world = group.world
        self._control = group.control
        self._benchmark = benchmark
        self._grace_s = grace_s
        self._is_single_rank = group.world.size == 1

    def raise_check_failures(self, failure: BaseException | None) -> None:
        """Wait until every rank has passed its check; `failure` is this rank's.

        A rank that has lost a message does not wait: the others may never answer.

        Raises:
            BaseException: `failure`, even if the others cannot be reached.
            CorrectnessError: the check failed on another rank.
            UsageProblem: every rank on which it failed is misconfigured.
        """
        if isinstance(failure, LostMessage):
            raise failure
        failures, are_misconfigured = "", False
        try:
            if not self._is_single_rank:
                failures, are_misconfigured = self._failures(failure)
        except MeasurementError:
            if failure is None:
                raise
        if failure is not None:
            raise failure
        if are_misconfigured:
            raise UsageProblem(failures)
        if failures:
            raise CorrectnessError(f"the check failed on another rank: {failures}")

    def merge_all(self, own: Sequence[Observation]) -> list[Observation]:
        """Merged observations of one measurement on rank zero; `own` elsewhere, or of one rank.

        Raises:
            MeasurementError: the ranks ran different calls, or are out of step.
        """
        if self._is_single_rank:
            return list(own)
        # All are collected before any is refused, so that the ranks stay in step.
        aggregates = [self._aggregate(observation) for observation in own]
        if not self._world.is_root:
            return list(own)
        return [a.merged(observation) for a, observation in zip(aggregates, own, strict=True)]

    def _aggregate(self, own: Observation) -> RankAggregate:
        """The reports of all ranks; of none but on rank zero."""
        report = RankReport.of(
            own.samples, own.work, own.facts, rank=self._world.rank, host=socket.gethostname()
        )
        record = stored.dump(replace(report, machine=self._machine(own)))
        aggregate = RankAggregate()
        for data in self._control.collect(f"samples {self._benchmark}", record):
            aggregate.add(stored.restore(RankReport, data, "the report of a rank"))
        return aggregate

    def _machine(self, own: Observation) -> dict[str, Json]:
        """Facts of this rank, and of its host if that is one of several, from the first rank there.

        Variables count as the host's: launchers may bind each rank of a host to cores of its own.
        """
        threads = {key: fact for key, fact in own.machine.items() if key.startswith("torch.")}
        rank = {**threads, "device": own.device_name}
        if self._world.local_size == self._world.size or self._world.local_rank:
            return {"rank": rank}
        return {"rank": rank, "host": {**host_machine(), **own.machine}}

    def raise_conclusion(self, failure: Exception | None) -> None:
        """Wait until rank zero has accepted the numbers; `failure` is this rank's.

        Raises:
            Exception: `failure`.
            MeasurementError: rank zero has rejected them.
        """
        problem = ""
        if not self._is_single_rank:
            own_problem = "" if failure is None else error_text(failure)[:_MAX_REASON_CHARS]
            verdict = self._control.publish(f"result {self._benchmark}", {"problem": own_problem})
            problem = verdict["problem"]
        if failure is not None:
            raise failure
        if problem:
            raise MeasurementError(problem)

    def _failures(self, failure: BaseException | None) -> tuple[str, bool]:
        """Failures of all ranks, limited in number, and whether all are of the configuration."""
        tag, rank = f"check {self._benchmark}", self._world.rank
        own_text, timeout_s = "", None
        if failure is not None:
            own_text = f"rank {rank}: {error_text(failure)}"[:_MAX_REASON_CHARS]
            timeout_s = self._grace_s
        is_own = isinstance(failure, UsageProblem) and not isinstance(failure, Misuse)
        own_report = {"failure": own_text, "misconfigured": is_own}
        reports = self._control.collect(tag, own_report, timeout_s=timeout_s)
        failures = [report for report in reports if report["failure"]]
        joint_report = {
            "failure": listed([r["failure"] for r in failures], _REASONS_SHOWN, separator="; "),
            "misconfigured": bool(failures) and all(r["misconfigured"] for r in failures),
        }
        published = self._control.publish(tag, joint_report, timeout_s=timeout_s)
        return published["failure"], published["misconfigured"]
