"""The rounds of a baseline, in which its benchmarks are timed again.

A minimum falls with more rounds: what is compared must rest on the same number of them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gpubench_plugin.compare.baselines import Baselines, names_a_run
from gpubench_plugin.config import CASE
from gpubench_plugin.errors import GpubenchError
from gpubench_plugin.results import find_run, rounds_of, runs_in

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    import pytest

    from gpubench_plugin.config import FrozenRounds, Settings
    from gpubench_plugin.results import RunDirectory


_CHOOSING: Final = frozenset(
    f"measure.{key}"
    for key in (
        *("by", "steps", "time_s", "round_s", "rounds_file", "ci_half_width", "confidence"),
        *("min_rounds", "max_rounds", "min_time_s", "max_time_s", "keep_durations"),
    )
)
"""Keys that say how long is measured: who gives one on the command line wants that, not this."""


def freeze(items: Iterable[pytest.Item], settings: Settings, here: Path) -> Iterator[str]:
    """Have `items` timed in the rounds that the baseline's runs took, as far as they are known.

    Returns:
        What to say of it: how many are, or which option of the command line forbids it.
    """
    directories = list(_directories(settings, here))
    if not directories:
        return
    given = [text for text in settings.overrides if text.partition("=")[0] in _CHOOSING]
    if given:
        yield f"rounds are not those of the baseline, since --{given[0]} is given"
        return
    rounds = _rounds(directories)
    cases = [(item, item.stash[CASE]) for item in items]
    known = [
        (item, case)
        for item, case in cases
        if case.rounds is None and not case.adopted and case.id in rounds
    ]
    for item, case in known:
        item.stash[CASE] = replace(case, rounds=rounds[case.id])
    if known:
        yield f"rounds as in the baseline: {len(known)} of {len(cases)} benchmarks"


def _rounds(directories: Iterable[tuple[RunDirectory, str | None]]) -> dict[str, FrozenRounds]:
    """By node id, of the latest pinned run that has the benchmark, or of the accepted one."""
    rounds: dict[str, FrozenRounds] = {}
    for directory, only in directories:
        try:
            found = rounds_of(directory)
        except GpubenchError:  # said where its numbers are read
            continue
        rounds |= {i: one for i, one in found.items() if only is None or i == only}
    return rounds


def _directories(settings: Settings, here: Path) -> Iterator[tuple[RunDirectory, str | None]]:
    """The folders of the baseline's runs, those that count more later; of which benchmark alone."""
    text = settings.baseline
    if names_a_run(text):
        if not text.endswith(".json"):
            try:
                yield find_run(settings.results_dir, text, here=here), None
            except GpubenchError:
                return
        return
    baseline = Baselines(settings.results_dir).get(text)
    if baseline is None:
        return
    folders = {directory.run_id: directory for directory in runs_in(settings.results_dir)}
    wanted: list[tuple[str, str | None]] = [(run, None) for run in sorted(baseline.runs)]
    wanted += [(one.run, one.benchmark) for one in baseline.acceptances.values()]
    yield from ((folders[run], only) for run, only in wanted if run in folders)
