"""Likely renames: match benchmarks missing on one side to similar ones on the other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from gpubench_plugin.compare.comparability import settings_differences, work_differences
from gpubench_plugin.compare.matched_metrics import STEP_TIME, value_of
from gpubench_plugin.core.records import Result, Run

_MOST: Final = 20
"""Removed benchmarks of a file, at most: of more several fit each new one, and all pairs take long;
not measured."""

_MAGNITUDE: Final = 10
"""Ratio of step times from which on the code is likely another one; not measured."""


def likely_renames(
    bases: Sequence[Run], heads: Sequence[Run], is_gone: Callable[[str], bool] = lambda _: True
) -> Mapping[str, str]:
    """Base ids by the head ids of what are probably the same benchmarks.

    Both were measured, with the same parameters, settings, clock and work per call, and with step
    times of one magnitude, as functions of the same file or of the same name. Ambiguous matches are
    left out. `is_gone` says whether a benchmark that the head did not measure no longer exists.
    """
    base_ids, head_ids = _ids(bases), _ids(heads)
    removed_by_key: dict[tuple[str, ...], dict[str, Result]] = {}
    for name, r in _measured(bases).items():
        if name not in head_ids and is_gone(name):
            for key in _match_keys(name):
                removed_by_key.setdefault(key, {})[name] = r
    rare_keys = {key: results for key, results in removed_by_key.items() if len(results) <= _MOST}
    candidates = [
        (old.id, name)
        for name, r in _measured(heads).items()
        if name not in base_ids
        for old in _union(rare_keys.get(key, {}) for key in _match_keys(name))
        if _is_match(old, r)
    ]
    old_counts, new_counts = (Counter(pair[side] for pair in candidates) for side in (0, 1))
    return {new: old for old, new in candidates if old_counts[old] == new_counts[new] == 1}


def _match_keys(node_id: str) -> Iterator[tuple[str, ...]]:
    """Lookup keys of an id: its file and function, each with its parameters."""
    test, _, variant = node_id.partition("[")
    file, _, function = test.partition("::")
    yield "file", file, variant
    yield "function", function, variant


def _union(results: Iterable[Mapping[str, Result]]) -> Iterable[Result]:
    united: dict[str, Result] = {}
    for group in results:
        united.update(group)
    return united.values()


def _is_match(old: Result, new: Result) -> bool:
    if not _has_similar_time(old, new):
        return False
    mismatches = settings_differences(old, new, is_partial=old.foreign or new.foreign)
    return not mismatches and not work_differences(old, new)


def _has_similar_time(old: Result, new: Result) -> bool:
    """Whether the step times are of similar magnitude, if both are known."""
    times = [value_of(r, STEP_TIME) for r in (old, new)]
    known_times = [time for time in times if time is not None and time > 0]
    return len(known_times) < len(times) or max(known_times) < _MAGNITUDE * min(known_times)


def _measured(runs: Sequence[Run]) -> dict[str, Result]:
    """Latest result of each measured benchmark."""
    return {name: r for run in runs for name, r in run.results.items() if r.outcome == "measured"}


def _ids(runs: Sequence[Run]) -> set[str]:
    return {name for run in runs for name in run.results}
