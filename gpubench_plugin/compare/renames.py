"""Likely renames: match benchmarks missing on one side to similar ones on the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from gpubench_plugin.compare.comparability import settings_differences, work_differences
from gpubench_plugin.compare.matched_metrics import STEP_TIME, value_of
from gpubench_plugin.core.records import Result, Run

# Removed benchmarks of a file, at most: of more several fit each new one, and all pairs take long.
_MOST: Final = 20
# Ratio of step times from which on the code is likely another one.
_MAGNITUDE: Final = 10


def likely_renames(
    bases: Sequence[Run], heads: Sequence[Run], is_gone: Callable[[str], bool] = lambda _: True
) -> Mapping[str, str]:
    """Base ids by the head ids of what are probably the same benchmarks.

    Both were measured, with the same parameters, settings, clock and work per call, and with step
    times of one magnitude, as functions of the same file or of the same name. Ambiguous matches are
    left out. `is_gone` says whether a benchmark that the head did not measure no longer exists.
    """
    removed: dict[tuple[str, str], list[Result]] = {}
    for old in _only_in(bases, heads):
        for key in _keys(old.id) if is_gone(old.id) else ():
            removed.setdefault(key, []).append(old)
    matches = {
        (old.id, new.id): None
        for new in _only_in(heads, bases)
        for key in _keys(new.id)
        if len(removed.get(key, ())) <= _MOST
        for old in removed.get(key, ())
        if _is_match(old, new)
    }
    counts = Counter(name for pair in matches for name in pair)
    return {new: old for old, new in matches if counts[old] == counts[new] == 1}


def _only_in(runs: Sequence[Run], others: Sequence[Run]) -> Iterator[Result]:
    """Latest result of each benchmark measured in `runs` and not known to `others`."""
    known = {name for run in others for name in run.results}
    results = {r.id: r for run in runs for r in run.results.values() if r.outcome == "measured"}
    return (r for r in results.values() if r.id not in known)


def _keys(node_id: str) -> tuple[tuple[str, str], tuple[str, str]]:
    """An id's file and its function, each with its parameters."""
    test, _, variant = node_id.partition("[")
    file, _, function = test.partition("::")
    return (file, variant), (function, variant)


def _is_match(old: Result, new: Result) -> bool:
    times = [value_of(r, STEP_TIME) for r in (old, new)]
    known_times = [time for time in times if time is not None and time > 0]
    if len(known_times) == 2 and max(known_times) >= _MAGNITUDE * min(known_times):
        return False
    is_partial = old.foreign or new.foreign
    return not settings_differences(old, new, is_partial=is_partial) and not work_differences(
        old, new
    )
