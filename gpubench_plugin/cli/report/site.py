"""A site: static pages of the latest runs and comparisons, and an index of their benchmarks.

A page is made again only where its sources or its template have changed, which its digest tells.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import ClassVar, Final, Literal

from gpubench_plugin.baselines.resolve import Resolver
from gpubench_plugin.baselines.trend import HistorySource
from gpubench_plugin.cli.ab.saved_state import comparisons_in
from gpubench_plugin.cli.report.histories import histories
from gpubench_plugin.cli.report.pages import page_of
from gpubench_plugin.cli.report.subjects import Subject, subject_of_comparison, subject_of_run
from gpubench_plugin.cli.report.writing import write_page
from gpubench_plugin.core.errors import GpubenchError, UsageProblem
from gpubench_plugin.core.format import counted, quantity, short_commit
from gpubench_plugin.core.records import Json
from gpubench_plugin.environment.system_facts import package_versions
from gpubench_plugin.reports.html.page import History, KnownRun, Link, Page, Row, Section, Table
from gpubench_plugin.reports.html.render import TEMPLATES
from gpubench_plugin.reports.names import short_names
from gpubench_plugin.results.reader import RunOverview
from gpubench_plugin.results.run_directory import RunDirectory
from gpubench_plugin.system import json_files, stored

FORMAT: Final = stored.Format(kind="gpubench site", newest=1)
MANIFEST: Final = "site.json"
_INDEX: Final = "index.html"
_OWN: Final = re.compile(r"(?:runs|comparisons)/[^/]+\.html")
"""Names of pages; a manifest may name other files."""
_COLUMNS: Final = 10
"""Latest runs beside each other in the table of all benchmarks."""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The pages of a site, with the digest of what each was made of."""

    __pydantic_config__: ClassVar[Json] = {"extra": "forbid"}

    schema_version: Literal[1] = 1
    pages: dict[str, str] = field(default_factory=dict)


def write_site(folder: Path, resolver: Resolver, *, last: int, public: bool) -> Json:
    """Write what has changed of the site in `folder`; tell the pages, and those left out by error.

    Raises:
        UsageProblem: the folder holds something else.
        ResultsError: a file cannot be written.
    """
    earlier = _earlier(folder)
    site = _Site(folder, resolver, last=last, public=public)
    pages: dict[str, str] = {}
    written: list[str] = []
    problems: dict[str, str] = {}
    for name, sources, subject in site.subjects():
        digest = site.digest(sources)
        if earlier.get(name) != digest or not (folder / name).is_file():
            try:
                site.write(name, subject())
            except GpubenchError as error:
                problems[name] = str(error)
                continue
            written.append(name)
        pages[name] = digest
    site.write_index([*pages])
    for name in filter(_OWN.fullmatch, earlier.keys() - pages.keys()):
        json_files.remove(folder / name)
    json_files.write_json(folder / MANIFEST, stored.dump(Manifest(pages=pages)))
    index = str(folder / _INDEX)
    return {"index": index, "pages": [*pages], "written": written, "left_out": problems}


def _earlier(folder: Path) -> dict[str, str]:
    """The pages of an earlier site there."""
    file = folder / MANIFEST
    if folder.is_dir() and any(folder.iterdir()) and not file.is_file():
        raise UsageProblem(f"--site={folder}: holds something else; allowed: a new or empty folder")
    try:
        for part in ("runs", "comparisons"):  # git keeps no empty one
            (folder / part).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageProblem(f"--site={folder}: {error.strerror}; allowed: a folder") from error
    if not file.is_file():
        return {}
    return dict(stored.restore(Manifest, FORMAT.load(file), str(file)).pages)


