"""Details of a benchmark in a report: verdict, pictures, operators, metrics, configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gpubench_plugin.cli.report.repeat import repeat_command
from gpubench_plugin.cli.report.subjects import Subject
from gpubench_plugin.core.format import duration, percentage
from gpubench_plugin.core.records import Json, Measurement
from gpubench_plugin.environment.fingerprints import flat
from gpubench_plugin.reports.columns import metric_text
from gpubench_plugin.reports.explanation import LOOK_COLUMNS, Explanation, verdict_text
from gpubench_plugin.reports.html import charts
from gpubench_plugin.reports.html.page import Command, Section, Table
from gpubench_plugin.reports.verdicts import signed
from gpubench_plugin.results.progress import Curve

Curves = Mapping[charts.Side, Sequence[Curve]]
_LEFT = frozenset({"operator", "metric", "verdict", "key", "value", "source"})


def details(subject: Subject, name: str, curves: Curves) -> Iterator[Section]:
    """The sections of a benchmark; `curves` are those of its training on each side."""
    explanation = subject.explain(name)
    yield _verdict(explanation)
    parts = [part for each in explanation.advice for part in (each.text, Command(each.command))]
    if texts := tuple(part for part in parts if part != Command("")):
        yield Section(title="What helps", texts=texts)
    measured = {n: m for n, side in subject.sides.items() if (m := side.measurement(name))}
    head, of = measured.get("head"), ", last launch" * subject.is_paired
    pictures = [*charts.curve_charts(curves)]
    if head is not None:
        rounds = None if explanation.noun == "round" else charts.rounds_chart(head)
        pictures += filter(None, [rounds, charts.ranks_chart(head)])
    if pictures:
        yield Section(title=f"How it was measured{of}", charts=tuple(pictures))
    yield from _operators(measured, of)
    yield from _metrics(measured, of)
    if head is not None:
        yield from _settings(head)
        yield Section(title="Repeat", texts=(Command(repeat_command(subject, head)),))


def _verdict(explanation: Explanation) -> Section:
    """What a terminal shows of an explanation, with its points, of more than two, and looks."""
    texts = [explanation.subject]
    for verdict in explanation.verdicts:
        texts += [verdict_text(verdict), *explanation.limit_texts(verdict)]
    for title, remarks in explanation.remarks.items():
        texts += [f"{title}: {'; '.join(remarks)}"] * bool(remarks)
    looks = explanation.look_rows
    tables = [_table("Looks, recomputed from the recorded launches", LOOK_COLUMNS, looks)]
    return Section(
        title="Verdict" if explanation.verdicts else "Measurement",
        texts=tuple(texts),
        charts=tuple(charts.points_charts(explanation) if len(explanation.points) > 2 else ()),
        tables=tuple(tables * bool(looks)),
    )


def _metrics(measured: Mapping[charts.Side, Measurement], of: str) -> Iterator[Section]:
    """All metrics; of two sides with the change from the base to the head."""
    change = ("change",) * (len(measured) > 1)
    rows = []
    for name in dict.fromkeys(metric for each in measured.values() for metric in each.metrics):
        both = [each.metrics[name].value for each in measured.values() if name in each.metrics]
        effect = both[-1] / both[0] - 1 if len(both) > 1 and both[0] else None
        texts = [metric_text(each, name) for each in measured.values()]
        rows.append((name, *texts, *(signed(effect) for _ in change)))
    if rows:
        yield _folded(f"Metrics{of}", ("metric", *measured, *change), rows)


def _operators(measured: Mapping[charts.Side, Measurement], of: str) -> Iterator[Section]:
    """Operators by own time per step; of two sides by the difference of it."""
    sides = {
        side: {row["name"]: row for row in each.correctness["operators"]["operators"]}
        for side, each in measured.items()
        if "operators" in each.correctness
    }
    if not any(sides.values()):
        return
    own_s = [
        (name, [rows.get(name, {}).get("self_s", 0.0) for rows in sides.values()])
        for name in dict.fromkeys(name for rows in sides.values() for name in rows)
    ]
    has_two = len(sides) > 1
    own_s.sort(key=lambda entry: -abs(entry[1][-1] - entry[1][0] * has_two))
    total_s = sum(times[-1] for _, times in own_s) or 1.0

    def cells(name: str, times: Sequence[float]) -> Iterator[str]:
        yield name
        yield from map(duration, times)
        yield duration(times[-1] - times[0]) if has_two else percentage(times[0] / total_s)
        for rows in sides.values():
            yield f"{rows[name]['calls']:.3g}" if name in rows else ""

    columns = ("operator", *(f"own time, {side}" for side in sides))
    columns += ("difference" if has_two else "share", *(f"calls, {side}" for side in sides))
    table = _table("Per step, by own time", columns, [tuple(cells(*each)) for each in own_s])
    yield Section(title=f"Operators{of}", tables=(table,))


def _settings(measurement: Measurement) -> Iterator[Section]:
    """The configuration with its sources, those that are no defaults first; own facts."""
    sources: Mapping[str, str] = measurement.sources
    configuration: Json = flat(measurement.configuration) if measurement.configuration else {}
    order = sorted(configuration, key=lambda key: key not in sources)
    if order:
        rows = [(key, str(configuration[key]), sources.get(key, "default")) for key in order]
        yield _folded("Configuration", ("key", "value", "source"), rows)
    if own := measurement.machine:
        facts = [(key, "absent" if fact is None else str(fact)) for key, fact in own.items()]
        yield _folded("Environment of its ranks or node", ("key", "value"), facts)


def _folded(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Section:
    return Section(title=title, tables=(_table(title, columns, rows),), is_open=False)


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    cells, numeric = tuple(map(tuple, rows)), frozenset(columns) - _LEFT
    return Table(title=title, columns=tuple(columns), rows=cells, numeric=numeric)
