"""``gpubench db``: the database of runs made, brought up to date, checked and filled."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gpubench_plugin.cli.commands._places import Places, add_places, say
from gpubench_plugin.cli.commands.base import Command, Exit
from gpubench_plugin.reports import printable

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from gpubench_plugin.results.registry import Report

_ACTIONS = ("upgrade", "ingest", "check", "rebuild")


class Db(Command):
    """Looks after the registry, the database that indexes the runs.

    upgrade: bring its tables up to date; ingest: store every run that is not there as it is now,
    and those that wait in the spool; check: look whether it is sound and agrees with the runs;
    rebuild: make it anew from the runs.
    """

    help: ClassVar[str] = "upgrade, fill, check or rebuild the database of runs"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """What is to be done, and where."""
        parser.add_argument("action", choices=_ACTIONS)
        add_places(parser)
        parser.add_argument(
            "--drop-missing",
            action="store_true",
            help="with rebuild: also where stored runs are lost whose directories are not here",
        )

    def run(self, options: argparse.Namespace) -> int:
        """Do it and say what was done."""
        places = Places.of(options)
        if options.action == "rebuild":
            return _rebuild(places, drop_missing=options.drop_missing)
        return {"upgrade": _upgrade, "ingest": _ingest, "check": _check}[options.action](places)


def _upgrade(places: Places) -> int:
    from gpubench_plugin.results.registry import upgrade

    changed = upgrade(places.registry, places.results_dir)
    _say(["upgraded" if changed else "up to date already"])
    return Exit.FINE


def _ingest(places: Places) -> int:
    from gpubench_plugin.results.registry import Registry, ingest_all

    with Registry.open(places.registry, places.results_dir) as registry:
        return _summary(ingest_all(registry, places.registry, places.results_dir))


def _rebuild(places: Places, *, drop_missing: bool) -> int:
    from gpubench_plugin.compare.baselines import merge_files
    from gpubench_plugin.results.registry import rebuild

    return _summary(
        rebuild(
            places.registry,
            places.results_dir,
            merge_baselines=merge_files,
            drop_missing=drop_missing,
        )
    )


def _check(places: Places) -> int:
    from gpubench_plugin.results.registry import Registry, check

    with Registry.open(places.registry, places.results_dir, create=False) as registry:
        report = check(registry)
    _say(report.notes)
    _say(f"problem: {line}" for line in report.problems)
    _say(["sound, and agrees with the runs"] if not report.problems else [])
    return Exit.INFRASTRUCTURE if report.problems else Exit.FINE


def _summary(report: Report) -> int:
    counts = [f"{report.stored} stored", f"{report.unchanged} there already"]
    if report.written:
        counts.append(f"{report.written} being written just now")
    _say([", ".join(counts), *report.notes])
    _say(f"not stored: {problem}" for problem in report.problems)
    return Exit.INFRASTRUCTURE if report.problems else Exit.FINE


def _say(lines: Iterable[str]) -> None:
    say(map(printable, lines))
