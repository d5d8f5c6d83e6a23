"""Trend of a metric over runs, with change points where its level shifts.

It is for the report on a main branch, never for a gate: nothing is judged here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin.compare.comparability import differing_amounts, requested_work
from gpubench_plugin.compare.doubt import touching
from gpubench_plugin.compare.matched_metrics import launches_of, step_time_of_history
from gpubench_plugin.core.records import STEP_TIME
from gpubench_plugin.environment.fingerprints import differences, fingerprint_of

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

    from gpubench_plugin.core.records import Run
    from gpubench_plugin.results.registry.registry import Registry


FEWEST: Final = 8
"""Values needed for a search, two levels and more; about 2% of flat histories of 8 are flagged."""

_LEVEL: Final = 3
"""Values of a level, at least, so that one slow run is none."""

_FLOOR: Final = 0.001
"""Least noise: steps of constant values below 0.1% are no change."""

_PENALTY: Final = 7.0
"""Per change point, times ln(n)·s² for n values of noise s, instead of the usual 2 (Yao 1988) for a
known noise: about 2% of flat histories of 8 runs are flagged, under 1% of those of 60."""


def change_points(values: Sequence[float]) -> list[int] | None:
    """Indices in `values`, oldest first, at which a new level starts; none of fewer than eight.

    None where `ruptures` is not installed (the extra ``history``).

    PELT (Killick, Fearnhead, Eckley 2012; `ruptures`) with the squared error of the logarithms of
    the positive values, deterministic. The noise is the median absolute difference of neighbours,
    which a change of level hardly moves. Outliers are clipped to three noises from the median of
    their neighbourhood of five.
    """
    usable = [
        position for position, value in enumerate(values) if math.isfinite(value) and value > 0
    ]
    if find_spec("ruptures") is None:
        return None
    if len(usable) < FEWEST:
        return []
    import numpy as np
    from ruptures import KernelCPD

    logs = np.log([values[position] for position in usable])
    noise = max(_noise(logs), _FLOOR)
    scaled = _clip_outliers(logs / noise)
    search = KernelCPD(kernel="linear", min_size=_LEVEL).fit(scaled.reshape(-1, 1))
    ends = [0, *search.predict(pen=_PENALTY * math.log(len(usable)))]
    levels = [float(np.mean(scaled[start:end])) for start, end in pairwise(ends)]
    # On the wrong side is a value that only the least length of a level put there.
    return [
        usable[end]
        for end, (old, new) in zip(ends[1:], pairwise(levels), strict=False)
        if (scaled[end - 1] < (old + new) / 2) == (old < new) == (scaled[end] > (old + new) / 2)
    ]


def _noise(logs: NDArray[float64]) -> float:
    import numpy as np

    # 1.4826 makes the median absolute deviation that of a normal distribution; a difference has
    # the noise of two values.
    return float(np.median(np.abs(np.diff(logs))) * 1.4826 / math.sqrt(2))


def _clip_outliers(scaled: NDArray[float64]) -> NDArray[float64]:
    import numpy as np

    neighbourhoods = np.lib.stride_tricks.sliding_window_view(np.pad(scaled, 2, mode="edge"), 5)
    medians = np.median(neighbourhoods, axis=1)
    return np.clip(scaled, medians - 3, medians + 3)


_LOOKED_AT: Final = 20
"""Latest runs whose benchmarks can be named in part; trades time for old names."""


@dataclass(frozen=True, kw_only=True)
class Point:
    """One run's value of a metric: the median over its launches.

    `started` is UTC in ISO 8601. `fingerprint` is equal where machine, settings and clock are
    comparable. `work` holds the amounts per call, see :func:`.requested_work`. `doubts` are the
    flags that touch the metric.
    """

    run_id: str
    started: str
    commit: str | None
    branch: str | None
    value: float
    unit: str
    fingerprint: str
    work: Mapping[str, float] | None = None
    doubts: tuple[str, ...] = ()
    dirty: bool | None = None

    def has_code_of(self, earlier: Point) -> bool:
        """Whether both are of one commit without changes."""
        is_known = self.commit is not None and (self.dirty, earlier.dirty) == (False, False)
        return is_known and self.commit == earlier.commit


@dataclass(frozen=True, kw_only=True)
class LevelChange:
    """A level change at `point`, number `index` of its segment, with the medians of both levels.

    `change` is new/old − 1; None if undefined.
    """

    index: int
    point: Point
    old_level: float
    new_level: float
    change: float | None


@dataclass(frozen=True, kw_only=True)
class TrendSegment:
    """Comparable points, oldest first: same machine, configuration, clock and work.

    `work` is None where no point has it, `changes` without `ruptures`. `differs_in` are the keys of
    settings and facts in which it is not the first segment of its history.
    """

    fingerprint: str
    work: Mapping[str, float] | None
    points: tuple[Point, ...]
    changes: tuple[LevelChange, ...] | None
    differs_in: tuple[str, ...] = ()


def trend_segments(points: Sequence[Point]) -> list[TrendSegment]:
    """Split time-sorted `points` into comparable segments; the latest one comes last.

    A point of unknown work belongs to the latest segment.
    """
    segments: list[list[Point]] = []
    for point in points:
        segment = next((s for s in reversed(segments) if _is_comparable(s, point)), [])
        if segment:
            segments.remove(segment)
        segment.append(point)
        segments.append(segment)  # in order of the last use
    return [
        TrendSegment(
            fingerprint=segment[0].fingerprint,
            work=_work_of(segment),
            points=tuple(segment),
            changes=_changes(segment),
        )
        for segment in segments
    ]


def _is_comparable(segment: Sequence[Point], point: Point) -> bool:
    is_same_machine = point.fingerprint == segment[0].fingerprint
    return is_same_machine and not differing_amounts(_work_of(segment), point.work)


def _work_of(segment: Sequence[Point]) -> Mapping[str, float] | None:
    return next((point.work for point in segment if point.work is not None), None)


@dataclass(frozen=True, kw_only=True)
class BenchmarkHistory:
    """One metric of one benchmark over runs."""

    benchmark: str
    metric: str
    segments: tuple[TrendSegment, ...]


def benchmark_history(
    source: HistorySource,
    benchmark: str,
    metric: str | None,
    *,
    branch: str | None,
    limit: int,
    head: Run | None = None,
) -> BenchmarkHistory | None:
    """History of the latest `limit` runs; with a `head` of those before it, and its own value.

    The head may be of another branch. None if none has the metric, by default the step time.
    """
    runs = source.index.points(benchmark, metric or STEP_TIME, branch=branch, limit=limit)
    metric = metric or _step_time(runs, benchmark)
    runs = [run for run in runs if metric in run.results[benchmark].metrics]
    if head:
        result = head.results.get(benchmark)
        own = [head] * bool(result and metric in result.metrics)
        others = [r for r in runs if r.run_id != head.run_id and r.started <= head.started]
        runs = sorted([*others, *own], key=lambda run: (run.started, run.run_id))
    if not runs:
        return None
    points = [_point(run, benchmark, metric) for run in runs]
    segments = trend_segments(points)
    oldest = {p.fingerprint: run for run, p in zip(runs[::-1], points[::-1], strict=True)}
    facts = [_facts(oldest[segment.fingerprint], benchmark) for segment in segments]
    series = tuple(
        replace(segment, differs_in=tuple(differences(facts[0], own)))
        for segment, own in zip(segments, facts, strict=True)
    )
    return BenchmarkHistory(benchmark=benchmark, metric=metric, segments=series)


def _facts(run: Run, benchmark: str) -> Mapping[str, Any]:
    """What the fingerprint of the run's point is of."""
    result = run.results[benchmark]
    return {**run.machine_of(result), **result.settings, "clock": result.timer}


