"""Pages of reports, gathered from a subject, its histories and its details."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import groupby
from typing import Final

from gpubench_plugin.baselines.trend import HistorySource
from gpubench_plugin.cli.report.details import Curves, details
from gpubench_plugin.cli.report.histories import histories
from gpubench_plugin.cli.report.rows import rows_of, worst_verdicts
from gpubench_plugin.cli.report.subjects import Subject
from gpubench_plugin.core.format import rough_duration, short_commit
from gpubench_plugin.core.records import OUTCOMES, Measurement, Run
from gpubench_plugin.core.verdicts import VERDICT_KINDS, Verdict
from gpubench_plugin.reports.html import charts
from gpubench_plugin.reports.html.page import Link, Page, Row, Section, Table
from gpubench_plugin.reports.markup import plain
from gpubench_plugin.reports.names import short_names
from gpubench_plugin.reports.reasons import reasons
from gpubench_plugin.reports.remarks import Remarks
from gpubench_plugin.reports.verdicts import (
    change_text,
    difference_text,
    interval_text,
    kind_text,
    number,
)

MOST_DETAILED: Final = 50
LATEST: Final = 60
"""Runs of a history, unless told otherwise."""
_MOST_LED: Final = 10
_LEFT_OUT: Final = f"details of {{}} of {{}}: the worst {MOST_DETAILED} have them, --detail adds"
_UNWRAPPED: Final = 1 << 20  # columns


def page_of(
    subject: Subject,
    source: HistorySource,
    *,
    named: Collection[str] = (),
    last: int,
    links: Sequence[Link] = (),
) -> Page:
    """The page of a `subject`: details of its worst 50 benchmarks and of those `named`.

    `last` runs of the `source` make the histories.
    """
    judged = worst_verdicts(subject)
    head = replace(subject.head.run, results={}) if subject.is_paired else subject.head.run
    rows, runs = histories(source, rows_of(subject, judged), judged, head=head, limit=last)
    chosen = {row.id for number, row in enumerate(rows) if number < MOST_DETAILED} | {*named}
    measurements = [*subject.head.measurements.values()]
    left_out = len(rows) - len(chosen)
    return Page(
        title=subject.title,
        subject=_subject_text(subject),
        facts=tuple(fact for fact in _facts(subject) if fact[1]),
        headline=_headline(subject),
        lead=tuple(_lead(judged)),
        sections=(
            *_section("Notes", subject.comparison.notes if subject.comparison else ()),
            *_remarks(measurements, judged),
            *_differences(subject),
            *_section("Left out", [_LEFT_OUT.format(left_out, len(rows))] * bool(left_out)),
        ),
        rows=tuple(_detailed(subject, rows, chosen)),
        runs=runs,
        across=tuple(_across(subject, measurements)),
        links=tuple(links),
    )


def _detailed(subject: Subject, rows: Sequence[Row], chosen: Collection[str]) -> Iterator[Row]:
    curves = {
        name: {n: [*own] for n, own in groupby(side.curves(), lambda curve: curve.benchmark)}
        for name, side in subject.sides.items()
    }
    for row in rows:
        own: Curves = {side: by_name.get(row.id, ()) for side, by_name in curves.items()}
        sections = tuple(details(subject, row.id, own)) if row.id in chosen else ()
        yield replace(row, sections=sections)


def _subject_text(subject: Subject) -> str:
    comparison = subject.comparison
    if comparison is None:
        return "a run, compared with no other"
    if subject.base is None:
        return f"a run, judged against {comparison.base or 'earlier runs'}"
    kind = "launches measured in turns" if subject.is_paired else "two runs"
    return f"{kind}: head {comparison.head}, base {comparison.base}"


def _facts(subject: Subject) -> Iterator[tuple[str, str]]:
    """What was measured, where, when, by which commit, and how."""
    run = subject.head.run
    counts = Counter(m.outcome for m in subject.head.measurements.values())
    outcomes = (f"{counts[o]} {kind_text(o)}" for o in OUTCOMES if counts[o])
    yield "benchmarks", ", ".join(outcomes)
    verdicts = subject.comparison.verdicts if subject.comparison else ()
    yield "verdicts", f"{len(verdicts)}, of each benchmark the worst in the table" * bool(verdicts)
    machine = {**run.environment, **run.machine}
    devices = {key: str(fact) for key, fact in machine.items() if key.startswith("devices.")}
    yield "device", ", ".join(f"{k.removeprefix('devices.')} ({v})" for k, v in devices.items())
    yield "host", str(machine.get("hostname", ""))
    yield "started", _time(run)
    yield "commit", _commit(run)
    if subject.base is not None:
        yield "base", ", ".join(filter(None, (_time(subject.base.run), _commit(subject.base.run))))
    versions = {n: machine.get(f"packages.{n}") for n in ("torch", "numpy", "pytest-gpubench")}
    software = {"Python": machine.get("python.version"), **versions}
    yield "software", ", ".join(f"{name} {v}" for name, v in software.items() if v)
    yield "command", subject.command


def _time(run: Run) -> str:
    if not run.started:
        return ""
    started = datetime.fromisoformat(run.started)
    text = f"{started:%Y-%m-%d %H:%M:%S} UTC"
    if run.finished:
        seconds = (datetime.fromisoformat(run.finished) - started).total_seconds()
        text += f", {rough_duration(seconds)}"
    return text


def _commit(run: Run) -> str:
    dirty = " with uncommitted changes" * bool(run.dirty)
    branch = f" on {run.branch}" * bool(run.branch)
    return f"{short_commit(run.commit)}{branch}{dirty}" if run.commit else ""


def _headline(subject: Subject) -> tuple[tuple[str, str], ...]:
    if subject.comparison is not None:
        comparison = subject.comparison
        return tuple((k, str(comparison.count(k))) for k in VERDICT_KINDS if comparison.count(k))
    counts = Counter(m.outcome for m in subject.head.measurements.values())
    return tuple((outcome, str(counts[outcome])) for outcome in OUTCOMES if counts[outcome])


def _lead(judged: dict[str, Verdict | None]) -> Iterator[str]:
    """A sentence for each benchmark that changed, the worst first."""
    names = short_names(judged).by_id
    changes = [
        verdict
        for verdict in judged.values()
        if verdict and verdict.kind in {"regressed", "errored", "improved"}
    ]
    for verdict in changes[:_MOST_LED]:
        values = [number(value, verdict.unit) for value in (verdict.base, verdict.head)]
        change = f"{change_text(verdict)} {interval_text(verdict)}".strip()
        facts = [
            f"{verdict.metric} {' → '.join(values)}" if all(values) else "",
            change,
            f"limit {verdict.limit}" if verdict.limit else "",
            f"in doubt: {verdict.doubts}" if verdict.doubts else "",
        ]
        text = ", ".join(filter(None, facts)) or verdict.reason
        yield f"{names[verdict.id]} {kind_text(verdict.kind)}: {text}"
    if len(changes) > _MOST_LED:
        yield f"and {len(changes) - _MOST_LED} more in the table"


def _remarks(
    measurements: Sequence[Measurement], judged: Mapping[str, Verdict | None]
) -> Iterator[Section]:
    """Failures, doubts and what was not measured, each cause once; verdicts tell theirs."""
    names = short_names(m.id for m in measurements).by_id
    untold = [measurement for measurement in measurements if not judged.get(measurement.id)]
    remarks, own = (Remarks(some, names, _UNWRAPPED) for some in (measurements, untold))
    yield from _section("Failures", map(plain, own.failures()))
    yield from _section("In doubt", map(plain, remarks.doubts(())))
    yield from _section("Remarks", map(plain, remarks.notes(())))
    yield from _section("Not measured", map(plain, own.left_out()))


def _differences(subject: Subject) -> Iterator[Section]:
    """Why verdicts are as they are, and in what the environments differ."""
    comparison = subject.comparison
    if comparison is None:
        return
    labels = short_names(verdict.id for verdict in comparison.verdicts).by_id
    causes = [
        f"{names}: {'; '.join(clauses)}" if names else "; ".join(clauses)
        for _, names, clauses in reasons([comparison], labels)
    ]
    yield from _section("Why", causes)
    yield from _section(
        "Environment differences", map(difference_text, comparison.environment_differences)
    )


def _section(title: str, texts: Sequence[str] | Iterator[str]) -> Iterator[Section]:
    if lines := tuple(texts):
        yield Section(title=title, texts=lines)


def _across(subject: Subject, measurements: Sequence[Measurement]) -> Iterator[Section]:
    """Scaling, precisions by devices, and the environment."""
    of = ", last launch" * subject.is_paired
    if scaling := tuple(charts.scaling_charts(measurements)):
        yield Section(title=f"Scaling{of}", charts=scaling)
    if matrices := tuple(charts.matrix_tables(measurements)):
        yield Section(title=f"Side by side{of}", tables=matrices)
    run = subject.head.run
    facts = sorted({**run.environment, **run.machine}.items())
    if facts:
        cells = tuple((key, str(fact)) for key, fact in facts)
        table = Table(title="Facts of the run", columns=("key", "value"), rows=cells)
        yield Section(title="Environment", tables=(table,), is_open=False)
