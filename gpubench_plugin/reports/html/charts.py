"""The charts of measurements, training curves, explanations, histories and scaling; pure.

A chart has at most :data:`MOST_POSITIONS`, evenly chosen. Numbers are those of the records; one
that is not finite is none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from typing import Final, Literal

from gpubench_plugin.compare.scaling import families, rate_of
from gpubench_plugin.core.format import counted, listed, short_commit
from gpubench_plugin.core.quality_flags import doubtful_flags
from gpubench_plugin.core.records import STEP_TIME, Measurement, confidence_bounds_of
from gpubench_plugin.reports.explanation import Explanation, PlotPoint, Role, split_verdict
from gpubench_plugin.reports.html.chart import Chart, Numbers, Series
from gpubench_plugin.reports.html.page import History, KnownRun, Table
from gpubench_plugin.reports.names import short_names
from gpubench_plugin.reports.side_by_side import (
    PARAMETERS,
    cells_by_value,
    row_labels,
    rows_by,
    scaling_title,
)
from gpubench_plugin.reports.text import evenly_chosen
from gpubench_plugin.reports.verdicts import kind_text
from gpubench_plugin.results.progress import Curve

MOST_POSITIONS: Final = 500

Side = Literal["base", "head"]
_Place = tuple[float, PlotPoint | None]

# Of launches that are a pair, left and right of its number.
_BESIDE: Final = 0.15
_COLOURS: Final[Mapping[Role, Literal["base", "reference"]]] = {
    "base": "base",
    "earlier run": "base",
    "pinned run": "reference",
}


def rounds_chart(measurement: Measurement) -> Chart | None:
    """The rounds in time order, with their median and its interval; None without samples."""
    rounds = measurement.samples.rounds_s if measurement.samples else ()
    if not rounds:
        return None
    shown = evenly_chosen(range(len(rounds)), MOST_POSITIONS)
    doubts = doubtful_flags(measurement.flags)
    median, low, high = _with_bounds(measurement, STEP_TIME)
    interval = f"{measurement.confidence:.0%} interval of the median"
    return Chart(
        title=_said("time of each round", shown, rounds),
        unit="s",
        noun="round",
        positions=tuple(index + 1 for index in shown),
        series=(
            *_level(interval, len(shown), low=low, high=high),
            *_level("median", len(shown), value=median),
            Series(
                label=f"round, in doubt: {listed(doubts)}" if doubts else "round",
                style="dots",
                role="doubt" if doubts else "head",
                values=tuple(_finite(rounds[index]) for index in shown),
            ),
        ),
    )


def ranks_chart(measurement: Measurement) -> Chart | None:
    """The skew of several ranks: the median of each, and the range of most of its durations."""
    ranks = measurement.ranks
    if len(ranks) < 2:
        return None
    has_hosts = len({rank.host for rank in ranks}) > 1
    return Chart(
        title="time of each rank",
        unit="s",
        noun="rank",
        positions=tuple(rank.rank for rank in ranks),
        names=tuple(f"{rank.rank} ({rank.host})" for rank in ranks) if has_hosts else (),
        series=(
            Series(
                label="median, 5th to 95th percentile",
                style="dots",
                values=tuple(_finite(rank.median_s) for rank in ranks),
                low=tuple(_finite(rank.p5_s) for rank in ranks),
                high=tuple(_finite(rank.p95_s) for rank in ranks),
            ),
        ),
    )


def curve_charts(sides: Mapping[Side, Iterable[Curve]]) -> Iterator[Chart]:
    """The losses, accuracies and logged numbers of a benchmark, of both sides over each other.

    A mark tells where one is not finite for the first time.
    """
    found: dict[tuple[str, str], dict[Side, Curve]] = {}
    for side, curves in sides.items():
        for curve in curves:
            if curve.event != "training_step" or curve.name == "loss":
                found.setdefault((curve.event, curve.name), {})[side] = curve
    for (event, name), by_side in found.items():
        steps = sorted({step for curve in by_side.values() for step in curve.steps})
        shown = evenly_chosen(steps, MOST_POSITIONS)
        points = {side: dict(zip(c.steps, c.values, strict=True)) for side, c in by_side.items()}
        failed = {
            side: next((step for step in steps if not math.isfinite(own.get(step, 0))), None)
            for side, own in points.items()
        }
        title = f"{name} of each {event}" if event in {"epoch", "evaluation"} else name
        yield Chart(
            title=_said(title, shown, steps),
            unit="fraction" if name.endswith("accuracy") else "",
            noun="step",
            positions=tuple(shown),
            series=tuple(
                Series(
                    label=side if len(sides) > 1 else name,
                    role=side,
                    values=tuple(_finite(own.get(step)) for step in shown),
                )
                for side, own in points.items()
            ),
            marks=tuple((at, f"{s}: not finite") for s, at in failed.items() if at is not None),
        )


def points_charts(explanation: Explanation) -> Iterator[Chart]:
    """The points of each metric; a pair of launches is joined, and each look at them a mark."""
    for metric, unit in explanation.units.items():
        points = [point for point in explanation.points if metric in point.values]
        shown = evenly_chosen(points, MOST_POSITIONS)
        places = [*_places(shown)]
        if not places:
            continue
        labels = [point.label if point else "" for _, point in places]
        has_names = any(f"{at:g}" != label for (at, _), label in zip(places, labels, strict=True))
        yield Chart(
            title=_said(f"{metric} of each {explanation.noun}", shown, points),
            unit=unit,
            noun="pair" if any(point.pair for point in shown) else explanation.noun,
            positions=tuple(at for at, _ in places),
            names=tuple(labels) if has_names else (),
            series=tuple(_point_series(places, metric)),
            marks=tuple(_look_marks(explanation, metric)),
        )


def _places(points: Sequence[PlotPoint]) -> Iterator[_Place]:
    """The points by position, with nothing between two pairs."""
    pairs: dict[int, list[PlotPoint]] = {}
    for number, point in enumerate(points, start=1):
        if point.pair:
            pairs.setdefault(point.pair, []).append(point)
        else:
            yield number, point
    for pair, own in sorted(pairs.items()):
        yield pair - _BESIDE, own[0]
        yield from ((pair + _BESIDE, point) for point in own[1:])
        yield pair + 0.5, None


def _point_series(places: Sequence[_Place], metric: str) -> Iterator[Series]:
    def values(role: Role | None, doubt: bool | None) -> Numbers:
        return tuple(
            _finite(point.values[metric])
            if point
            and role in {None, point.role}
            and doubt in {None, bool(doubtful_flags(point.flags))}
            else None
            for _, point in places
        )

    if any(point and point.pair for _, point in places):
        yield Series(label="pair", style="pairs", role="reference", values=values(None, None))
    for role in sorted({point.role for _, point in places if point}):
        for doubt in (False, True):
            own = values(role, doubt)
            if any(value is not None for value in own):
                yield Series(
                    label=f"{role}{', in doubt' * doubt}",
                    style="dots",
                    role="doubt" if doubt else _COLOURS.get(role, "head"),
                    values=own,
                )


def _look_marks(explanation: Explanation, metric: str) -> Iterator[tuple[float, str]]:
    kind = ""
    for look in explanation.looks:
        for part in (part for verdict in look.verdicts for part in split_verdict(verdict)):
            kind = kind_text(part.kind) if part.metric == metric else kind
        yield look.pairs + 0.5, f"look after {counted(look.pairs, 'pair')}{kind and f': {kind}'}"


def history_chart(history: History, runs: Sequence[KnownRun]) -> Chart:
    """A history of the `runs` that its positions are of; of too many, the latest."""
    every = range(len(history.runs))
    shown = every[-MOST_POSITIONS:]
    known = [runs[history.runs[index]] for index in shown]
    low, high = history.band or (None, None)
    doubts = dict.fromkeys(history.doubts[index] for index in shown if index in history.doubts)
    parts = [Series(label="run", values=_where(history, shown, doubt=False))]
    if doubts:
        values = _where(history, shown, doubt=True)
        label = f"in doubt: {listed([*doubts])}"
        parts.append(Series(label=label, style="dots", role="doubt", values=values))
    return Chart(
        title=_said(history.metric, shown, every),
        unit=history.unit,
        noun="run",
        positions=tuple(index + 1 for index in shown),
        names=tuple(short_commit(run.commit) or run.run_id for run in known),
        series=(*_level("interval of the baseline", len(shown), low=low, high=high), *parts),
        marks=tuple((index + 1, text) for index, text in history.levels if index in shown),
    )


def _where(history: History, shown: Iterable[int], *, doubt: bool) -> Numbers:
    return tuple(
        _finite(history.values[index]) if (index in history.doubts) is doubt else None
        for index in shown
    )


def scaling_charts(measurements: Sequence[Measurement]) -> Iterator[Chart]:
    """Throughput over ranks beside the ideal one, or the step time where there is no rate."""
    names = short_names(measurement.id for measurement in measurements).by_id
    for family in families(measurements):
        metric = rate_of(family) or STEP_TIME
        members = [member for member in family if metric in member.metrics]
        if not members:
            continue
        first = members[0]
        ideal = tuple(
            first.metrics[metric].value * member.world_size / first.world_size for member in members
        )
        yield Chart(
            title=f"{scaling_title(family, names)}: {metric}",
            unit=first.metrics[metric].unit,
            noun="ranks",
            positions=tuple(member.world_size for member in members),
            series=(
                *([Series(label="ideal", role="reference", values=ideal)] * (metric != STEP_TIME)),
                *_scaling_series(members, metric),
            ),
        )


def _scaling_series(members: Sequence[Measurement], metric: str) -> Iterator[Series]:
    bounds = [_with_bounds(member, metric) for member in members]
    doubts = [bool(doubtful_flags(member.flags)) for member in members]
    for doubt in (False, True):
        shown = [
            own if here is doubt else (None, None, None)
            for own, here in zip(bounds, doubts, strict=True)
        ]
        values, low, high = zip(*shown, strict=True)
        if any(value is not None for value in values):
            yield Series(
                label="in doubt" if doubt else "measured",
                style="dots" if doubt else "line",
                role="doubt" if doubt else "head",
                values=values,
                low=low,
                high=high,
            )


def _with_bounds(measurement: Measurement, name: str) -> Numbers:
    """A metric with its confidence bounds, each None if missing."""
    names = (name, *confidence_bounds_of(name))
    metrics = [measurement.metrics.get(each) for each in names]
    return tuple(None if metric is None else _finite(metric.value) for metric in metrics)


def matrix_tables(measurements: Sequence[Measurement]) -> Iterator[Table]:
    """A table of devices, and one of precisions: number and ratio to the first of each benchmark.

    Rows of several precisions by several devices are a matrix.
    """
    names = short_names(measurement.id for measurement in measurements).by_id
    for parameter, title in PARAMETERS.items():
        if rows := rows_by(measurements, parameter):
            columns = cells_by_value(rows)
            cells = (map(" ".join, zip(*both, strict=True)) for both in columns.values())
            yield Table(
                title=f"by {title}",
                columns=("benchmark", *columns),
                rows=tuple(zip(row_labels(rows, names), *cells, strict=True)),
                numeric=frozenset(columns),
            )


def _level(
    label: str,
    count: int,
    *,
    value: float | None = None,
    low: float | None = None,
    high: float | None = None,
) -> list[Series]:
    """A line or band of the same numbers at so many positions; nothing without numbers."""
    if value is not None:
        return [Series(label=label, role="reference", values=(value,) * count)]
    if low is None or high is None:
        return []
    ends = {"low": (low,) * count, "high": (high,) * count}
    return [Series(label=label, style="band", role="reference", **ends)]


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _said(title: str, shown: Sized, points: Sized) -> str:
    """The title, with how many of the points are shown if not all."""
    return title if len(shown) == len(points) else f"{title}: {len(shown)} of {len(points)}"
