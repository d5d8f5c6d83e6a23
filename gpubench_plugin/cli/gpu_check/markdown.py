"""The record as Markdown: what holds, what does not, the numbers, and what stays unproven."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from gpubench_plugin.cli.gpu_check.record import Band, Criterion, GpuCheck, Row, StageResult
from gpubench_plugin.core.words import byte_size, percentage, significant
from gpubench_plugin.reports import github
from gpubench_plugin.reports.text import seconds

_SIGNS: Final = {"at_most": "≤", "at_least": "≥", "equal": "="}


def page(record: GpuCheck) -> str:
    """The page of a record; everything in it that the machine says is escaped."""
    sections = (
        _head(record),
        _stages(record.stages),
        _criteria("Criteria that were not met", record.stages, passed=False),
        _rows(record.rows),
        _bands(record.rows),
        _criteria("Criteria that were met", record.stages, passed=True),
        _unproven(record.unproven),
    )
    return "\n".join(
        "".join(f"{line}\n" for line in lines) for lines in map(list, sections) if lines
    )


def _head(record: GpuCheck) -> Iterator[str]:
    device = record.device or {}
    name = github.escaped(str(device.get("name", "no GPU")))
    end = record.finished or "not finished"
    times = f"{record.started} to {end}, {record.budget_s:.0f} s at most"
    yield f"**{name}**, part {record.part}, {times}"
    facts = [f"{key} {value}" for key, value in device.items() if key not in {"name", "uuid"}]
    facts += [f"{key} {value}" for key, value in record.versions.items()]
    if facts:
        yield ""
        yield github.escaped(", ".join(facts))


def _stages(results: Sequence[StageResult]) -> Iterator[str]:
    yield from _table_head(("stage", "outcome", "seconds", "limit", "criteria met", "reason"))
    for result in results:
        met = sum(criterion.passed for criterion in result.criteria)
        yield _line(
            (
                result.name,
                f"**{result.outcome}**",
                f"{result.seconds:.0f}",
                f"{result.limit_s:.0f}",
                f"{met} of {len(result.criteria)}" if result.criteria else "",
                github.escaped(result.reason),
            )
        )


def _criteria(title: str, results: Sequence[StageResult], *, passed: bool) -> Iterator[str]:
    chosen = [(r.name, c) for r in results for c in r.criteria if c.passed == passed]
    if not chosen:
        return
    yield f"**{title}**"
    yield ""
    yield from _table_head(("stage", "criterion", "value", "limit"))
    for stage, criterion in chosen:
        value = "unknown" if criterion.value is None else _number(criterion.value, criterion)
        limit = f"{_SIGNS[criterion.bound]} {_number(criterion.limit, criterion)}"
        yield _line((stage, github.escaped(criterion.name), value, limit))


def _number(value: float, criterion: Criterion) -> str:
    separator = "" if criterion.unit == "%" else " "
    return f"{value:.4g}{separator}{criterion.unit}".rstrip()


def _rows(rows: Sequence[Row]) -> Iterator[str]:
    if not rows:
        return
    yield from _table_head(
        ("benchmark", "step", "interval", "rate", "MFU", "peak memory", "loop by hand", "flags")
    )
    for row in rows:
        if row.outcome != "measured":
            yield _line(
                (github.code(row.id), f"**{row.outcome}**", *[""] * 5, github.escaped(row.reason))
            )
            continue
        yield _line(
            (
                github.code(row.id),
                _optional(row.step_time_s, seconds),
                "" if row.interval_s is None else " to ".join(map(seconds, row.interval_s)),
                _rate(row),
                _optional(row.mfu, percentage),
                _optional(row.peak_memory_bytes, byte_size),
                _optional(row.bare_s, seconds),
                github.escaped(", ".join(row.flags)),
            )
        )


def _optional(value: float | None, text: Callable[[float], str]) -> str:
    return "" if value is None else text(value)


def _rate(row: Row) -> str:
    return "" if row.rate is None else f"{significant(row.rate, 4)} {row.rate_unit}"


def _bands(rows: Iterable[Row]) -> Iterator[str]:
    """Published figures beside those that were measured; the hardware need not be the same."""
    pairs = [(row, band) for row in rows for band in row.bands]
    if not pairs:
        return
    yield from _table_head(
        ("benchmark", "measured", "published", "on", "settings", "date", "source")
    )
    for row, band in pairs:
        yield _line(
            (
                github.code(row.id),
                _rate(row),
                _published(band),
                github.escaped(band.device),
                github.escaped(band.settings),
                github.escaped(band.date),
                band.source,
            )
        )


def _published(band: Band) -> str:
    return f"{significant(band.value, 4)} {band.unit}"


def _unproven(statements: Sequence[str]) -> Iterator[str]:
    if not statements:
        return
    yield "**Not shown by this run**"
    yield ""
    yield from (f"- {github.escaped(statement)}" for statement in statements)


def _table_head(titles: Sequence[str]) -> Iterator[str]:
    yield _line(titles)
    yield _line(["---"] * len(titles))


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