class _Site:
    def __init__(self, folder: Path, resolver: Resolver, *, last: int, public: bool):
        self._folder = folder
        self._resolver = resolver
        self._last = last
        self._public = public
        self._source = HistorySource(resolver.index)
        self._runs = resolver.index.runs(limit=last)
        parts = [file.read_bytes() for file in sorted(TEMPLATES.glob("*.*"))]
        version = f"{package_versions().get('pytest-gpubench')} {last} {public}"
        self._version = sha256(b"".join((version.encode(), *parts)))

    def subjects(self) -> Iterator[tuple[str, Sequence[object], Callable[[], Subject]]]:
        """Each page's name, what it is made of, and its subject."""
        for overview in self._runs:
            sources = [overview, *_stamps(self._folder_of(overview))]
            yield _run_page(overview), sources, partial(self._run, overview.run_id)
        for name, folder in reversed([*comparisons_in(self._resolver.results_dir).items()]):
            page = f"comparisons/{name}.html"
            yield page, _stamps(folder), partial(subject_of_comparison, folder)

    def digest(self, sources: Sequence[object]) -> str:
        """Digest of a page's sources, its template, and how it is made."""
        content = self._version.copy()
        content.update(repr(sources).encode())
        return content.hexdigest()

    def write(self, name: str, subject: Subject) -> None:
        """Write the page of a subject."""
        links = (Link("All benchmarks", f"../{_INDEX}"),)
        page = page_of(subject, self._source, last=self._last, links=links)
        sides = [subject.head, subject.base]
        write_page(self._folder / name, page, public=self._public, sides=sides)

    def write_index(self, pages: Sequence[str]) -> None:
        """Write the index, which leads to the `pages`."""
        names = dict.fromkeys(self._source.benchmarks(None))
        drawn, runs = histories(self._source, names, head=None, limit=self._last)
        labels = short_names(drawn).by_id
        page = Page(
            title="Results",
            subject=f"{counted(len(drawn), 'benchmark')} over {counted(len(runs), 'run')}",
            rows=tuple(_row(name, labels[name], history) for name, history in drawn.items()),
            runs=runs,
            across=tuple(self._across(pages, _matrix(labels, drawn, runs, self._runs))),
        )
        write_page(self._folder / _INDEX, page, public=self._public, sides=[])

    def _across(self, pages: Sequence[str], matrix: Table) -> Iterator[Section]:
        runs = Table(
            title="Runs, newest first",
            columns=("run", "started", "commit", "branch", "benchmarks", "verdict"),
            rows=tuple(_run_row(overview, pages) for overview in self._runs),
        )
        names = (page for page in pages if page.startswith("comparisons"))
        comparisons = Table(
            title="Comparisons, newest first",
            columns=("comparison",),
            rows=tuple((Link(Path(name).stem, name),) for name in names),
        )
        titles = ("Latest runs", "Runs", "Comparisons")
        for title, table in zip(titles, (matrix, runs, comparisons), strict=True):
            if table.rows:
                yield Section(title=title, tables=(table,))

    def _run(self, run_id: str) -> Subject:
        return subject_of_run(self._resolver.single(run_id).run, self._resolver)

    def _folder_of(self, overview: RunOverview) -> Path:
        return self._resolver.results_dir / overview.experiment / overview.run_id


def _run_page(overview: RunOverview) -> str:
    return f"runs/{overview.run_id}.html"


def _run_row(overview: RunOverview, pages: Sequence[str]) -> tuple[str | Link, ...]:
    name, run_id = _run_page(overview), overview.run_id
    return (
        Link(run_id, name) if name in pages else run_id,
        overview.started[:19].replace("T", " "),
        short_commit(overview.commit),
        overview.branch or "",
        f"{overview.measured} of {overview.benchmarks} measured",
        "regressed" * overview.regressed,
    )


def _matrix(
    labels: Mapping[str, str],
    drawn: Mapping[str, History],
    runs: Sequence[KnownRun],
    overviews: Sequence[RunOverview],
) -> Table:
    """All benchmarks by the latest runs: values of one machine and configuration each."""
    latest = overviews[:_COLUMNS]
    titles = tuple(o.started[5:19].replace("T", " ") or o.run_id for o in latest)
    rows = []
    for name, history in drawn.items():
        cells = {
            runs[run].run_id: "≈ " * (at in history.doubts) + quantity(value, history.unit)
            for at, (run, value) in enumerate(zip(history.runs, history.values, strict=True))
        }
        rows.append((labels[name], *(cells.get(overview.run_id, "") for overview in latest)))
    return Table(
        title="Benchmarks in the latest runs, newest first",
        columns=("benchmark", *titles),
        rows=tuple(rows),
        numeric=frozenset(titles),
    )


def _stamps(folder: Path) -> list[tuple[str, int, int]]:
    """Names, sizes and times of the files directly in a folder."""
    run = RunDirectory(path=folder)
    files = [file for file in (*run.files, folder / "state.json") if file.is_file()]
    return [(f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in files]


def _row(name: str, label: str, history: History) -> Row:
    value = history.values[-1]
    level = history.levels[-1][1] if history.levels else ""
    doubts = tuple(filter(None, [history.doubts.get(len(history.values) - 1, "")]))
    return Row(
        id=name,
        name=label,
        outcome="measured",
        value=quantity(value, history.unit),
        number=value,
        change=level,
        doubts=doubts,
        history=history,
    )
