"""The rounds of a run: in how many it has timed each of its benchmarks, from its journal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpubench_plugin.config import FrozenRounds
from gpubench_plugin.environment import stored
from gpubench_plugin.errors import BrokenFile
from gpubench_plugin.records import Samples
from gpubench_plugin.results import journal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gpubench_plugin.results.run_directory import RunDirectory


def rounds_of(directory: RunDirectory) -> dict[str, FrozenRounds]:
    """In how many rounds the run in `directory` has timed each of its benchmarks.

    Of several launches that in the middle counts, as it does of their metrics: minima of more
    rounds than the run's own number of them would be compared with none. A benchmark whose samples
    this version cannot read is left out.

    Raises:
        ResultsError: the journal cannot be read.
    """
    rounds = {}
    for event in journal.read(directory.journal):
        if event["event"] == "benchmark" and event.get("samples"):
            try:
                rounds[event["id"]] = _rounds_of(journal.restored(event))
            except (BrokenFile, KeyError, TypeError, ValueError):
                continue
    return rounds


def _rounds_of(event: Mapping[str, Any]) -> FrozenRounds:
    launches = event.get("per_launch") or [event]
    samples = (stored.restored(Samples, one["samples"], "the journal") for one in launches)
    return middle_rounds(map(FrozenRounds.of, samples))


def middle_rounds(plans: Iterable[FrozenRounds]) -> FrozenRounds:
    """The median by number, of two in the middle the lower one."""
    ordered = sorted(plans, key=lambda plan: plan.rounds)
    return ordered[(len(ordered) - 1) // 2]
