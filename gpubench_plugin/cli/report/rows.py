"""Rows of a report's table: one per benchmark, the worst first."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from gpubench_plugin.cli.report.subjects import Subject
from gpubench_plugin.compare.matched_metrics import compared_metric
from gpubench_plugin.core.quality_flags import doubtful_flags
from gpubench_plugin.core.records import STEP_TIME, Measurement
from gpubench_plugin.core.verdicts import VERDICT_KINDS, Verdict
from gpubench_plugin.reports.columns import step
from gpubench_plugin.reports.html.page import Row
from gpubench_plugin.reports.names import short_names
from gpubench_plugin.reports.remarks import NOT_IN_TABLE
from gpubench_plugin.reports.verdicts import (
    change_text,
    interval_text,
    number,
    severity,
)


def worst_verdicts(subject: Subject) -> dict[str, Verdict | None]:
    """The worst verdict of each benchmark, None where nothing was compared; the worst first."""
    measurements = subject.head.measurements
    worst: dict[str, Verdict] = {}
    # Of alike ones that of the step time, which has parts.
    for verdict in sorted(subject.comparison.verdicts if subject.comparison else (), key=_rank):
        worst.setdefault(verdict.id, verdict)

    def order(name: str) -> tuple[tuple[int, float], bool, bool]:
        measurement, verdict = measurements.get(name), worst.get(name)
        outcome = measurement.outcome if measurement else "measured"
        is_skipped = outcome in NOT_IN_TABLE
        unjudged = _LAST if is_skipped or outcome == "measured" else _FIRST
        is_trusted = not (measurement and doubtful_flags(measurement.flags))
        return severity(verdict) if verdict else unjudged, is_skipped, is_trusted

    return {name: worst.get(name) for name in sorted({**measurements, **worst}, key=order)}


def _rank(verdict: Verdict) -> tuple[int, bool]:
    return VERDICT_KINDS.index(verdict.kind), not verdict.parts


_FIRST, _LAST = (-1, 0.0), (4, 0.0)


def rows_of(subject: Subject, judged: Mapping[str, Verdict | None]) -> Sequence[Row]:
    """The rows of the `judged` benchmarks, without their histories and details."""
    names = short_names(judged).by_id
    return [_row(subject, name, names[name], verdict) for name, verdict in judged.items()]


def _row(subject: Subject, node_id: str, name: str, verdict: Verdict | None) -> Row:
    measurement = subject.head.measurements.get(node_id)
    metric, value, exact = _value(measurement, verdict)
    change = f"{change_text(verdict)} {interval_text(verdict)}".strip() if verdict else ""
    effect = verdict.effect if verdict else None
    doubts = doubtful_flags(measurement.flags) if measurement else ()
    if subject.is_paired:
        doubts = tuple(filter(None, re.split(r"(?<=\)), ", verdict.doubts if verdict else "")))
    return Row(
        id=node_id,
        name=name,
        outcome=measurement.outcome if measurement else "not_measured",
        metric=metric,
        value=value,
        number=exact,
        change=change,
        change_number=-effect if effect and verdict and verdict.better == "higher" else effect,
        kind=verdict.kind if verdict else "",
        doubts=doubts,
        reason=measurement.reason if measurement else "",
        facets=_facets(measurement),
    )


def _value(
    measurement: Measurement | None, verdict: Verdict | None
) -> tuple[str, str, float | None]:
    """The metric, the number in words and itself: what was judged, else the median step time."""
    metrics = measurement.metrics if measurement else {}
    step_time = metrics.get(STEP_TIME)
    is_own = step_time and verdict and math.isclose(verdict.head or 0.0, step_time.value)
    if verdict and verdict.head is not None and (verdict.metric != STEP_TIME or not is_own):
        return compared_metric(verdict, metrics), number(verdict.head, verdict.unit), verdict.head
    if measurement is None or step_time is None:
        return "", "", None
    return STEP_TIME, step(measurement), step_time.value


def _facets(measurement: Measurement | None) -> Mapping[str, str]:
    if measurement is None:
        return {}
    device = measurement.configuration.get("experiment", {}).get("device", "")
    return {
        "precision": measurement.params.get("precision", ""),
        "ranks": str(measurement.world_size),
        "device": measurement.params.get("torch_device", device),
        "host": measurement.host,
    }
