"""Rows of a report's table: one per benchmark, the worst first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpubench_plugin.cli.report.subjects import Subject
from gpubench_plugin.core.quality_flags import doubtful_flags
from gpubench_plugin.core.records import STEP_TIME, Measurement
from gpubench_plugin.core.verdicts import VERDICT_KINDS, Verdict
from gpubench_plugin.reports.columns import step
from gpubench_plugin.reports.html.page import History, Row
from gpubench_plugin.reports.names import short_names
from gpubench_plugin.reports.remarks import NOT_IN_TABLE
from gpubench_plugin.reports.verdicts import (
    change_text,
    interval_text,
    kind_text,
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

    def order(name: str) -> tuple[bool, tuple[int, float], bool]:
        measurement, verdict = measurements.get(name), worst.get(name)
        failed = measurement is not None and measurement.outcome not in {"measured", *NOT_IN_TABLE}
        doubtful = measurement is not None and bool(doubtful_flags(measurement.flags))
        return not failed or verdict is not None, severity(verdict) if verdict else _LAST, doubtful

    return {name: worst.get(name) for name in sorted({**measurements, **worst}, key=order)}


def _rank(verdict: Verdict) -> tuple[int, bool]:
    return VERDICT_KINDS.index(verdict.kind), not verdict.parts


_LAST = (4, 0.0)


def rows_of(
    subject: Subject, judged: Mapping[str, Verdict | None], histories: Mapping[str, History]
) -> Sequence[Row]:
    """The rows of the `judged` benchmarks, without their details."""
    names = short_names(judged).by_id
    return [
        _row(subject, name, names[name], verdict, histories.get(name))
        for name, verdict in judged.items()
    ]


def _row(
    subject: Subject, node_id: str, name: str, verdict: Verdict | None, history: History | None
) -> Row:
    measurement = subject.head.measurements.get(node_id)
    value, exact = _value(subject, measurement, verdict)
    change = f"{change_text(verdict)} {interval_text(verdict)}".strip() if verdict else ""
    effect = verdict.effect if verdict else None
    is_other = verdict and change and verdict.metric not in {"", STEP_TIME} and not verdict.parts
    doubts = doubtful_flags(measurement.flags) if measurement else ()
    if subject.is_paired:
        doubts = tuple(filter(None, [verdict.doubts if verdict else ""]))
    return Row(
        id=node_id,
        name=name,
        outcome=measurement.outcome if measurement else "not_measured",
        value=value,
        number=exact,
        change=f"{verdict.metric} {change}" if verdict and is_other else change,
        change_number=-effect if effect and verdict and verdict.better == "higher" else effect,
        kind=verdict.kind if verdict else "",
        doubts=doubts,
        reason=measurement.reason if measurement else "",
        facets=_facets(measurement),
        history=history,
    )


def _value(
    subject: Subject, measurement: Measurement | None, verdict: Verdict | None
) -> tuple[str, float | None]:
    """The step time with its interval; of pairs the head's median of what was judged."""
    if subject.is_paired and verdict is not None and verdict.head is not None:
        return number(verdict.head, verdict.unit), verdict.head
    if measurement is None:
        return (kind_text(verdict.kind), None) if verdict else ("", None)
    metric = measurement.metrics.get(STEP_TIME)
    return step(measurement), metric.value if metric else None


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
