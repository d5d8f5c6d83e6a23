"""Likely renames: a benchmark that only the head has, and one like it that only the base has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from gpubench_plugin.compare.comparability import settings_differences, work_differences
from gpubench_plugin.compare.matched_metrics import STEP_TIME, value_of
from gpubench_plugin.records import Result, Run

_MOST: Final = 20
"""Where more of a file are gone, several would fit, and to compare all with all takes long."""

_MAGNITUDE: Final = 10
"""Benchmarks whose step times differ by so much are likely of different code."""


def likely_renames(
    bases: Sequence[Run], heads: Sequence[Run], is_gone: Callable[[str], bool] = lambda _: True
) -> Mapping[str, str]:
    """Ids of the base by the ones that the same benchmarks likely have in the head.

    Both were measured, with the same parameters, settings, clock and work per call, and with step
    times of one magnitude, as functions of the same file or of the same name. Where several fit, on
    either side, none is named.

    Args:
        bases: the runs of the base.
        heads: the runs of the head.
        is_gone: whether a benchmark that the head did not measure no longer exists.
    """
    known, there = _ids(bases), _ids(heads)
    lost: dict[tuple[str, ...], dict[str, Result]] = {}
    for name, one in _measured(bases).items():
        if name not in there and is_gone(name):
            for place in _places(name):
                lost.setdefault(place, {})[name] = one
    few = {place: results for place, results in lost.items() if len(results) <= _MOST}
    fitting = [
        (old.id, name)
        for name, one in _measured(heads).items()
        if name not in known
        for old in _united(few.get(place, {}) for place in _places(name))
        if _fits(old, one)
    ]
    olds, news = (Counter(pair[side] for pair in fitting) for side in (0, 1))
    return {new: old for old, new in fitting if olds[old] == news[new] == 1}


def _places(node_id: str) -> Iterator[tuple[str, ...]]:
    """Its file and its function, each with its parameters as the id has them."""
    test, _, variant = node_id.partition("[")
    file, _, function = test.partition("::")
    yield "file", file, variant
    yield "function", function, variant


def _united(results: Iterable[Mapping[str, Result]]) -> Iterable[Result]:
    united: dict[str, Result] = {}
    for some in results:
        united.update(some)
    return united.values()


def _fits(old: Result, new: Result) -> bool:
    if not _take_alike(old, new):
        return False
    unlike = settings_differences(old, new, (), partly=old.foreign or new.foreign)
    return not unlike and not work_differences(old, new, ())


def _take_alike(old: Result, new: Result) -> bool:
    """Whether the step times are of one magnitude, as far as both are known."""
    times = [value_of(one, STEP_TIME) for one in (old, new)]
    known = [time for time in times if time is not None and time > 0]
    return len(known) < len(times) or max(known) < _MAGNITUDE * min(known)


def _measured(runs: Sequence[Run]) -> dict[str, Result]:
    """The latest result of each benchmark that was."""
    return {
        name: one for run in runs for name, one in run.results.items() if one.outcome == "measured"
    }


def _ids(runs: Sequence[Run]) -> set[str]:
    return {name for run in runs for name in run.results}