class HistorySource:
    """Source of earlier results: the registry, or the run directories."""

    def __init__(self, index: Registry):
        self.index = index
        self._runs_by_branch: dict[str | None, list[Run]] = {}

    def benchmarks(self, branch: str | None) -> list[str]:
        """Benchmarks measured in the branch's latest runs; None for any branch."""
        return sorted({name for run in self._latest_runs(branch) for name in run.measured})

    def metrics(self, benchmark: str, branch: str | None) -> list[str]:
        """Metrics of the benchmark in the latest runs."""
        results = (run.results.get(benchmark) for run in self._latest_runs(branch))
        return sorted({name for result in results if result for name in result.metrics})

    def _latest_runs(self, branch: str | None) -> list[Run]:
        if branch not in self._runs_by_branch:
            overviews = self.index.runs(branch=branch, limit=_LOOKED_AT)
            runs = [self.index.run(overview.run_id) for overview in overviews if not overview.error]
            self._runs_by_branch[branch] = [run for run in runs if run is not None]
        return self._runs_by_branch[branch]


def _step_time(runs: Sequence[Run], benchmark: str) -> str:
    """The step time metric that the latest of the `runs`, oldest first, is judged by."""
    kinds = [_point(run, benchmark, STEP_TIME).fingerprint for run in runs]
    comparable = [r for r, kind in zip(runs, kinds, strict=True) if kind == kinds[-1]]
    return step_time_of_history([r.results[benchmark] for r in comparable]) if runs else STEP_TIME


def _changes(points: Sequence[Point]) -> tuple[LevelChange, ...] | None:
    values = [point.value for point in points]
    certain = [index for index, point in enumerate(points) if not point.doubts]
    candidates = change_points([values[index] for index in certain])
    if candidates is None:
        return None
    candidates = [certain[candidate] for candidate in candidates]
    positions = sorted({at for position in candidates for at in _at_new_code(points, position)})
    levels = [median(values[a:b]) for a, b in pairwise([0, *positions, len(values)])]
    return tuple(
        LevelChange(
            index=index,
            point=points[index],
            old_level=old,
            new_level=new,
            change=new / old - 1 if old else None,
        )
        for index, (old, new) in zip(positions, pairwise(levels), strict=True)
    )


def _at_new_code(points: Sequence[Point], position: int) -> Iterator[int]:
    """The position where the code may have changed: that one or a neighbour, none within a commit.

    Noise moves a change by a run.
    """
    for at in (position, position - 1, position + 1):
        if 0 < at < len(points) and not points[at].has_code_of(points[at - 1]):
            yield at
            return


def _point(run: Run, benchmark: str, metric: str) -> Point:
    result = run.results[benchmark]
    return Point(
        run_id=run.run_id,
        started=run.started,
        commit=run.commit,
        branch=run.branch,
        dirty=run.dirty,
        value=median(launches_of(result, metric)),
        unit=result.metrics[metric].unit,
        fingerprint=fingerprint_of(run.machine_of(result), result.settings, result.timer),
        work=requested_work(result),
        doubts=touching(result, result.metrics[metric]),
    )
