"""``gpubench runs``: list, show, tag and prune runs."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from heapq import merge
from itertools import islice
from operator import attrgetter
from typing import Any, ClassVar, Final, TypeVar

from gpubench_plugin.baselines.resolve import Resolver
from gpubench_plugin.cli.commands import _pruning
from gpubench_plugin.cli.commands._places import (
    RUN,
    add_last,
    add_locations,
    exit_code,
    output_width,
    resolver_of,
    show,
    warn,
)
from gpubench_plugin.cli.commands.base import Command, ExitCode
from gpubench_plugin.config.settings import whole_number
from gpubench_plugin.core.errors import GpubenchError, RegistryError
from gpubench_plugin.environment.fingerprints import informative_facts, machine_facts
from gpubench_plugin.reports.markup import plain
from gpubench_plugin.reports.run_list import (
    SHOWN,
    curve_lines,
    run_as_json,
    run_in_full,
    run_table,
)
from gpubench_plugin.reports.table import column, lines
from gpubench_plugin.reports.terminal import closing_lines
from gpubench_plugin.reports.text import printable
from gpubench_plugin.reports.verdicts import kind_text
from gpubench_plugin.results import verdicts as verdict_document
from gpubench_plugin.results.progress import Curve, RunProgress, benchmark_events, curves_of
from gpubench_plugin.results.prune import artifacts
from gpubench_plugin.results.reader import RunOverview, RunReader, intact
from gpubench_plugin.results.run_directory import (
    RunDirectory,
    change_tags,
    find_run,
    runs_in,
    tag_of,
)

_Part = TypeVar("_Part")

_MOST_POINTS: Final = 50_000
"""Lines of the journal that the curves of a table may cost: half a second."""
_STATES: Final = ("complete", "failed", "interrupted", "running", "broken")


class Runs(Command):
    """Manages the runs in the results directory and those known only to the registry."""

    help: ClassVar[str] = "list, show, tag or prune runs, or list a run's files"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """One subparser per action."""
        actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
        sub = actions.add_parser("list", help="list the latest runs")
        sub.add_argument("--experiment", help="only this experiment")
        sub.add_argument("--branch", help="only this branch")
        sub.add_argument("--tag", help="only runs with this tag, or with this name in their id")
        status = f"only runs with this status: {', '.join(_STATES)}"
        sub.add_argument("--status", metavar="STATUS", choices=_STATES, help=status)
        add_last(sub, default=20, zero_for_all=True)
        sub = actions.add_parser("show", help="show one run in full")
        sub.add_argument("run", **RUN)
        sub = actions.add_parser("tag", help="add or remove tags of a run")
        sub.add_argument("run", **RUN)
        sub.add_argument("tags", metavar="TAG", nargs="+", help="tag to add or remove")
        sub.add_argument("--remove", action="store_true", help="remove the tags")
        sub = actions.add_parser("prune", help="delete traces or whole runs")
        _add_pruning(sub.add_argument)
        sub = actions.add_parser("artifacts", help="list a run's files with hashes")
        sub.add_argument("run", **RUN)
        runs = (_list, _show, _tag, _pruning.prune, _artifacts)
        for sub, run in zip(actions.choices.values(), runs, strict=True):
            is_change = run in {_tag, _pruning.prune}
            add_locations(sub, ("text" if is_change else "table", "json"))
            sub.set_defaults(action=run)

    def run(self, options: argparse.Namespace) -> int:
        """Run the selected action."""
        with resolver_of(options) as resolver:
            return int(options.action(options, resolver))


def _list(options: argparse.Namespace, resolver: Resolver) -> int:
    folder, connection = resolver.results_dir, resolver.reached
    notes = [*filter(None, [connection.error]), *connection.notes]
    registered: dict[str, RunOverview] = {}
    if connection.registry is not None:
        try:
            registered = {run.run_id: run for run in connection.registry.runs()}
        except RegistryError as error:
            notes.append(f"runs of other machines are unavailable: {error}")
    directories = runs_in(folder)
    local = (  # read as far as they are listed
        RunReader(directory).overview(registered.get(directory.run_id))
        for directory in reversed(directories)
        if options.experiment in {None, directory.experiment}
    )
    local_ids = {directory.run_id for directory in directories}
    remote = [run for run_id, run in registered.items() if run_id not in local_ids]
    remote.sort(key=attrgetter("run_id"), reverse=True)
    matching = (
        run
        for run in merge(local, remote, key=attrgetter("run_id"), reverse=True)
        if options.experiment in {None, run.experiment}
        and options.branch in {None, run.branch}
        and options.status in {None, run.state}
        and options.tag in {None, *run.tags, tag_of(run.run_id)}
    )
    runs = list(islice(matching, min(options.last, sys.maxsize) or None))
    lines = run_table(runs, output_width()) if runs else [f"no matching run in {folder}"]
    show(options, {"runs": [run_as_json(run) for run in runs]}, lines)
    warn(notes)
    return ExitCode.OK


def _show(options: argparse.Namespace, resolver: Resolver) -> int:
    errors: list[str] = []
    stored: RunReader | None = None

    def part(read: Callable[[RunReader], _Part]) -> _Part | None:
        """A part of the run; None if it is not here, or the file that has it is damaged."""
        if stored is None:
            return None
        try:
            with intact(stored.directory):
                return read(stored)
        except GpubenchError as error:
            errors.append(str(error))
            return None

    source = resolver.find(options.run)
    names: Sequence[str] = ()
    registered = None
    try:
        names = resolver.baselines().pinned().get(source.run_id, ())
        if resolver.registry is not None:
            registered = resolver.registry.overview(source.run_id)
    except RegistryError as error:
        warn([str(error)])
    if isinstance(source, RunDirectory):
        stored = RunReader(source)
        run, environment = stored.overview(registered), part(_facts) or {}
    else:  # only the registry knows it
        run, stored_run = source, resolver.single(source.run_id).run
        environment = {**stored_run.machine, **stored_run.environment}
    verdicts = part(_verdicts) or ""
    current = part(_current) or ""
    curves = part(lambda run: _curves(run, with_all=options.format == "json")) or ()
    document = {
        **run_as_json(run),
        "verdicts": verdicts,
        "baselines": list(names),
        "environment": environment,
        "current": current or None,
        "curves": [vars(curve) for curve in curves],
    }
    lines = (
        *run_in_full(run, names, verdicts, environment, output_width(), current=current),
        *curve_lines(curves, output_width()),
        *(part(_results) or ()),
    )
    show(options, document, lines)
    return exit_code(run.error, *errors)


def _tag(options: argparse.Namespace, resolver: Resolver) -> int:
    named = frozenset(options.tags)
    add, remove = (frozenset(), named) if options.remove else (named, frozenset())
    place = resolver.find(options.run)
    directory = place if isinstance(place, RunDirectory) else None
    if resolver.registry is not None:
        tags = resolver.registry.tag(place.run_id, directory, add=add, remove=remove)
    else:
        assert directory is not None  # else it was found in the registry
        tags = change_tags(directory, add=add, remove=remove)
        warn(["tagged in the folder alone: a registry that has the run does not take that over"])
    text = printable(f"{place.run_id}: tags {', '.join(tags) or 'none'}")
    show(options, {"run_id": place.run_id, "tags": list(tags)}, [text])
    return ExitCode.OK


def _artifacts(options: argparse.Namespace, resolver: Resolver) -> int:
    directory = find_run(resolver.results_dir, options.run, cwd=resolver.here)
    files = list(artifacts(directory))
    cells = [
        column("sha256", [file["sha256"] for file in files]),
        column("bytes", [file["bytes"] for file in files], numeric=True),
        column("file", [file["name"] for file in files]),
    ]
    document = {"run_id": directory.run_id, "artifacts": files}
    show(options, document, lines(cells, None))  # uncut: hashes and names are for copying
    return exit_code(RunReader(directory).overview().error)


def _add_pruning(add: Callable[..., object]) -> None:
    number = partial(whole_number, "--keep-last", 0)
    add("--keep-last", type=number, metavar="N", help="keep the last N runs of each experiment")
    add("--older-than", type=float, metavar="DAYS", help="keep runs modified in the last DAYS days")
    add("--samples", action="store_true", help="also delete per-rank samples and logs")
    add("--runs", action="store_true", help="delete runs, but none tagged or used by a baseline")
    help_text = "with --runs: also delete runs of which only the registry is left"
    add("--registered", action="store_true", help=help_text)
    add("--dry-run", action="store_true", help="only show what would be deleted")


def _facts(run: RunReader) -> dict[str, Any]:
    """Machine facts of the run by dot key."""
    return {**machine_facts(run.environment), **informative_facts(run.environment)}


def _current(run: RunReader) -> str:
    """The benchmark that runs, or in which the run was interrupted, with its phase; else empty."""
    live = RunProgress(run_id=run.directory.run_id)
    for line in run.outline:
        live.add(line)
    return f"{live.current.id}, phase {live.current.phase}" if live.current else ""


def _curves(run: RunReader, *, with_all: bool) -> tuple[Curve, ...]:
    """The curves of a table, or a warning where they cost too much; or `with_all` points, all."""
    lines = run.lines(*(() if with_all else ("phase", *SHOWN)))
    curves = curves_of(benchmark_events(islice(lines, None if with_all else _MOST_POINTS)))
    if next(lines, None) is None:
        return curves
    warn([f"curves are left out: over {_MOST_POINTS} lines; --format=json has them"])
    return ()


def _results(run: RunReader) -> list[str]:
    """What the session ended with: table, doubts, comparisons."""
    measurements = list(run.measurements.values())
    return ["", *map(plain, closing_lines(measurements, output_width()))]


def _verdicts(run: RunReader) -> str:
    """Verdict counts by kind as text; empty if the run was not judged."""
    path = run.directory.verdicts
    judged = verdict_document.read(path).benchmarks if path.is_file() else ()
    counts = Counter(benchmark.kind for benchmark in judged)
    return ", ".join(f"{n} {kind_text(kind)}" for kind, n in counts.items())
