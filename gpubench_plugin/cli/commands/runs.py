"""``gpubench runs``: what runs there are, what is known of one, and making room."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Final

from gpubench_plugin.cli.commands import _pruning
from gpubench_plugin.cli.commands._places import (
    Places,
    add_format,
    add_last,
    add_places,
    columns,
    glyphs,
    note,
    say,
    say_json,
)
from gpubench_plugin.cli.commands.base import Command, Exit
from gpubench_plugin.environment import json_files, machine_facts, told_facts
from gpubench_plugin.errors import GpubenchError, RegistryError, ResultsError, not_one_of
from gpubench_plugin.reports import column, lines, printable, run_as_json, run_in_full, run_table

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Mapping

    from gpubench_plugin.compare.baselines import Resolver
    from gpubench_plugin.results import Overview, RunDirectory
    from gpubench_plugin.results.registry import Reachable

_STATES: Final = ("complete", "failed", "interrupted", "running", "broken")


class Runs(Command):
    """The runs below the folder of results, and those that the registry alone knows."""

    help: ClassVar[str] = "list, show, tag or prune runs, or list a run's files"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """One parser for each act."""
        acts = parser.add_subparsers(title="acts", required=True, metavar="ACT")
        own = acts.add_parser("list", help="the latest runs", allow_abbrev=False)
        own.add_argument("--experiment", help="only of this one")
        own.add_argument("--branch", help="only of this one")
        own.add_argument("--tag", help="only those with this tag, or this word in their id")
        own.add_argument("--status", help=f"only these: {', '.join(_STATES)}")
        add_last(own, default=20, zero="all")
        add_format(own, ("table", "json"))
        own.set_defaults(act=_list)
        own = acts.add_parser("show", help="one run in full", allow_abbrev=False)
        own.add_argument("run_named", metavar="RUN", help="a run's id or folder")
        add_format(own, ("table", "json"))
        own.set_defaults(act=_show)
        own = acts.add_parser("tag", help="give a run tags, or take them", allow_abbrev=False)
        own.add_argument("run_named", metavar="RUN", help="a run's id or folder")
        own.add_argument("tags", metavar="TAG", nargs="+")
        own.add_argument("--remove", action="store_true", help="take them")
        own.set_defaults(act=_tag)
        own = acts.add_parser("prune", help="remove traces, or whole runs", allow_abbrev=False)
        _pruning.add_arguments(own)
        own.set_defaults(act=_pruning.prune)
        own = acts.add_parser("artifacts", help="a run's files, with hashes", allow_abbrev=False)
        own.add_argument("run_named", metavar="RUN", help="a run's id or folder")
        own.add_argument("--hash-all", action="store_true", help="hash files of over 1 GiB, too")
        add_format(own, ("table", "json"))
        own.set_defaults(act=_artifacts)
        for act in acts.choices.values():
            add_places(act)

    def run(self, options: argparse.Namespace) -> int:
        """Do what was asked."""
        return int(options.act(options, Places.of(options)))


def _list(options: argparse.Namespace, places: Places) -> int:
    from gpubench_plugin.results import Filter, latest_runs
    from gpubench_plugin.results.registry import reachable

    if options.status not in {None, *_STATES}:
        raise not_one_of("--status", options.status, _STATES)
    wanted = Filter(
        experiment=options.experiment,
        branch=options.branch,
        tag=options.tag,
        state=options.status,
    )
    limit = min(options.last, sys.maxsize) or None
    with reachable(places.registry, places.results_dir) as reached:
        runs, notes = latest_runs(places.results_dir, reached.registry, wanted=wanted, limit=limit)
    if options.format == "json":
        say_json({"runs": [run_as_json(run) for run in runs]})
    elif runs:
        say(run_table(runs, columns(), glyphs()))
    else:
        say([f"no such run in {places.results_dir}"])
    note([reached.note, *notes] if reached.note else notes)
    return Exit.FINE


def _show(options: argparse.Namespace, places: Places) -> int:
    from gpubench_plugin.results import RunDirectory, StoredRun

    with places.baselines() as (baselines, resolver):
        place = resolver.find(options.run_named)
        run = StoredRun(place).overview() if isinstance(place, RunDirectory) else place
        kept = baselines.kept_runs().get(run.run_id, ())
        environment = _environment(place, resolver)
    verdicts = _verdicts(place) if isinstance(place, RunDirectory) else ""
    if options.format == "json":
        about = {"verdicts": verdicts, "baselines": list(kept), "environment": environment}
        say_json({**run_as_json(run), **about})
    else:
        say(run_in_full(run, kept, verdicts, environment, columns()))
    return Exit.FINE


def _tag(options: argparse.Namespace, places: Places) -> int:
    from gpubench_plugin.results import change_tags, find_run
    from gpubench_plugin.results.registry import reachable

    directory = find_run(places.results_dir, options.run_named, here=places.here)
    change = partial(
        change_tags, directory, **{"remove" if options.remove else "add": options.tags}
    )
    with reachable(places.registry, places.results_dir) as reached:
        tags, notes = _tagged(directory, change, reached)
    overruled = [tag for tag in options.tags if (tag in tags) == options.remove]
    if overruled:
        what = "gave it" if options.remove else "took from it"
        notes.append(f"others {what} {', '.join(overruled)} at the same time, and that counts")
    shown = ", ".join(tags) or "none"
    say([f"{printable(directory.run_id)}: tags {printable(shown)}"])
    note(notes)
    return Exit.FINE


def _tagged(
    directory: RunDirectory, change: Callable[..., tuple[str, ...]], reached: Reachable
) -> tuple[tuple[str, ...], list[str]]:
    """The tags after `change`, here and in the registry, and lines for the user."""
    said = "the tags are in the run's folder, but not in the registry: "
    if reached.registry is None:
        return change(), [f"{said}{reached.note}"] if reached.note else []
    try:
        known = reached.registry.tag_changes(directory.run_id)
    except (RegistryError, ResultsError) as error:
        return change(), [f"{said}{error}"]
    tags = change(known=known)
    try:
        stored = reached.registry.tag(directory)
    except (RegistryError, ResultsError) as error:
        return tags, [f"{said}{error}"]
    return tags if stored is None else stored, []


def _artifacts(options: argparse.Namespace, places: Places) -> int:
    from gpubench_plugin.results import HASHED_BYTES, artifacts, find_run

    def is_hashed(name: str, size: int) -> bool:
        if options.hash_all and size > HASHED_BYTES:
            note([f"hashing {name}, {size} bytes"])
        return options.hash_all or size <= HASHED_BYTES

    directory = find_run(places.results_dir, options.run_named, here=places.here)
    files = list(artifacts(directory, is_hashed))
    if options.format == "json":
        say_json({"run_id": directory.run_id, "artifacts": [asdict(file) for file in files]})
    else:
        cells = [
            column("sha256", [file.sha256 or "not hashed" for file in files]),
            column("bytes", [file.bytes for file in files], numeric=True),
            column("file", [file.name for file in files]),
        ]
        say(lines(cells, max(columns(), _WIDE), glyphs()))
    if unhashed := sum(file.sha256 is None for file in files):
        note([f"files of more than 1 GiB that are not hashed: {unhashed}; --hash-all hashes them"])
    return Exit.FINE


_WIDE: Final = 1000
"""Hashes and names of files are for copying: neither is cut."""


def _environment(place: RunDirectory | Overview, resolver: Resolver) -> Mapping[str, Any]:
    """The facts of the run's machine by dot key; none where they cannot be read."""
    from gpubench_plugin.results import RunDirectory, StoredRun

    try:
        if isinstance(place, RunDirectory):
            facts = StoredRun(place).environment
            return {**machine_facts(facts), **told_facts(facts)}
        run = resolver.single(place.run_id).run
    except (GpubenchError, *json_files.MALFORMED):
        return {}
    return {**run.machine, **run.environment}


def _verdicts(directory: RunDirectory) -> str:
    """How many verdicts of which kind, in words; empty where it was not judged."""
    from gpubench_plugin.results import verdicts as verdict_document

    if not directory.verdicts.is_file():
        return ""
    try:
        found = verdict_document.read(directory.verdicts)
    except GpubenchError as error:
        return f"cannot be read: {error}"
    counts = Counter(one.kind for one in found.benchmarks)
    return ", ".join(f"{n} {kind.replace('_', ' ')}" for kind, n in counts.items())
