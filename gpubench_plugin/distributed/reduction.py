"""Reduction over the ranks: many results become one, and a failure of one rank reaches all.

A step is over when the slowest rank is. Reports come one at a time and are let go: what stays is
one rank's samples and a row of numbers for each rank. Imports no torch.
"""

from __future__ import annotations

import math
import socket
from array import array
from dataclasses import asdict, replace
from reprlib import Repr
from typing import TYPE_CHECKING, Final

from gpubench_plugin.distributed.rank_report import RankReport
from gpubench_plugin.environment import listed
from gpubench_plugin.errors import CorrectnessError, MeasurementError, text_of
from gpubench_plugin.records import Observation, RankTimes, Samples, Work

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpubench_plugin.distributed.process_group import ProcessGroup


_MEANS: Final = ("loss_", "phase_")
"""What facts begin with of which the ranks' mean is told.

A loss is then the global batch's. Of phases the longest would count the time twice in which a fast
rank waits for a slow one: as the slow one's work, and in the phase where the fast one waits.
"""

_COMPARED: Final = (
    "the timer",
    "calls per duration",
    "durations per round",
    "the number of durations",
    "the number of blocks",
    "the number of warm-up durations",
    "calls of the warm-up",
    "calls per block",
)
"""The words for the fields of `Calls` and for the calls of each block."""


_Columns = dict[str, "array[float]"]
"""The values that the ranks have under each name, 8 bytes each."""


class Aggregate:
    """The reports of the ranks of one benchmark as one, in whatever order they come.

    The ranks ran the same calls, so that the n-th duration of one belongs to the n-th of another.
    """

    def __init__(self) -> None:
        self.problem = ""
        """What keeps the reports from being one, or nothing."""
        self._first: RankReport | None = None
        self._longest: Samples | None = None
        self._ranks: list[RankTimes] = []
        self._work: _Columns = {}
        self._facts: _Columns = {}
        self._flags: dict[str, tuple[int, int]] = {}

    def add(self, report: RankReport) -> None:
        """Take in what one rank tells."""
        rank = report.times.rank
        self._ranks.append(report.times)
        _append(self._work, asdict(report.work))
        _append(self._facts, report.facts)
        for place, flag in enumerate(report.samples.flags):
            self._flags[flag] = min((rank, place), self._flags.get(flag, (rank, place)))
        if self._first is None or self._longest is None:
            self._first, self._longest = report, report.samples
        elif difference := _difference(self._first, report):
            self.problem = self.problem or difference
        elif not self.problem:
            self._longest = _longest(self._longest, report.samples)

    @property
    def samples(self) -> Samples:
        """The maximum over the ranks of every time, one by one, and the flags of all.

        Raises:
            MeasurementError: the ranks did not run or time the same calls, or there are none.
        """
        if self._longest is None:
            raise MeasurementError("no rank has told anything")
        if self.problem:
            raise MeasurementError(self.problem)
        return replace(self._longest, flags=tuple(sorted(self._flags, key=self._flags.__getitem__)))

    @property
    def work(self) -> Work:
        """The work of one call on all ranks; an amount that a rank does not know is left out."""
        return Work(**{name: math.fsum(values) for name, values in self._of_all(self._work)})

    @property
    def facts(self) -> dict[str, float]:
        """The largest of each fact that every rank has; of losses and phases the mean."""
        return {
            name: math.fsum(values) / len(values) if name.startswith(_MEANS) else max(values)
            for name, values in self._of_all(self._facts)
        }

    @property
    def ranks(self) -> tuple[RankTimes, ...]:
        """A row for each rank, in their order."""
        return tuple(sorted(self._ranks, key=lambda times: times.rank))

    def _of_all(self, columns: _Columns) -> list[tuple[str, array[float]]]:
        """The columns in which every rank has a value."""
        return [(n, column) for n, column in columns.items() if len(column) == len(self._ranks)]


def _append(columns: _Columns, row: Mapping[str, float | None]) -> None:
    for name, value in row.items():
        if value is not None:
            columns.setdefault(name, array("d")).append(value)


def _longest(one: Samples, other: Samples) -> Samples:
    firsts_s = one.first_step_s, other.first_step_s
    return replace(
        one,
        durations_s=_maxima(one.durations_s, other.durations_s),
        block_s=_maxima(one.block_s, other.block_s),
        first_step_s=max((s for s in firsts_s if s is not None), default=None),
        warmup_s=_maxima(one.warmup_s, other.warmup_s),
    )


