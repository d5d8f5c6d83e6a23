"""Reuse of a baseline's number of rounds.

A minimum falls with more rounds: what is compared must rest on the same number of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gpubench_plugin.compare import machine_differences
from gpubench_plugin.errors import GpubenchError
from gpubench_plugin.launchers import STATE
from gpubench_plugin.results import StoredRun, median_rounds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pytest

    from gpubench_plugin.config import FixedRounds
    from gpubench_plugin.records import Run
    from gpubench_plugin.results import RunDirectory
    from gpubench_plugin.session.gate.lookup import BaselineLookup


_CHOOSING: Final = frozenset(
    f"measure.{key}"
    for key in (
        *("by", "steps", "time_s", "round_s", "rounds_file", "ci_half_width", "confidence"),
        *("min_rounds", "max_rounds", "min_time_s", "max_time_s", "keep_durations"),
    )
)
"""Keys that say how long is measured: who gives one on the command line wants that, not this."""


def fix_rounds(items: Iterable[pytest.Item], lookup: BaselineLookup, head: Run) -> Iterator[str]:
    """Fix the rounds of `items` to those of the baseline's runs, where known.

    Those of a machine other than that of `head` are not: a slower one would take them too long, and
    its own runs took others.

    Returns:
        What to say of it: how many are, or why none is.
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
        yield f"not using the baseline's rounds: {_NOT_HERE}"
        return
    rule_overrides = [text for text in settings.overrides if text.partition("=")[0] in _CHOOSING]
    if rule_overrides:
        yield f"not using the baseline's rounds because --{rule_overrides[0]} is given"
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


_NOT_HERE: Final = "none of its runs has a local directory from this machine"


def _is_of_machine(directory: RunDirectory, head: Run) -> bool:
    try:
        return not machine_differences(StoredRun(directory).run(), head, ())
    except GpubenchError:  # said where its numbers are read
        return False


def _rounds(directories: Iterable[tuple[RunDirectory, str | None]]) -> dict[str, FixedRounds]:
    """Fixed rounds by node id: the accepted run's, else the median of the pinned runs.

    The pinned ones may have taken different numbers; most of them can be compared with the middle.
    """
    pinned_rounds: dict[str, list[FixedRounds]] = {}
    accepted_rounds: dict[str, FixedRounds] = {}
    for directory, benchmark_id in directories:
        try:
            rounds_by_id = StoredRun(directory).rounds()
        except GpubenchError:  # said where its numbers are read
            continue
        if benchmark_id in rounds_by_id:
            accepted_rounds[benchmark_id] = rounds_by_id[benchmark_id]
        for name, rounds in rounds_by_id.items() if benchmark_id is None else ():
            pinned_rounds.setdefault(name, []).append(rounds)
    return {name: median_rounds(plans) for name, plans in pinned_rounds.items()} | accepted_rounds
