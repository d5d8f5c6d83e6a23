"""Pages as data: a report of a run or a comparison, or the index of a site.

Texts are not escaped; numbers beside them are what they were formatted from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gpubench_plugin.core.records import Outcome
from gpubench_plugin.core.verdicts import VerdictKind
from gpubench_plugin.reports.html.chart import Chart


@dataclass(frozen=True)
class Link:
    """A cell that leads to another page of the site."""

    text: str
    href: str


@dataclass(frozen=True)
class Command:
    """A command line among texts."""

    line: str


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of texts; `numeric` are the titles of columns of numbers, aligned right."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | Link, ...], ...]
    numeric: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Section:
    """A titled part of a page, shown in the order of the fields; folded unless `is_open`."""

    title: str
    texts: tuple[str | Command, ...] = ()
    charts: tuple[Chart, ...] = ()
    tables: tuple[Table, ...] = ()
    is_open: bool = True


@dataclass(frozen=True, kw_only=True)
class KnownRun:
    """A run of histories; `started` is UTC in ISO 8601."""

    run_id: str
    started: str
    commit: str = ""
    branch: str = ""


@dataclass(frozen=True, kw_only=True)
class History:
    """One metric of a benchmark over runs, oldest first.

    `runs` are positions in the page's runs. `doubts` are texts by position here, `levels` the
    positions where a new level starts, with a text. `band` is the interval of the baseline.
    """

    metric: str
    unit: str
    runs: tuple[int, ...]
    values: tuple[float, ...]
    doubts: Mapping[int, str] = field(default_factory=dict)
    levels: tuple[tuple[int, str], ...] = ()
    band: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
class Row:
    """A benchmark in the page's table.

    `value` is of the `metric`, with its interval; `number` is in its unit; `change_number` is
    head/base − 1.
    `kind` is its worst verdict, empty where nothing was compared. `facets` are what the table is
    filtered by: precision, ranks, device, host. `sections` are its details, empty where they are
    left out.
    """

    id: str
    name: str
    outcome: Outcome
    metric: str = ""
    value: str = ""
    number: float | None = None
    change: str = ""
    change_number: float | None = None
    kind: VerdictKind | str = ""
    doubts: tuple[str, ...] = ()
    reason: str = ""
    facets: Mapping[str, str] = field(default_factory=dict)
    history: History | None = None
    sections: tuple[Section, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Page:
    """A page: `headline` are counts by verdict or outcome, `lead` its worst findings, in words.

    `rows` are sorted, the worst first. `sections` stand above the table, `across` below it.
    """

    title: str
    subject: str
    facts: tuple[tuple[str, str], ...] = ()
    headline: tuple[tuple[str, str], ...] = ()
    lead: tuple[str, ...] = ()
    sections: tuple[Section, ...] = ()
    rows: tuple[Row, ...] = ()
    runs: tuple[KnownRun, ...] = ()
    across: tuple[Section, ...] = ()
    links: tuple[Link, ...] = ()
