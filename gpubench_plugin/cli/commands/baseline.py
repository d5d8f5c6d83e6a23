"""``gpubench baseline``: named sets of runs that later runs are judged against."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, ClassVar, Final, TypeAlias

from gpubench_plugin.baselines.model import Baseline, Reference, as_json
from gpubench_plugin.baselines.resolve import Resolver
from gpubench_plugin.baselines.store import BaselineExists, Baselines
from gpubench_plugin.cli.commands._places import RUN, add_locations, output_width, resolver_of, show
from gpubench_plugin.cli.commands.base import Command, ExitCode
from gpubench_plugin.compare.launch_values import FEWEST
from gpubench_plugin.core.errors import GpubenchError, UsageProblem
from gpubench_plugin.core.format import counted
from gpubench_plugin.reports.table import column, lines, wrapped
from gpubench_plugin.reports.text import NOTHING, printable

_NAME: Final[Mapping[str, Any]] = {"metavar": "BASELINE", "help": "baseline name"}

_SESSION_H: Final = 12
"""Runs started within so many hours are of one day or one night."""


class BaselineCommand(Command):
    """Manages baselines: named sets of pinned runs, stored with the results or on the server.

    Later runs on the pinned runs' branch become samples, too. Only this command and
    'gpubench accept' change a baseline.
    """

    help: ClassVar[str] = "set, list, show or remove the baselines that runs are judged against"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """One subparser per action."""
        actions = parser.add_subparsers(title="actions", required=True, metavar="ACTION")
        sub = actions.add_parser("set", help="pin runs under a name")
        add = sub.add_argument
        add("name", **_NAME)
        add("runs", nargs="+", **RUN)
        one_of = sub.add_mutually_exclusive_group().add_argument
        one_of("--branch", help="whose later runs become samples (default: the first run's branch)")
        one_of("--no-branch", action="store_true", help="use only the pinned runs")
        add("--force", action="store_true", help="pin the run despite objections")
        add("--if-missing", action="store_true", help="do nothing if the baseline exists")
        add("--reset-accepted", action="store_true", help="drop accepted levels (default: keep)")
        actions.add_parser("list", help="list all baselines")
        show = actions.add_parser("show", help="show one baseline and its changes")
        show.add_argument("name", **_NAME)
        remove = actions.add_parser("rm", help="remove a baseline")
        remove.add_argument("name", **_NAME)
        for changing in (sub, remove):
            changing.add_argument("--reason", default="", help="reason, for the change log")
        runs = (_set, _list, _show, _remove)
        for subparser, run in zip(actions.choices.values(), runs, strict=True):
            subparser.set_defaults(action=run)
            add_locations(subparser)

    def run(self, options: argparse.Namespace) -> int:
        """Run the selected action."""
        with resolver_of(options) as resolver:
            baselines = resolver.baselines()
            document, text = options.action(options, baselines, resolver)
        show(options, document, text)
        return ExitCode.OK


Output: TypeAlias = "tuple[Mapping[str, Any], Iterable[str]]"
"""What an action prints: the document with ``--format=json``, else the lines."""


def _set(options: argparse.Namespace, baselines: Baselines, resolver: Resolver) -> Output:
    try:
        baseline, notes = _newly_set(options, baselines, resolver)
    except BaselineExists as error:
        note = str(error)
        return {"changed": False, "baseline": as_json(error.baseline), "notes": [note]}, [note]
    document = {"changed": True, "baseline": as_json(baseline), "notes": notes}
    return document, [*_description(baseline), *notes]


def _newly_set(
    options: argparse.Namespace, baselines: Baselines, resolver: Resolver
) -> tuple[Baseline, list[str]]:

    existing = baselines.get(options.name) if options.if_missing else None
    if existing is not None:  # before the runs are looked at
        raise BaselineExists(existing)
    candidates = [resolver.candidate(text) for text in options.runs]
    baseline = baselines.set(
        options.name,
        [candidate.run.run_id for candidate in candidates],
        branch=None if options.no_branch else options.branch or candidates[0].run.branch,
        reason=options.reason,
        overridden=_overridden_objections(candidates, force=options.force, reason=options.reason),
        reset_accepted=options.reset_accepted,
        if_missing=options.if_missing,
    )
    notes = [
        *(
            f"{printable(c.run.run_id)}: {text}; pinned anyway"
            for c in candidates
            for text in c.notes
        ),
        *_shortcomings(baseline, [candidate.run.started for candidate in candidates]),
    ]
    if kept := len(baseline.acceptances):
        notes.append(f"accepted levels kept: {kept} (--reset-accepted drops them)")
    return baseline, notes


def _overridden_objections(candidates: list[Reference], *, force: bool, reason: str) -> list[str]:
    """Objections to the runs; UsageProblem unless `force` overrides them with a `reason`."""
    objections = [
        f"{candidate.run.run_id}: {', '.join(candidate.objections)}"
        for candidate in candidates
        if candidate.objections
    ]
    if objections and not (force and reason.strip()):
        raise UsageProblem(
            f"gpubench baseline set: {'; '.join(objections)}; give another run, or --force "
            "with --reason"
        )
    return objections


def _description(baseline: Baseline) -> Iterator[str]:
    yield f"baseline {printable(baseline.name)}: {counted(len(baseline.runs), 'pinned run')}"
    for run in baseline.runs:
        yield f"  {printable(run)}"
    if baseline.branch is None:
        yield "no other runs count as samples"
    else:
        yield f"later runs on branch {printable(baseline.branch)} count as samples, too"


def _shortcomings(baseline: Baseline, started: list[str]) -> Iterator[str]:
    """How many more runs a history needs, or that those of one session show no daily noise."""
    if (pinned_count := len(baseline.runs)) < FEWEST:
        pinned = counted(pinned_count, "run")
        yield f"a gate cannot judge from {pinned} yet: pin {FEWEST - pinned_count} more"
        if baseline.branch is not None:
            yield f"or wait for {FEWEST - 1} later runs on {printable(baseline.branch)}"
        return
    times = [datetime.fromisoformat(text) for text in filter(None, started)]
    if len(times) < FEWEST:
        return
    if (max(times) - min(times)).total_seconds() < _SESSION_H * 3600:
        yield f"the runs started within {_SESSION_H} hours and do not show the noise between days:"
        yield "a slow day may raise a false alarm; pin runs of different days"


def _list(options: argparse.Namespace, baselines: Baselines, resolver: Resolver) -> Output:
    rows = [_row(name, baselines) for name in baselines.names()]
    document = {"location": baselines.location, "baselines": rows}
    if not rows:
        hint = "create one: gpubench baseline set NAME RUN"
        return document, [f"no baseline in {printable(baselines.location)}; {hint}"]

    def texts(key: str) -> list[str]:
        return ["" if row["problem"] else str(row[key] or NOTHING) for row in rows]

    accepted = ["" if row["problem"] else str(row["accepted"]) for row in rows]
    cells = [
        column("baseline", [row["name"] for row in rows]),
        column("pinned", texts("pinned"), numeric=True),
        column("branch", texts("branch")),
        column("accepted", accepted, numeric=True),
        column("changed", [row["changed"][:16].replace("T", " ") for row in rows]),
        column("", [row["problem"] and f"broken: {row['problem']}" for row in rows]),
    ]
    return document, lines(cells, output_width())


def _row(name: str, baselines: Baselines) -> dict[str, Any]:
    row = {"name": name, "pinned": 0, "branch": None, "accepted": 0, "changed": "", "problem": ""}
    try:
        baseline = baselines.require(name)
    except GpubenchError as error:
        return {**row, "problem": str(error)}
    counts = {"pinned": len(baseline.runs), "accepted": len(baseline.acceptances)}
    return {**row, **counts, "branch": baseline.branch, "changed": baseline.changed}


def _show(options: argparse.Namespace, baselines: Baselines, resolver: Resolver) -> Output:
    baseline = baselines.require(options.name)
    return {"baseline": as_json(baseline)}, _details(baseline)


def _details(baseline: Baseline) -> Iterator[str]:
    """Pinned runs, accepted levels, and changes."""
    yield from _description(baseline)
    if baseline.acceptances:
        yield "accepted levels"
    for acceptance in baseline.acceptances.values():
        yield f"  {printable(acceptance.benchmark)}"
        yield f"    from {printable(acceptance.runs[0])} on"
        yield from wrapped(acceptance.reason, output_width(), indent="    ")
    yield "changes"
    for change in baseline.changes:
        benchmark = f" {printable(change.benchmark)}" if change.benchmark else ""
        reset_note = " --reset-accepted" if change.reset_accepted else ""
        yield f"  {printable(change.time[:19])}Z {change.action}{benchmark}{reset_note}"
        overridden = (f"overridden: {objection}" for objection in change.forced)
        for text in filter(None, (", ".join(change.runs), change.reason, *overridden)):
            yield from wrapped(text, output_width(), indent="    ")


def _remove(options: argparse.Namespace, baselines: Baselines, resolver: Resolver) -> Output:
    baselines.remove(options.name, reason=options.reason)
    return {"removed": options.name}, [f"removed baseline {options.name}"]
