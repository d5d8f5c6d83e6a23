"""The rounds of a baseline, in which its benchmarks are timed again.

A minimum falls with more rounds: what is compared must rest on the same number of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gpubench_plugin.compare import machine_differences
from gpubench_plugin.errors import GpubenchError
from gpubench_plugin.launchers import STATE
from gpubench_plugin.results import StoredRun, middle_rounds

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pytest

    from gpubench_plugin.config import FrozenRounds
    from gpubench_plugin.records import Run
    from gpubench_plugin.results import RunDirectory
    from gpubench_plugin.session.gate.lookup import Lookup


_CHOOSING: Final = frozenset(
    f"measure.{key}"
    for key in (
        *("by", "steps", "time_s", "round_s", "rounds_file", "ci_half_width", "confidence"),
        *("min_rounds", "max_rounds", "min_time_s", "max_time_s", "keep_durations"),
    )
)
"""Keys that say how long is measured: who gives one on the command line wants that, not this."""


def freeze(items: Iterable[pytest.Item], lookup: Lookup, head: Run) -> Iterator[str]:
    """Have `items` timed in the rounds that the baseline's runs took, as far as they are known.

    Those of a machine other than that of `head` are not: a slower one would take them too long, and
    its own runs took others.

    Returns:
        What to say of it: how many are, or why none is.
    """
    if lookup.directories is None:
        return
    settings = lookup.settings
    directories = [
        (directory, only)
        for directory, only in lookup.directories
        if settings.allow_incomparable or _is_of_machine(directory, head)
    ]
    if not directories:
        yield f"rounds are not those of the baseline: {_NOT_HERE}"
        return
    given = [text for text in settings.overrides if text.partition("=")[0] in _CHOOSING]
    if given:
        yield f"rounds are not those of the baseline, since --{given[0]} is given"
        return
    rounds = _rounds(directories)
    states = [item.stash[STATE] for item in items]
    known = [
        state
        for state in states
        if state.case.rounds is None and not state.case.adopted and state.case.id in rounds
    ]
    for state in known:
        state.case = replace(state.case, rounds=rounds[state.case.id])
    if known:
        yield f"rounds as in the baseline: {len(known)} of {len(states)} benchmarks"


_NOT_HERE: Final = "no folder of a run of this machine that it rests on is here"


def _is_of_machine(directory: RunDirectory, head: Run) -> bool:
    try:
        return not machine_differences(StoredRun(directory).run(), head, ())
    except GpubenchError:  # said where its numbers are read
        return False


def _rounds(directories: Iterable[tuple[RunDirectory, str | None]]) -> dict[str, FrozenRounds]:
    """By node id, those in the middle of the pinned runs', or those of the accepted run.

    The pinned ones may have taken different numbers; most of them can be compared with the middle.
    """
    pinned: dict[str, list[FrozenRounds]] = {}
    accepted: dict[str, FrozenRounds] = {}
    for directory, only in directories:
        try:
            taken = StoredRun(directory).rounds()
        except GpubenchError:  # said where its numbers are read
            continue
        if only in taken:
            accepted[only] = taken[only]
        for name, one in taken.items() if only is None else ():
            pinned.setdefault(name, []).append(one)
    return {name: middle_rounds(plans) for name, plans in pinned.items()} | accepted
