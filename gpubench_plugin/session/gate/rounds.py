"""Reuse of a baseline's number of rounds: a minimum falls with more of them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gpubench_plugin.compare.comparability import machine_differences
from gpubench_plugin.core.errors import GpubenchError
from gpubench_plugin.launchers.context import STATE
from gpubench_plugin.results.reader import StoredRun, median_rounds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pytest

    from gpubench_plugin.config.rounds_file import FixedRounds
    from gpubench_plugin.core.records import Run
    from gpubench_plugin.results.run_directory import RunDirectory
    from gpubench_plugin.session.gate.lookup import BaselineLookup


_STOPPING_KEYS: Final = frozenset(
    f"measure.{key}"
    for key in (
        *("by", "steps", "time_s", "round_s", "rounds_file", "ci_half_width", "confidence"),
        *("min_rounds", "max_rounds", "min_time_s", "max_time_s", "keep_durations"),
    )
)
"""Keys that say how long to measure: one on the command line overrides the baseline's rounds."""


def fix_rounds(items: Iterable[pytest.Item], lookup: BaselineLookup, head: Run) -> Iterator[str]:
    """Fix the rounds of `items` to those of the baseline's runs, where known.

    Runs of a machine other than that of `head` are left out: on a slower one their rounds would
    take too long. Yields a note: of how many benchmarks, or why of none.
    """
    if lookup.directories is None:
        return
    settings = lookup.settings
    directories = [
        (directory, benchmark_id)
        for directory, benchmark_id in lookup.directories
        if settings.allow_incomparable or _is_of_machine(directory, head)
    ]
    if not directories:
        yield (
            "not using the baseline's rounds: none of its runs has a local directory from this "
            "machine"
        )
        return
    for override in settings.overrides:
        if override.partition("=")[0] in _STOPPING_KEYS:
            yield f"not using the baseline's rounds because --{override} is given"
            return
    rounds = _rounds(directories)
    states = [item.stash[STATE] for item in items]
    fixable = [
        state
        for state in states
        if state.case.fixed_rounds is None and not state.case.adopted and state.case.id in rounds
    ]
    for state in fixable:
        state.case = replace(state.case, fixed_rounds=rounds[state.case.id])
    if fixable:
        yield f"using the baseline's rounds for {len(fixable)} of {len(states)} benchmarks"


def _is_of_machine(directory: RunDirectory, head: Run) -> bool:
    try:
        return not machine_differences(StoredRun(directory).run(), head)
    except GpubenchError:  # reported when its numbers are read
        return False


def _rounds(directories: Iterable[tuple[RunDirectory, str | None]]) -> dict[str, FixedRounds]:
    """Fixed rounds by node id: the accepted run's, else the median of the pinned runs'."""
    pinned_rounds: dict[str, list[FixedRounds]] = {}
    accepted_rounds: dict[str, FixedRounds] = {}
    for directory, benchmark_id in directories:
        try:
            rounds_by_id = StoredRun(directory).rounds()
        except GpubenchError:  # reported when its numbers are read
            continue
        if benchmark_id in rounds_by_id:
            accepted_rounds[benchmark_id] = rounds_by_id[benchmark_id]
        for name, rounds in rounds_by_id.items() if benchmark_id is None else ():
            pinned_rounds.setdefault(name, []).append(rounds)
    return {name: median_rounds(plans) for name, plans in pinned_rounds.items()} | accepted_rounds
