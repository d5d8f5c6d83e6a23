"""A site: static pages of the latest runs and comparisons, and an index of their benchmarks.

A page is made again only where its sources or its template have changed, which its digest tells.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import ClassVar, Final, Literal

from gpubench_plugin.baselines.resolve import Resolver
from gpubench_plugin.baselines.trend import HistorySource
from gpubench_plugin.cli.ab.saved_state import comparisons_in
from gpubench_plugin.cli.report.histories import histories
from gpubench_plugin.cli.report.pages import page_of
from gpubench_plugin.cli.report.rows import rows_of, worst_verdicts
from gpubench_plugin.cli.report.sides import Side
from gpubench_plugin.cli.report.subjects import Subject, subject_of_comparison, subject_of_run
from gpubench_plugin.cli.report.writing import write_page
from gpubench_plugin.core.errors import GpubenchError, UsageProblem
from gpubench_plugin.core.format import counted, short_commit
from gpubench_plugin.core.records import Json, Measurement, Run
from gpubench_plugin.core.verdicts import Comparison, Verdict
from gpubench_plugin.environment.system_facts import package_versions
from gpubench_plugin.reports.columns import step
from gpubench_plugin.reports.explanation import Explanation
from gpubench_plugin.reports.html.page import Link, Page, Section, Table
from gpubench_plugin.reports.html.render import TEMPLATES
from gpubench_plugin.reports.verdicts import headline, kind_text
from gpubench_plugin.results import summary, verdicts
from gpubench_plugin.results.run_directory import RunDirectory, start_time
from gpubench_plugin.system import json_files, stored

FORMAT: Final = stored.Format(kind="gpubench site", newest=1)
MANIFEST: Final = "site.json"
_INDEX: Final = "index.html"
_OWN: Final = re.compile(r"(?:runs|comparisons)/[^/]+\.html")
"""Names of pages; a manifest may name other files."""
_LOOKED_AT: Final = 20
"""Latest runs whose benchmarks the index has; trades time for old names."""
_COLUMNS: Final = 10
"""Latest runs beside each other in the table of all benchmarks."""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The pages of a site, with the digest of what each was made of."""

    __pydantic_config__: ClassVar[Json] = {"extra": "forbid"}

    schema_version: Literal[1] = 1
    pages: dict[str, str] = field(default_factory=dict)


def write_site(folder: Path, resolver: Resolver, *, last: int, public: bool) -> Json:
    """Write what has changed of the site in `folder`; tell its pages, and which are gone or failed.

    Raises:
        UsageProblem: the folder holds something else.
        ResultsError: a file cannot be written.
    """
    earlier = _earlier(folder)
    site = _Site(folder, resolver, last=last, public=public)
    pages: dict[str, str] = {}
    written: list[str] = []
    problems: dict[str, str] = {}
    for name in site.folders:
        digest = site.digest(name)
        if earlier.get(name) != digest or not (folder / name).is_file():
            try:
                site.write(name)
            except GpubenchError as error:
                problems[name] = str(error)
                continue
            written.append(name)
        pages[name] = digest
    site.write_index(pages)
    removed = sorted(filter(_OWN.fullmatch, earlier.keys() - pages.keys()))
    for name in removed:
        json_files.remove(folder / name)
    json_files.write_json(folder / MANIFEST, stored.dump(Manifest(pages=pages)))
    changes = {"pages": [*pages], "written": written, "removed": removed, "left_out": problems}
    return {"index": str(folder / _INDEX), **changes}


