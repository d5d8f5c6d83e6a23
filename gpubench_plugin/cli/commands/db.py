"""``gpubench db``: create, upgrade, fill, check and rebuild the run database."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gpubench_plugin.cli.commands._places import Locations, add_locations, echo
from gpubench_plugin.cli.commands.base import Command, ExitCode
from gpubench_plugin.reports import printable

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from gpubench_plugin.results.registry import Report

_ACTIONS = ("upgrade", "ingest", "check", "rebuild")


class Db(Command):
    """Maintains the registry, the database that indexes the runs.

    upgrade: bring its tables up to date; ingest: store new and changed runs, and those in the
    spool; check: verify that it is intact and agrees with the runs; rebuild: recreate it from them.
    """

    help: ClassVar[str] = "upgrade, fill, check or rebuild the run database"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Action and database location."""
        parser.add_argument("action", choices=_ACTIONS)
        add_locations(parser)
        parser.add_argument(
            "--drop-missing",
            action="store_true",
            help="with rebuild: proceed even if this loses runs whose directories are missing",
        )

    def run(self, options: argparse.Namespace) -> int:
        """Run the action and report the result."""
        paths = Locations.of(options)
        if options.action == "rebuild":
            return _rebuild(paths, drop_missing=options.drop_missing)
        return {"upgrade": _upgrade, "ingest": _ingest, "check": _check}[options.action](paths)


def _upgrade(paths: Locations) -> int:
    from gpubench_plugin.results.registry import upgrade

    echo(["upgraded" if upgrade(paths.registry, paths.results_dir) else "already up to date"])
    return ExitCode.OK


def _ingest(paths: Locations) -> int:
    from gpubench_plugin.results.registry import Registry, ingest_all

    with Registry.open(paths.registry, paths.results_dir) as registry:
        return _ingested(ingest_all(registry, paths.registry, paths.results_dir))


def _rebuild(paths: Locations, *, drop_missing: bool) -> int:
    from gpubench_plugin.compare.baselines import merge_files
    from gpubench_plugin.results.registry import rebuild

    report = rebuild(
        paths.registry, paths.results_dir, merge_baselines=merge_files, drop_missing=drop_missing
    )
    return _ingested(report)


def _check(paths: Locations) -> int:
    from gpubench_plugin.results.registry import Registry, check

    with Registry.open(paths.registry, paths.results_dir, create=False) as registry:
        report = check(registry)
    summary = [] if report.errors else ["consistent with the runs"]
    return _print([*report.notes, *summary], "error", report.errors)


def _ingested(report: Report) -> int:
    counts = [f"{report.stored} stored", f"{report.unchanged} already present"]
    if report.in_progress:
        counts.append(f"{report.in_progress} still being written")
    return _print([", ".join(counts), *report.notes], "not stored", report.errors)


def _print(lines: Sequence[str], prefix: str, errors: Sequence[str]) -> int:
    echo(map(printable, [*lines, *(f"{prefix}: {error}" for error in errors)]))
    return ExitCode.INFRASTRUCTURE if errors else ExitCode.OK
