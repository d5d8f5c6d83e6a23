"""How the results of all ranks become one, and what goes wrong on one rank is known to all."""

from __future__ import annotations

import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gpubench_plugin.distributed.aggregate import Aggregate
from gpubench_plugin.distributed.rank_report import RankReport
from gpubench_plugin.errors import CorrectnessError, MeasurementError, text_of

if TYPE_CHECKING:
    from gpubench_plugin.distributed.process_group import ProcessGroup
    from gpubench_plugin.records import Observation

# What one rank says of a failure to all others, and how many of them.
_LONGEST_REASON: Final = 2000
_REASONS: Final = 4


class Reduction:
    """The ranks of `group` bring the results of one `benchmark` together; all call the same.

    In a world of one nothing is sent. A rank whose check failed waits for the others no longer
    than `grace_s`: one may be in a collective of the check, and wait for this one there.
    """

    def __init__(self, group: ProcessGroup, benchmark: str, *, grace_s: float | None = None):
        self._group = group
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
        world = self._group.world
        report = RankReport.of(
            own.samples, own.work, own.facts, rank=world.rank, host=socket.gethostname()
        )
        aggregate = Aggregate()
        for told in self._group.collect(f"samples {self._benchmark}", report.to_json()):
            aggregate.add(RankReport.from_json(told))
        if not world.is_root:
            return own
        return replace(
            own,
            samples=aggregate.samples,
            ranks=aggregate.ranks,
            work=aggregate.work,
            facts=aggregate.facts,
            world_size=world.size,
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
        tag, rank = f"check {self._benchmark}", self._group.world.rank
        said = "" if failure is None else f"rank {rank}: {text_of(failure)}"[:_LONGEST_REASON]
        within_s = None if failure is None else self._grace_s
        gathered = self._group.collect(tag, {"failure": said}, within_s=within_s)
        failures = [told["failure"] for told in gathered if told["failure"]]
        more = len(failures) - _REASONS
        shown = "; ".join(failures[:_REASONS]) + (f"; and {more} more" if more > 0 else "")
        return str(self._group.publish(tag, {"failure": shown}, within_s=within_s)["failure"])

    def _problem(self, failure: Exception | None) -> str:
        said = "" if failure is None else text_of(failure)[:_LONGEST_REASON]
        told = self._group.publish(f"result {self._benchmark}", {"problem": said})
        return str(told["problem"])
