"""Likely renames: a benchmark that only the head has, and one like it that only the base has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from gpubench_plugin.compare.comparability import settings_differences, work_differences
from gpubench_plugin.records import Result, Run


def likely_renames(
    bases: Sequence[Run], heads: Sequence[Run], is_gone: Callable[[str], bool] = lambda _: True
) -> Mapping[str, str]:
    """Ids of the base by the ones that the same benchmarks likely have in the head.

    Both were measured, with the same parameters, settings, clock and work per call, as functions of
    the same file or of the same name. Where several fit, on either side, none is named.

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
    fitting = [
        (old.id, name)
        for name, one in _measured(heads).items()
        if name not in known
        for old in _united(lost.get(place, {}) for place in _places(name))
        if _fits(old, one)
    ]
    olds, news = ([pair[side] for pair in fitting] for side in (0, 1))
    return {new: old for old, new in fitting if olds.count(old) == 1 and news.count(new) == 1}


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
    unlike = settings_differences(old, new, (), partly=old.foreign or new.foreign)
    return not unlike and not work_differences(old, new, ())


def _measured(runs: Sequence[Run]) -> dict[str, Result]:
    """The latest result of each benchmark that was."""
    return {
        name: one for run in runs for name, one in run.results.items() if one.outcome == "measured"
    }


def _ids(runs: Sequence[Run]) -> set[str]:
    return {name for run in runs for name in run.results}
