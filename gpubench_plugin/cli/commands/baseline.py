"""``gpubench baseline``: which runs later ones are judged by, under a name."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, Final

from gpubench_plugin.cli.commands._places import Places, add_places, columns, glyphs, say
from gpubench_plugin.cli.commands.base import Command, Exit
from gpubench_plugin.environment import counted
from gpubench_plugin.errors import GpubenchError, UsageProblem
from gpubench_plugin.reports import column, lines, printable, wrapped

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from gpubench_plugin.compare.baselines import Baseline, Baselines, Reference, Resolver


class BaselineCommand(Command):
    """Baselines: names that stand for pinned runs, kept in the folder of the runs and shared.

    Later runs on the branch of the pinned ones are further samples. A baseline changes only by
    this command and by 'gpubench accept'.
    """

    help: ClassVar[str] = "set, list, show or remove the baselines that runs are judged by"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """One parser for each act."""
        acts = parser.add_subparsers(title="acts", required=True, metavar="ACT")
        own = acts.add_parser("set", help="pin runs under a name", allow_abbrev=False)
        own.add_argument("name", metavar="NAME")
        own.add_argument("runs", metavar="RUN", nargs="+", help="a run's id or folder")
        branch = own.add_mutually_exclusive_group()
        branch.add_argument("--branch", help="its later runs are samples (that of the first run)")
        branch.add_argument("--no-branch", action="store_true", help="the pinned runs alone")
        own.add_argument("--reason", default="", help="why, for those who look later")
        own.add_argument("--force", action="store_true", help="whatever speaks against a run")
        own.add_argument(
            "--if-missing", action="store_true", help="leave a baseline as it is that is there"
        )
        own.add_argument(
            "--reset-accepted",
            action="store_true",
            help="let accepted levels no longer count; without this they stay",
        )
        own.set_defaults(act=_set)
        own = acts.add_parser("list", help="all baselines", allow_abbrev=False)
        own.set_defaults(act=_list)
        own = acts.add_parser("show", help="one baseline and its changes", allow_abbrev=False)
        own.add_argument("name", metavar="NAME")
        own.set_defaults(act=_show)
        own = acts.add_parser("rm", help="let a name stand for nothing", allow_abbrev=False)
        own.add_argument("name", metavar="NAME")
        own.add_argument("--reason", default="", help="why, for those who look later")
        own.set_defaults(act=_remove)
        for act in acts.choices.values():
            add_places(act)

    def run(self, options: argparse.Namespace) -> int:
        """Do what was asked."""
        places = Places.of(options)
        with places.baselines() as (baselines, resolver):
            options.act(options, baselines, resolver)
        return Exit.FINE


def _set(options: argparse.Namespace, baselines: Baselines, resolver: Resolver) -> None:
    from gpubench_plugin.compare.baselines import baseline_name

    baseline_name(options.name)
    if options.if_missing and baselines.stands(options.name):  # before the runs are looked at
        say([f"baseline {options.name} is there already; it is left as it is"])
        return
    candidates = [resolver.candidate(text) for text in options.runs]
    forced = _overruled(candidates, force=options.force, reason=options.reason)
    branch = options.branch or candidates[0].run.branch
    baseline = baselines.set(
        options.name,
        [one.run.run_id for one in candidates],
        branch=None if options.no_branch else branch,
        reason=options.reason,
        forced=forced,
        reset_accepted=options.reset_accepted,
        if_missing=options.if_missing,
    )
    say(_described(baseline))
    say(_remarks(candidates))
    say(_lacking(baseline))
    say(_of_one_sitting([one.run.started for one in candidates]))
    if not options.if_missing:
        say(_replaced(baseline))


def _overruled(candidates: list[Reference], *, force: bool, reason: str) -> list[str]:
    """What speaks against the runs, which `force` overrules.

    Raises:
        UsageProblem: it was not forced, or without a reason.
    """
    against = [
        f"{one.run.run_id}: {', '.join(one.objections)}" for one in candidates if one.objections
    ]
    if against and not force:
        raise UsageProblem(
            f"gpubench baseline set: {'; '.join(against)}; give another run, or --force with "
            "--reason"
        )
    if against and not reason.strip():
        raise UsageProblem(
            f"--force: needs --reason, a text that says why, since {'; '.join(against)}"
        )
    return against


def _described(baseline: Baseline) -> Iterator[str]:
    yield f"baseline {printable(baseline.name)}: {counted(len(baseline.runs), 'pinned run')}"
    for run in baseline.runs:
        yield f"  {printable(run)}"
    if baseline.branch is None:
        yield "no other runs are samples"
    else:
        yield f"later runs on branch {printable(baseline.branch)} are samples too"


def _remarks(candidates: list[Reference]) -> Iterator[str]:
    for one in candidates:
        for remark in one.notes:
            yield f"{printable(one.run.run_id)}: {remark}; pinned all the same"


def _lacking(baseline: Baseline) -> Iterator[str]:
    """How many runs a history lacks before it can judge."""
    from gpubench_plugin.compare import FEWEST

    if (pinned := len(baseline.runs)) >= FEWEST:
        return
    yield f"a gate is not able to judge by {pinned} yet: pin {FEWEST - pinned} more"
    if baseline.branch is not None:
        yield f"or let {FEWEST - 1} later ones run on {printable(baseline.branch)}"


_SITTING_H: Final = 12
"""Runs that began within so many hours are of one day, or of one night."""


def _of_one_sitting(started: list[str]) -> Iterator[str]:
    """That runs which are to tell the noise know nothing of that between days."""
    from gpubench_plugin.compare import FEWEST

    times = [datetime.fromisoformat(text) for text in filter(None, started)]
    if len(times) < FEWEST:
        return
    hours = (max(times) - min(times)).total_seconds() / 3600
    if hours < _SITTING_H:
        yield f"they began within {hours:.1f} hours and know nothing of the noise between days:"
        yield "a slower day may be a false alarm; pin runs of different days"


def _replaced(baseline: Baseline) -> Iterator[str]:
    """What the name stood for before, and what becomes of the levels accepted for that."""
    from gpubench_plugin.compare.baselines import replaced

    before = replaced(baseline)
    if before is None:
        return
    yield f"it replaces what the name stood for since {printable(before.changed[:19])}Z:"
    yield from (f"  {line}" for line in _described(before))
    if kept := baseline.acceptances:
        yield f"accepted levels that stay: {len(kept)} (--reset-accepted ends them)"
    ended = {name: a for name, a in before.acceptances.items() if name not in kept}
    if ended:
        yield f"accepted levels that end: {len(ended)}"
    for name, accepted in sorted({**ended, **kept}.items()):
        yield f"  {printable(name)}"
        yield f"    from {printable(accepted.run)} on"


def _list(options: argparse.Namespace, baselines: Baselines, resolver: Resolver) -> None:
    rows = [_row(name, baselines) for name in baselines.names()]
    if not rows:
        say([f"no baseline in {baselines.folder}; make one: gpubench baseline set NAME RUN"])
        return
    titles = ("baseline", "pinned", "branch", "accepted", "changed", "")
    cells = [
        column(title, texts, numeric=title in {"pinned", "accepted"})
        for title, texts in zip(titles, zip(*rows, strict=True), strict=True)
    ]
    say(lines(cells, columns(), glyphs()))


def _row(name: str, baselines: Baselines) -> tuple[str, ...]:
    try:
        baseline = baselines.expect(name)
    except GpubenchError as error:
        return (name, "", "", "", "", f"broken: {error}")
    return (
        name,
        str(len(baseline.runs)),
        baseline.branch or glyphs().nothing,
        str(len(baseline.acceptances)),
        baseline.changed[:16].replace("T", " "),
        "",
    )


def _show(options: argparse.Namespace, baselines: Baselines, resolver: Resolver) -> None:
    baseline = baselines.expect(options.name)
    say(_described(baseline))
    if baseline.acceptances:
        say(["accepted levels"])
    for accepted in baseline.acceptances.values():
        say([f"  {printable(accepted.benchmark)}", f"    from {printable(accepted.run)} on"])
        say(wrapped(accepted.reason, columns(), indent="    "))
    say(["changes"])
    for change in baseline.changes:
        what = f" {printable(change.benchmark)}" if change.benchmark else ""
        runs = f": {', '.join(change.runs)}" if change.runs else ""
        ended = " --reset-accepted" if change.reset_accepted else ""
        say([f"  {printable(change.time[:19])}Z {change.action}{what}{ended}"])
        say(wrapped(runs[2:], columns(), indent="    ") if runs else [])
        for text in (change.reason, *(f"overruled: {one}" for one in change.forced)):
            say(wrapped(text, columns(), indent="    ") if text else [])


def _remove(options: argparse.Namespace, baselines: Baselines, resolver: Resolver) -> None:
    baselines.remove(options.name, reason=options.reason)
    say([f"baseline {options.name} stands for nothing now"])
