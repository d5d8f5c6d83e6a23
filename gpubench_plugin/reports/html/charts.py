"""The charts of measurements, training curves, explanations, histories and scaling; pure.

A chart has at most :data:`MOST_POSITIONS`, evenly chosen. Numbers are those of the records; one
that is not finite is none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from itertools import chain
from typing import Final, Literal

from gpubench_plugin.compare.scaling import families, rate_of
from gpubench_plugin.core.format import counted, grouped, listed, short_commit
from gpubench_plugin.core.quality_flags import doubtful_flags
from gpubench_plugin.core.records import STEP_TIME, Measurement, confidence_bounds_of
from gpubench_plugin.reports.explanation import Explanation, PlotPoint, Role, split_verdict
from gpubench_plugin.reports.html.chart import Chart, Numbers, Series
from gpubench_plugin.reports.html.page import History, KnownRun, Table
from gpubench_plugin.reports.names import short_names
from gpubench_plugin.reports.side_by_side import compared_values, scaling_title
from gpubench_plugin.reports.text import evenly_chosen
from gpubench_plugin.reports.verdicts import kind_text
from gpubench_plugin.results.progress import Curve

MOST_POSITIONS: Final = 500

Side = Literal["base", "head"]
_Place = tuple[float, PlotPoint | None]
_Number = tuple[Numbers, Sequence[str]]
"""A value with the ends of its interval as far as there are any, and its doubts."""

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
            *_band(interval, (low, high), len(shown)),
            *_series("median", [((median,), ())] * len(shown), role="reference"),
            *_series("round", [((rounds[index],), doubts) for index in shown], "dots"),
        ),
    )


def ranks_chart(measurement: Measurement) -> Chart | None:
    """The skew of several ranks: the median of each, and the range of most of its durations."""
    ranks, doubts = measurement.ranks, doubtful_flags(measurement.flags)
    if len(ranks) < 2:
        return None
    has_hosts = len({rank.host for rank in ranks}) > 1
    numbers = [((rank.median_s, rank.p5_s, rank.p95_s), doubts) for rank in ranks]
    return Chart(
        title="time of each rank",
        unit="s",
        noun="rank",
        positions=tuple(rank.rank for rank in ranks),
        names=tuple(f"{rank.rank} ({rank.host})" for rank in ranks) if has_hosts else (),
        series=tuple(_series("median, 5th to 95th percentile", numbers, "dots")),
    )


def curve_charts(sides: Mapping[Side, Iterable[Curve]]) -> Iterator[Chart]:
    """The losses, accuracies and logged numbers of a benchmark, of both sides over each other.

    A mark tells where one is not finite for the first time.
    """
    found: dict[tuple[str, str], dict[Side, dict[int, float]]] = {}
    for side, curves in sides.items():
        for curve in curves:
            if curve.event != "training_step" or curve.name == "loss":
                points = dict(zip(curve.steps, curve.values, strict=True))
                found.setdefault((curve.event, curve.name), {})[side] = points
    for (event, name), by_side in found.items():
        steps = sorted({step for points in by_side.values() for step in points})
        shown = evenly_chosen(steps, MOST_POSITIONS)
        title = f"{name} of each {event}" if event in {"epoch", "evaluation"} else name
        lost = {s: [at for at in own if not math.isfinite(own[at])] for s, own in by_side.items()}
        series = (
            _series(
                side if len(sides) > 1 else name, [((own.get(at),), ()) for at in shown], role=side
            )
            for side, own in by_side.items()
        )
        yield Chart(
            title=_said(title, shown, steps),
            unit="fraction" if name.endswith("accuracy") else "",
            noun="step",
            positions=tuple(shown),
            series=tuple(chain.from_iterable(series)),
            marks=tuple((min(at), f"{side}: not finite") for side, at in lost.items() if at),
        )


def points_charts(explanation: Explanation) -> Iterator[Chart]:
    """The points of each metric; a pair of launches is joined, and each look at them a mark."""
    for metric, unit in explanation.units.items():
        points = [point for point in explanation.points if metric in point.values]
        shown = evenly_chosen(points, MOST_POSITIONS)
        places = [*_places(shown)]
        is_numbered = explanation.noun == "round"
        if points:
            yield Chart(
                title=_said(f"{metric} of each {explanation.noun}", shown, points),
                unit=unit,
                noun="pair" if any(point.pair for point in points) else explanation.noun,
                positions=tuple(at for at, _ in places),
                names=() if is_numbered else tuple(p.label if p else "" for _, p in places),
                series=tuple(_point_series(places, metric)),
                marks=tuple(_look_marks(explanation, metric)),
            )


def _places(points: Sequence[PlotPoint]) -> Iterator[_Place]:
    """The points by position, with nothing between two pairs."""
    yield from (place for place in enumerate(points, start=1) if not place[1].pair)
    pairs = grouped((point.pair, point) for point in points if point.pair)
    for pair, own in sorted(pairs.items()):
        yield pair - _BESIDE, own[0]
        yield from ((pair + _BESIDE, point) for point in own[1:])
        yield pair + 0.5, None


def _point_series(places: Sequence[_Place], metric: str) -> Iterator[Series]:
    points = [point for _, point in places]
    if any(point and point.pair for point in points):
        values = tuple(_finite(point.values[metric]) if point else None for point in points)
        yield Series(label="pair", style="pairs", role="reference", values=values)
    for role in sorted({point.role for point in points if point}):
        numbers = [
            ((p.values[metric],), doubtful_flags(p.flags)) if p and p.role == role else ((), ())
            for p in points
        ]
        yield from _series(role, numbers, "dots", _COLOURS.get(role, "head"))


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
    doubts = {index: (text,) for index, text in history.doubts.items()}
    numbers = [((history.values[index],), doubts.get(index, ())) for index in shown]
    band = _band("interval of the baseline", history.band or (None, None), len(shown))
    return Chart(
        title=_said(history.metric, shown, every),
        unit=history.unit,
        noun="run",
        positions=tuple(index + 1 for index in shown),
        names=tuple(short_commit(run.commit) or run.run_id for run in known),
        series=(*band, *_series("measured", numbers)),
        marks=tuple((index + 1, text) for index, text in history.levels if index in shown),
    )


def scaling_charts(measurements: Sequence[Measurement]) -> Iterator[Chart]:
    """Throughput over ranks beside the ideal one, or the step time where there is no rate."""
    names = short_names(measurement.id for measurement in measurements).by_id
    for family in families(measurements):
        metric = rate_of(family) or STEP_TIME
        members = [member for member in family if metric in member.metrics]
        numbers = [(_with_bounds(m, metric), doubtful_flags(m.flags)) for m in members]
        if not members:
            continue
        first, ranks = members[0].metrics[metric], [member.world_size for member in members]
        ideal = [((first.value * count / ranks[0],), ()) for count in ranks * (metric != STEP_TIME)]
        yield Chart(
            title=f"{scaling_title(family, names)}: {metric}"
            f"{'' if ideal else ', without an ideal: no amount of work is recorded'}",
            unit=first.unit,
            noun="ranks",
            positions=tuple(ranks),
            series=(*_series("ideal", ideal, role="reference"), *_series("measured", numbers)),
        )


def _with_bounds(measurement: Measurement, name: str) -> Numbers:
    """A metric with its confidence bounds, each None if missing."""
    metrics = (measurement.metrics.get(each) for each in (name, *confidence_bounds_of(name)))
    return tuple(None if metric is None else metric.value for metric in metrics)


def matrix_tables(measurements: Sequence[Measurement]) -> Iterator[Table]:
    """A table of devices, and one of precisions: number and ratio to the first of each benchmark.

    Rows of several precisions by several devices are a matrix.
    """
    for compared in compared_values(measurements):
        pairs = (zip(*both, strict=True) for both in compared.cells.values())
        cells = ([f"{number} ({ratio})".removesuffix(" ()") for number, ratio in p] for p in pairs)
        yield Table(
            title=f"by {compared.parameter}: step time, or throughput where the work differs",
            columns=("benchmark", *compared.cells),
            rows=tuple(zip(compared.labels, *cells, strict=True)),
            numeric=frozenset(compared.cells),
        )


def _series(
    label: str,
    numbers: Sequence[_Number],
    style: Literal["line", "dots"] = "line",
    role: Literal["base", "head", "reference"] = "head",
) -> Iterator[Series]:
    """The numbers, and beside them those in doubt; without any there is none."""
    for is_doubtful in (False, True):
        shown = [own if bool(doubts) is is_doubtful else () for own, doubts in numbers]
        columns = zip(*((*map(_finite, own), None, None, None)[:3] for own in shown), strict=True)
        doubts = dict.fromkeys(doubt for _, own in numbers for doubt in own)
        if any(value is not None for own in shown for value in own):
            values, *ends = columns
            low, high = ends if any(end is not None for end in (*ends[0], *ends[1])) else ((), ())
            yield Series(
                label=f"{label}, in doubt: {listed([*doubts])}" if is_doubtful else label,
                style="dots" if is_doubtful else style,
                role=("doubt" if role == "head" else "base_doubt") if is_doubtful else role,
                values=values,
                low=low,
                high=high,
            )


def _band(label: str, ends: Numbers, count: int) -> Iterator[Series]:
    """A band at so many positions, if it has both ends."""
    if None not in ends:
        low, high = ((end,) * count for end in ends)
        yield Series(label=label, style="band", role="reference", low=low, high=high)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _said(title: str, shown: Sized, points: Sized) -> str:
    """The title, with how many of the points are shown if not all."""
    return title if len(shown) == len(points) else f"{title}: {len(shown)} of {len(points)}"
