"""``gpubench db``: create, upgrade, fill, check and rebuild the run database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from gpubench_plugin.cli.commands._places import (
    Locations,
    add_format,
    add_locations,
    echo,
    echo_json,
)
from gpubench_plugin.cli.commands.base import Command, ExitCode
from gpubench_plugin.reports.text import printable

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from gpubench_plugin.results.registry.spool import Report

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
        add_format(parser, ("text", "json"), default="text")
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
            outcome = _rebuild(paths, drop_missing=options.drop_missing)
        else:
            outcome = {"upgrade": _upgrade, "ingest": _ingest, "check": _check}[options.action](
                paths
            )
        if options.format == "json":
            errors, notes = [*outcome.errors], [*outcome.notes]
            echo_json({"action": options.action, **outcome.facts, "notes": notes, "errors": errors})
        else:
            errors = [f"{outcome.error_prefix}: {error}" for error in outcome.errors]
            echo(map(printable, [*outcome.lines, *errors]))
        return ExitCode.INFRASTRUCTURE if outcome.errors else ExitCode.OK


@dataclass(frozen=True, kw_only=True)
class _Outcome:
    """What an action did: a `summary` for people, `facts` for programs."""

    facts: Mapping[str, Any]
    summary: str
    notes: Sequence[str] = ()
    errors: Sequence[str] = ()
    error_prefix: str = "error"
    summary_first: bool = True

    @property
    def lines(self) -> list[str]:
        """Summary and notes."""
        summary = [self.summary] if self.summary else []
        return [*summary, *self.notes] if self.summary_first else [*self.notes, *summary]


def _upgrade(paths: Locations) -> _Outcome:
    from gpubench_plugin.results.registry.registry import upgrade

    is_upgraded = upgrade(paths.registry, paths.results_dir)
    return _Outcome(
        facts={"upgraded": is_upgraded},
        summary="upgraded" if is_upgraded else "already up to date",
    )


def _ingest(paths: Locations) -> _Outcome:
    from gpubench_plugin.results.registry.registry import Registry
    from gpubench_plugin.results.registry.spool import ingest_all

    with Registry.open(paths.registry, paths.results_dir) as registry:
        return _ingested(ingest_all(registry, paths.registry, paths.results_dir))


def _rebuild(paths: Locations, *, drop_missing: bool) -> _Outcome:
    from gpubench_plugin.baselines.store import merge_files
    from gpubench_plugin.results.registry.rebuilding import rebuild

    report = rebuild(
        paths.registry, paths.results_dir, merge_baselines=merge_files, drop_missing=drop_missing
    )
    return _ingested(report)


def _check(paths: Locations) -> _Outcome:
    from gpubench_plugin.results.registry.checking import check
    from gpubench_plugin.results.registry.registry import Registry

    with Registry.open(paths.registry, paths.results_dir, create=False) as registry:
        report = check(registry)
    return _Outcome(
        facts={"consistent": not report.errors},
        summary="" if report.errors else "consistent with the runs",
        notes=report.notes,
        errors=report.errors,
        summary_first=False,
    )


def _ingested(report: Report) -> _Outcome:
    counts = [f"{report.stored} stored", f"{report.unchanged} already present"]
    if report.in_progress:
        counts.append(f"{report.in_progress} still being written")
    return _Outcome(
        facts={
            "stored": report.stored,
            "unchanged": report.unchanged,
            "in_progress": report.in_progress,
        },
        summary=", ".join(counts),
        notes=report.notes,
        errors=report.errors,
        error_prefix="not stored",
    )
