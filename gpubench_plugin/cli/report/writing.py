"""Writing of pages, and what a public one leaves out."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path, PureWindowsPath
from typing import Any, Final, TypeVar

from gpubench_plugin.baselines.resolve import Resolver
from gpubench_plugin.baselines.trend import HistorySource
from gpubench_plugin.cli.report.pages import LATEST, page_of
from gpubench_plugin.cli.report.sides import Side
from gpubench_plugin.cli.report.subjects import subject_of_run
from gpubench_plugin.reports.html.page import Page, Section
from gpubench_plugin.reports.html.render import render
from gpubench_plugin.results.reader import RunReader
from gpubench_plugin.results.run_directory import RunDirectory
from gpubench_plugin.system import json_files

_T = TypeVar("_T")

_PRIVATE_FACTS: Final = frozenset({"host", "command"})
_PRIVATE_SECTIONS: Final = frozenset({"What helps", "Repeat"})
# What a page's script and style know; a host may be called "head".
_WORDS: Final = frozenset({"style", "role", "outcome", "kind", "unit", "href"})
# An absolute path of at least two parts, or one below this or a home folder; not of an address
# other than of a file, but of an option such as -I. On Windows with a drive or a host.
_PATH: Final = re.compile(
    r"(?:(?<![\w/.~])|(?<=//)(?=/)|(?<=-[IL]))(?:~[\w-]*|\.{1,2}(?=/)|/[\w.@+~,=%$#{}-]+)(?:/[\w.@+~,=%$#{}-]+)+/?"
    r"|(?:\b[A-Za-z]:[\\/]|\\\\)(?!/)[^\s'\":]+"
)


def write_page(file: Path, page: Page, *, public: bool, sides: Collection[Side]) -> None:
    """Write the page, whole or not at all; the runs of its `sides` name hosts and facts.

    Raises:
        ResultsError: the file cannot be written.
    """
    if public:
        page = published(page, sides)
    json_files.write_text(file, render(page))


def write_run(file: Path, folder: Path, resolver: Resolver) -> None:
    """Write the page of the run in a folder; raises GpubenchError."""
    subject = subject_of_run(RunReader(RunDirectory(path=folder)).run(), resolver)
    page = page_of(subject, HistorySource(resolver.index), last=LATEST)
    write_page(file, page, public=False, sides=())


def published(page: Page, sides: Collection[Side]) -> Page:
    """The page without hosts, paths, commands, and facts that comparisons do not need.

    Hosts are numbered in their place; of a path its last part stays.
    """
    needed = {key for side in sides for key in side.run.machine}
    hosts = {str(side.run.environment.get("hostname", "")) for side in sides}
    records = [m for side in sides for m in side.measurements.values()]
    hosts |= {m.host for m in records} | {rank.host for m in records for rank in m.ranks}
    numbered: dict[str, str] = {}
    for n, host in enumerate(sorted(hosts - {""}), start=1):
        short = host.partition(".")[0]
        own = {host, host if short.isdigit() else short}  # no part of an IP address
        numbered |= {name.lower(): f"host-{n}" for name in own}
    names = "|".join(sorted(map(re.escape, numbered), key=len, reverse=True))
    pattern = re.compile(rf"(?<![\w-])(?:{names})(?![\w-])", re.IGNORECASE) if names else None

    folders = {side.run.label for side in sides if "/" in side.run.label}

    def text(value: str) -> str:
        for folder in folders:  # that the user has named a run by
            value = value.replace(folder, Path(folder).name)
        value = _PATH.sub(_last_part, value)
        return pattern.sub(lambda match: numbered[match[0].lower()], value) if pattern else value

    def sections(some: Iterable[Section]) -> tuple[Section, ...]:
        kept = (
            _without_facts(section, needed)
            for section in some
            if section.title not in _PRIVATE_SECTIONS
        )
        return tuple(each for each in kept if each.texts or each.charts or each.tables)

    kept = replace(
        page,
        facts=tuple(fact for fact in page.facts if fact[0] not in _PRIVATE_FACTS),
        sections=sections(page.sections),
        rows=tuple(replace(row, sections=sections(row.sections)) for row in page.rows),
        across=sections(page.across),
    )
    return _changed(kept, text)


def _last_part(match: re.Match[str]) -> str:
    """The last part of a path, but for that of a home folder, which is a user."""
    path = PureWindowsPath(match[0])  # which has both separators
    is_home = len(path.parts) == 3 and path.parts[1] in {"home", "Users"}
    return "…" if is_home else f"…/{path.name}"


def _without_facts(section: Section, needed: set[str]) -> Section:
    """A section on the environment with the `needed` facts alone."""
    if not section.title.startswith("Environment"):
        return section
    tables = (
        replace(table, rows=tuple(row for row in table.rows if str(row[0]) in needed))
        for table in section.tables
    )
    texts = (text for text in section.texts if str(text).partition(":")[0] in needed)
    return replace(section, tables=tuple(tables), texts=tuple(texts))


def _changed(value: _T, text: Any) -> _T:
    """A copy of a record in which every text is changed."""
    changed: Any = value
    if isinstance(value, str):
        changed = text(value)
    elif is_dataclass(value) and not isinstance(value, type):
        names = {f.name for f in fields(value)} - _WORDS
        own = {name: _changed(getattr(value, name), text) for name in names}
        changed = replace(value, **own)
    elif isinstance(value, Mapping):
        changed = {key: _changed(each, text) for key, each in value.items()}
    elif isinstance(value, tuple | frozenset):
        changed = type(value)(_changed(each, text) for each in value)
    return changed  # type: ignore[no-any-return] # of the same type
