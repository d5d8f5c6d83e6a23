"""Benchmarks side by side: devices, precisions, numbers of ranks, and variants of a step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gpubench_plugin.compare import scaling
from gpubench_plugin.compare.scaling import EFFICIENCY, SPEED_UP
from gpubench_plugin.core.format import grouped, percentage, ratio, significant
from gpubench_plugin.core.quality_flags import doubtful_flags
from gpubench_plugin.core.records import (
    STEP_TIME,
    Measurement,
    Work,
    confidence_bounds_of,
    is_same_amount,
    speed_up_metric,
)
from gpubench_plugin.reports.columns import metric_column, step, throughput, with_interval
from gpubench_plugin.reports.markup import BOLD, CAUTION, PLAIN, Line, Markup
from gpubench_plugin.reports.names import (
    ShortNames,
    name_room,
    screen_names,
    short_names,
    without_parameter,
)
from gpubench_plugin.reports.table import Column, column, paragraph, table, width_of
from gpubench_plugin.reports.text import NOTHING, cut, digits_for, printable

# Parameters that are compared, with their names for people.
_PARAMETERS: Final[Mapping[str, str]] = {"torch_device": "device", "precision": "precision"}


_Row = Mapping[str, Measurement]
"""One benchmark by value of the parameter."""


def side_by_side_lines(measurements: Sequence[Measurement], width: int) -> list[Line]:
    """A table of devices, and one of precisions, where a benchmark was measured in several.

    Each row is a benchmark, each column a value, in the order of the session. Behind the numbers
    stands how many times as fast it is as with the first value: by the step time, or by throughput
    where the work of a call differs. It is marked where either side is in doubt.
    """
    lines: list[Line] = []
    for compared in compared_values(measurements):
        if lines:
            lines.append((("", PLAIN),))
        lines += _table(compared, width)
    return lines


@dataclass(frozen=True, kw_only=True)
class ComparedValues:
    """Benchmarks by values of a parameter: their `labels`, and of each value numbers and ratios.

    The labels are names without the parameter. Ratios are to the first value; where there is none,
    a cell is empty.
    """

    parameter: str
    labels: list[str]
    cells: Mapping[str, tuple[list[str], list[str]]]


def compared_values(measurements: Sequence[Measurement]) -> Iterator[ComparedValues]:
    """Devices, and precisions, if a benchmark was measured in several."""
    names = short_names(measurement.id for measurement in measurements).by_id
    for parameter, title in _PARAMETERS.items():
        rows = _rows(measurements, parameter)
        firsts = [next(iter(row.items())) for row in rows]
        labels = [without_parameter(names[measured.id], value) for value, measured in firsts]
        if rows:
            yield ComparedValues(parameter=title, labels=labels, cells=_cells(rows))


def _rows(measurements: Sequence[Measurement], parameter: str) -> list[_Row]:
    """Benchmarks measured with at least two values of the `parameter`."""
    having = [m for m in measurements if m.outcome == "measured" and parameter in m.params]
    pairs = ((scaling.family_of(m, parameter), (m.params[parameter], m)) for m in having)
    rows = map(dict, grouped(pairs).values())
    return [row for row in rows if len(row) > 1]


def _cells(rows: Sequence[_Row]) -> dict[str, tuple[list[str], list[str]]]:
    show = throughput if any(map(_has_different_work, rows)) else step
    values = list(dict.fromkeys(value for row in rows for value in row))
    return {
        value: (
            [show(row[value]) if value in row else "" for row in rows],
            [_relative(row, value, values[0]) for row in rows],
        )
        for value in values
    }


def _table(compared: ComparedValues, total: int) -> Iterator[Line]:
    """Numbers and ratios by value; where they do not fit, ratios only."""
    labels = compared.labels
    short = ShortNames(by_id={label: label for label in labels}).fitting(name_room(total))
    first = Column(title=f"by {compared.parameter}", cells=short.of(labels))
    wide: list[Column] = []
    narrow: list[Column] = []
    for value, (cells, relative) in compared.cells.items():
        wide += [column(value, cells, numeric=True), column("", relative, numeric=True)]
        narrow.append(column(value, relative, numeric=True))
    columns = wide if first.width + width_of(wide) <= total else narrow
    return table([first, *columns], total=total, nothing=NOTHING)


def _relative(row: _Row, value: str, reference: str) -> str:
    """``2.31x``: how many times as fast as with the `reference`; empty without one of both."""
    measurement, base = row.get(value), row.get(reference)
    if measurement is None or base is None:
        return ""
    is_rate = _has_different_work({reference: base, value: measurement})
    name = scaling.rate_of([measurement, base]) if is_rate else STEP_TIME
    if name is None or name not in measurement.metrics.keys() & base.metrics.keys():
        return ""
    numbers = measurement.metrics[name].value, base.metrics[name].value
    speed = numbers[0] / numbers[1] if is_rate else numbers[1] / numbers[0]
    is_doubtful = measurement is not base and doubtful_flags((*measurement.flags, *base.flags))
    return f"≈{ratio(speed, 1)}" if is_doubtful else ratio(speed)


def _has_different_work(by_value: Mapping[str, Measurement]) -> bool:
    """Whether calls of the benchmark do different amounts of work."""
    first, *others = (measurement.work or Work() for measurement in by_value.values())
    return any(
        not is_same_amount(getattr(first, name), getattr(other, name))
        for other in others
        for name in ("samples", "tokens", "bytes")
    )


def scaling_lines(measurements: Sequence[Measurement], width: int) -> list[Line]:
    """Speed-up and efficiency of each benchmark measured on several world sizes.

    Both are metrics, see :mod:`gpubench_plugin.compare.scaling`: a benchmark without a work count
    has neither, nor has a doubtful one, or one whose ratio ranks cannot explain. Other threads per
    rank may.
    """
    groups = scaling.families(measurements)
    if not groups:
        return []
    names = short_names(measurement.id for measurement in measurements).by_id
    titles = [cut(scaling_title(group, names), width) for group in groups]
    above = [title for group, title in zip(groups, titles, strict=True) for _ in group]
    columns = _scaling_columns([row for group in groups for row in group])
    return [*table(columns, total=width, nothing=NOTHING, groups=above)]


def _scaling_columns(rows: Sequence[Measurement]) -> list[Column]:
    shares = (("speed-up", SPEED_UP, significant), ("efficiency", EFFICIENCY, percentage))
    return [
        column("  ranks", [m.world_size for m in rows], numeric=True),
        column("threads", [m.machine.get("torch.threads", "") for m in rows], numeric=True),
        column("step", [step(m) for m in rows], numeric=True),
        metric_column(rows, "throughput"),
        *(
            column(title, [with_interval(m, name, show) for m in rows], numeric=True)
            for title, name, show in shares
        ),
    ]


def scaling_title(group: Sequence[Measurement], names: Mapping[str, str]) -> str:
    """The name of the group, which has no world size, with the kind of scaling."""
    name = without_parameter(names[group[0].id], f"ranks{group[0].world_size}")
    kind = scaling.kind_of(group)
    return f"{name} ({kind} scaling)" if kind else name


def variant_lines(measurements: Sequence[Measurement], width: int) -> list[Line]:
    """One line per variant but the first of its benchmark: its speed-up over that one."""
    names = screen_names((measurement.id for measurement in measurements), width)
    return [
        line
        for measurement in measurements
        for sentence, markup in _sentences(measurement)
        for line in paragraph(f"{names[measurement.id]}: {sentence}", width, markup)
    ]


def _sentences(measurement: Measurement) -> Iterator[tuple[str, Markup]]:
    variants = measurement.variants
    records = measurement.correctness.get("variants", ())
    for variant, record in zip(variants[1:], records[1:], strict=True):
        metric = speed_up_metric(variant, len(variants))
        if "no_conclusion" in record:
            # The ratio of the medians contradicts that of the turns: neither is trusted.
            by_turns, by_medians = (
                ratio(record["no_conclusion"][key], 2) for key in ("turns", "medians")
            )
            sentence = (
                f"≈ no conclusion: {printable(variant)} is {by_turns} as fast as "
                f"{printable(variants[0])} by the turns, {by_medians} by the medians of the "
                "rounds: slow calls disturbed the turns; repeat"
            )
            yield sentence, CAUTION
        elif metric in measurement.metrics:
            yield _sentence(measurement, metric, variant, variants[0])


def _sentence(
    measurement: Measurement, metric: str, variant: str, reference: str
) -> tuple[str, Markup]:
    """``compiled is 1.82x (1.79 .. 1.86) as fast as eager``, and how it is marked."""
    value = measurement.metrics[metric].value
    low, high = map(measurement.metrics.get, confidence_bounds_of(metric))
    subject, tail = f"{printable(variant)} is", f"as fast as {printable(reference)}"
    rough = f"≈ {subject} {ratio(value, 1)} {tail}"
    if low is None or high is None:
        return f"{rough}: too few turns for an interval", CAUTION
    bounds = low.value, high.value
    is_doubtful = bool(doubtful_flags(measurement.flags))
    is_visible = not bounds[0] <= 1 <= bounds[1]
    if is_doubtful and is_visible:
        return rough, CAUTION
    # Ends need a digit more than the value, or an interval of 1% would end where it begins.
    digits = 2 if is_doubtful else max(3, digits_for((bounds[1] - bounds[0]) / 2 / value))
    ends = " .. ".join(significant(bound, digits) for bound in bounds)
    if is_visible:
        return f"{subject} {ratio(value, digits)} ({ends}) {tail}", BOLD
    sentence = f"no difference visible: {subject} {ends} times {tail}"
    return (f"≈ {sentence}", CAUTION) if is_doubtful else (sentence, PLAIN)