def _earlier(folder: Path) -> dict[str, str]:
    """The pages of an earlier site there."""
    file = folder / MANIFEST
    if folder.is_dir() and any(folder.iterdir()) and not file.is_file():
        raise UsageProblem(f"--site={folder}: holds something else; allowed: a new or empty folder")
    try:
        for part in ("runs", "comparisons"):  # git keeps no empty one
            if (folder / part).is_symlink():
                raise UsageProblem(f"--site={folder}: {part} is a symlink; allowed: a folder")
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
        self._runs = {f"runs/{run.run_id}.html": run for run in resolver.index.runs(limit=last)}
        results = resolver.results_dir
        self.folders = {n: results / r.experiment / r.run_id for n, r in self._runs.items()}
        for name, place in reversed([*comparisons_in(results).items()]):
            self.folders[f"comparisons/{name}.html"] = place
        parts = [file.read_bytes() for file in sorted(TEMPLATES.glob("*.*"))]
        version = f"{package_versions().get('pytest-gpubench')} {last} {public}"
        self._version = b"".join((version.encode(), *parts))

    def digest(self, name: str) -> str:
        """Digest of a page's sources, its template, and how it is made."""
        folder = self.folders[name]
        files = (*RunDirectory(path=folder).files, folder / "state.json")
        stamps = [(f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in files if f.is_file()]
        return sha256(self._version + repr((self._runs.get(name), stamps)).encode()).hexdigest()

    def write(self, name: str) -> None:
        """Write the page of a run or a comparison; raises GpubenchError."""
        if (run := self._runs.get(name)) is None:
            subject = subject_of_comparison(self.folders[name])
        else:
            subject = subject_of_run(self._resolver.single(run.run_id).run, self._resolver)
        links = (Link("All benchmarks", f"../{_INDEX}"),)
        page = page_of(subject, self._source, last=self._last, links=links)
        sides = subject.sides.values()
        write_page(self._folder / name, page, public=self._public, sides=sides)

    def write_index(self, pages: Collection[str]) -> None:
        """Write the index, which leads to the `pages` and says which are missing."""
        names = [name for name in self._runs if name in pages][:_LOOKED_AT]
        sides = {name: self._side(name) for name in names}
        compared = {name: _comparison(self.folders[name]) for name in pages}
        subject = _latest([(sides[name], compared[name]) for name in reversed(names)])
        judged = worst_verdicts(subject)
        plain = rows_of(subject, judged)
        rows, runs = histories(self._source, plain, judged, head=None, limit=self._last)
        failures = ", ".join(name for name in self.folders if name not in pages)
        texts = [f"pages that could not be made: {failures}"] * bool(failures)
        # Other notes name the registry's host.
        texts += [note for note in self._resolver.index_notes if note.startswith("skipped")]
        page = Page(
            title="Results",
            subject=f"{counted(len(rows), 'benchmark')}, each of its latest run",
            sections=(Section(title="Left out", texts=tuple(texts)),) * bool(texts),
            rows=tuple(rows),
            runs=runs,
        )
        tables = {"Latest runs": self._matrix(page, sides)}
        for noun in ("run", "comparison"):
            tables[f"{noun.title()}s"] = self._table(noun, compared)
        across = tuple(Section(title=n, tables=(t,)) for n, t in tables.items() if t.rows)
        page = replace(page, across=across)
        write_page(self._folder / _INDEX, page, public=self._public, sides=sides.values())

    def _matrix(self, page: Page, sides: Mapping[str, Side]) -> Table:
        """Step times and outcomes of all benchmarks in the latest runs, below links to these."""
        latest = {name: self._runs[name] for name in [*sides][:_COLUMNS]}
        titles = tuple(r.started[5:19].replace("T", " ") or r.run_id for r in latest.values())
        links = (Link(run.run_id.rpartition("_")[2], name) for name, run in latest.items())
        lines: list[tuple[str | Link, ...]] = [("run", *links)] * bool(page.rows)
        for row in page.rows:
            ids = {page.runs[at].run_id for at in row.history.runs} if row.history else set()
            cells = (_cell(sides[n], row.id, r.run_id in ids) for n, r in latest.items())
            lines.append((row.name, *cells))
        title = "step time, newest first; (of another branch, machine or configuration)"
        columns = ("benchmark", *titles)
        return Table(title=title, columns=columns, rows=tuple(lines), numeric=frozenset(titles))

    def _table(self, noun: str, compared: Mapping[str, Comparison]) -> Table:
        columns = (noun, "started", "of", "benchmarks", "verdicts")
        rows = tuple(self._line(n, compared.get(n)) for n in self.folders if n.startswith(noun))
        return Table(title="newest first", columns=columns, rows=rows)

    def _line(self, name: str, comparison: Comparison | None) -> tuple[str | Link, ...]:
        """A page, when and of what it is, and the counts of its verdicts; None without a page."""
        run, stem, measured = self._runs.get(name), Path(name).stem, ""
        if run is not None:
            started, of = run.started, f"{short_commit(run.commit)} {run.branch or ''}"
            measured = f"{run.measured} of {run.benchmarks} measured"
        else:
            base, head = (comparison.base, comparison.head) if comparison else ("", "")
            started = str(start_time(stem) or "")
            of = f"{head} against {base}" if base else "not judged"
        link = stem if comparison is None else Link(stem, name)
        judged = comparison.verdicts if comparison else ()
        counts = headline(judged) if judged else "regressed" * bool(run and run.regressed)
        return link, started[:19].replace("T", " "), of, measured, counts

    def _side(self, name: str) -> Side:
        """The run of a page, with what the index shows of it alone."""
        run_id, directory = self._runs[name].run_id, RunDirectory(path=self.folders[name])
        if not (directory.journal.is_file() and directory.summary.is_file()):
            return Side.of(self._resolver.single(run_id).run)
        environment = summary.FORMAT.load(directory.summary)["environment"]
        return Side.of(Run(label=run_id, path=directory.path, environment=environment))


def _comparison(folder: Path) -> Comparison:
    """What the verdicts in a folder say; one without a base has none."""
    file = RunDirectory(path=folder).verdicts
    return verdicts.read(file).comparison if file.is_file() else Comparison(base="", head="")


def _latest(runs: Sequence[tuple[Side, Comparison]]) -> Subject:
    """The latest measurement and the latest verdicts of each benchmark; `runs`, oldest first."""
    measurements: dict[str, Measurement] = {}
    judged: list[Verdict] = []
    for side, comparison in runs:
        measurements |= side.measurements
        names = {*side.measurements, *(verdict.id for verdict in comparison.verdicts)}
        judged = [each for each in judged if each.id not in names] + [*comparison.verdicts]
    return Subject(
        title="Results",
        head=Side(run=Run(label=""), measurements=measurements),
        comparison=Comparison(base="", head="", verdicts=tuple(judged)),
        explain=lambda name: Explanation(benchmark=name, subject="", noun="run"),
    )


def _cell(side: Side, name: str, is_comparable: bool) -> str:
    if (measurement := side.measurements.get(name)) is None:
        return ""
    value = step(measurement).partition(" ±")[0]
    return (value if is_comparable else f"({value})") if value else kind_text(measurement.outcome)
