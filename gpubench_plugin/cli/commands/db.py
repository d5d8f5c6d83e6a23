"""``gpubench db``: create, upgrade, fill, check and rebuild the run database."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gpubench_plugin.cli.commands._places import Locations, add_locations, echo
from gpubench_plugin.cli.commands.base import Command, ExitCode
from gpubench_plugin.reports import printable

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable

    from gpubench_plugin.results.registry import Report

_ACTIONS = ("upgrade", "ingest", "check", "rebuild")


class Db(Command):
    """Maintains the registry, the database that indexes the runs.

    upgrade: bring its tables up to date; ingest: store every run that is not there as it is now,
    and those that wait in the spool; check: look whether it is sound and agrees with the runs;
    rebuild: make it anew from the runs.
    """

    help: ClassVar[str] = "upgrade, fill, check or rebuild the run database"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Action and database location."""
        parser.add_argument("action", choices=_ACTIONS)
        add_locations(parser)
        parser.add_argument(
            "--drop-missing",
            action="store_true",
            help="with rebuild: proceed even if stored runs whose directories are missing are lost",
        )

    def run(self, options: argparse.Namespace) -> int:
        """Run the action and report the result."""
        places = Locations.of(options)
        if options.action == "rebuild":
            return _rebuild(places, drop_missing=options.drop_missing)
        return {"upgrade": _upgrade, "ingest": _ingest, "check": _check}[options.action](places)


def _upgrade(places: Locations) -> int:
    from gpubench_plugin.results.registry import upgrade

    applied = upgrade(places.registry, places.results_dir)
    _say(["upgraded" if applied else "already up to date"])
    return ExitCode.OK


def _ingest(places: Locations) -> int:
    from gpubench_plugin.results.registry import Registry, ingest_all

    with Registry.open(places.registry, places.results_dir) as registry:
        return _summary(ingest_all(registry, places.registry, places.results_dir))


def _rebuild(places: Locations, *, drop_missing: bool) -> int:
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


def _check(places: Locations) -> int:
    from gpubench_plugin.results.registry import Registry, check

    with Registry.open(places.registry, places.results_dir, create=False) as registry:
        report = check(registry)
    _say(report.notes)
    _say(f"error: {line}" for line in report.errors)
    _say(["consistent with the runs"] if not report.errors else [])
    return ExitCode.INFRASTRUCTURE if report.errors else ExitCode.OK


def _summary(report: Report) -> int:
    counts = [f"{report.stored} stored", f"{report.unchanged} already present"]
    if report.in_progress:
        counts.append(f"{report.in_progress} still being written")
    _say([", ".join(counts), *report.notes])
    _say(f"not stored: {problem}" for problem in report.errors)
    return ExitCode.INFRASTRUCTURE if report.errors else ExitCode.OK


def _say(lines: Iterable[str]) -> None:
    echo(map(printable, lines))