def _maxima(ones: Sequence[float], others: Sequence[float]) -> tuple[float, ...]:
    # Four times as fast as a call of max() for each pair, and there are ranks × samples of them.
    return tuple([a if a > b else b for a, b in zip(ones, others, strict=True)])


def _difference(first: RankReport, other: RankReport) -> str:
    """How the calls of two ranks differ, or nothing."""
    ones = (*first.calls, first.samples.block_calls)
    others = (*other.calls, other.samples.block_calls)
    for what, of_first, of_other in zip(_COMPARED, ones, others, strict=True):
        if of_first != of_other:
            return (
                f"the ranks differ in {what}: rank {first.times.rank} has "
                f"{_shown(of_first)}, rank {other.times.rank} has {_shown(of_other)}"
            )
    return ""


def _shown(value: object) -> str:
    """`value` as text, of a long tuple the beginning."""
    return Repr().repr(value) if isinstance(value, tuple) else str(value)


# What one rank says of a failure to all others, and how many of them.
_LONGEST_REASON: Final = 2000
_REASONS: Final = 4


class Reduction:
    """The ranks of `group` bring the results of one `benchmark` together; all call the same.

    In a world of one nothing is sent. A rank whose check failed waits for the others no longer
    than `grace_s`: one may be in a collective of the check, and wait for this one there.
    """

    def __init__(self, group: ProcessGroup, benchmark: str, *, grace_s: float | None = None):
        self._world = group.world
        self._control = group.control
        self._benchmark = benchmark
        self._grace_s = grace_s
        self._alone = group.world.size == 1

    def checked(self, failure: BaseException | None) -> None:
        """Return once every rank has passed its check; `failure` is this rank's.

        Raises:
            BaseException: `failure`, also where the others cannot be told.
            CorrectnessError: the check failed on another rank.
        """
        try:
            failed = "" if self._alone else self._failures(failure)
        except MeasurementError:
            if failure is None:
                raise
        if failure is not None:
            raise failure
        if failed:
            raise CorrectnessError(f"the check failed on another rank: {failed}")

    def over_ranks(self, own: Observation) -> Observation:
        """What all ranks saw, on rank zero; on the others, and in a world of one, their `own`.

        Raises:
            MeasurementError: the ranks did not run the same calls, or one is elsewhere.
        """
        if self._alone:
            return own
        report = RankReport.of(
            own.samples, own.work, own.facts, rank=self._world.rank, host=socket.gethostname()
        )
        aggregate = Aggregate()
        for told in self._control.collect(f"samples {self._benchmark}", report.to_json()):
            aggregate.add(RankReport.from_json(told))
        if not self._world.is_root:
            return own
        return replace(
            own,
            samples=aggregate.samples,
            ranks=aggregate.ranks,
            work=aggregate.work,
            facts=aggregate.facts,
            world_size=self._world.size,
        )

    def concluded(self, failure: Exception | None) -> None:
        """Return once rank zero has found nothing wrong with the numbers; `failure` is this rank's.

        Raises:
            Exception: `failure`.
            MeasurementError: rank zero found something wrong, and what.
        """
        problem = "" if self._alone else self._problem(failure)
        if failure is not None:
            raise failure
        if problem:
            raise MeasurementError(problem)

    def _failures(self, failure: BaseException | None) -> str:
        """What went wrong on any rank, of many the first; nothing where nothing did."""
        tag, rank = f"check {self._benchmark}", self._world.rank
        said = "" if failure is None else f"rank {rank}: {text_of(failure)}"[:_LONGEST_REASON]
        within_s = None if failure is None else self._grace_s
        gathered = self._control.collect(tag, {"failure": said}, within_s=within_s)
        failures = [told["failure"] for told in gathered if told["failure"]]
        shown = listed(failures, _REASONS, separator="; ")
        told = self._control.publish(tag, {"failure": shown}, within_s=within_s)
        return str(told["failure"])

    def _problem(self, failure: Exception | None) -> str:
        said = "" if failure is None else text_of(failure)[:_LONGEST_REASON]
        told = self._control.publish(f"result {self._benchmark}", {"problem": said})
        return str(told["problem"])
