"""``gpubench db``: the database of runs made, brought up to date, checked and filled."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from gpubench_plugin.cli.commands.base import Command, Exit
from gpubench_plugin.reports import printable

if TYPE_CHECKING:
    import argparse

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
        parser.add_argument(
            "--registry",
            metavar="URL",
            default=os.environ.get("GPUBENCH_REGISTRY", ""),
            help="the database, else that of $GPUBENCH_REGISTRY, else registry.sqlite in the "
            "folder of the runs",
        )
        parser.add_argument(
            "--results-dir", metavar="DIR", type=Path, default=Path("results"), help="of the runs"
        )
        parser.add_argument(
            "--drop-missing",
            action="store_true",
            help="with rebuild: also where stored runs are lost whose directories are not here",
        )

    def run(self, options: argparse.Namespace) -> int:
        """Do it and say what was done."""
        actions = {
            "upgrade": _upgrade,
            "ingest": _ingest,
            "check": _check,
            "rebuild": _rebuild,
        }
        return actions[options.action](options)


def _upgrade(options: argparse.Namespace) -> int:
    from gpubench_plugin.results.registry import upgrade

    changed = upgrade(options.registry, options.results_dir)
    _say("upgraded" if changed else "up to date already")
    return Exit.FINE


def _ingest(options: argparse.Namespace) -> int:
    from gpubench_plugin.results.registry import Registry, ingest_all

    with Registry.open(options.registry, options.results_dir) as registry:
        return _summary(ingest_all(registry, options.registry, options.results_dir))


def _rebuild(options: argparse.Namespace) -> int:
    from gpubench_plugin.compare.baselines import merge_files
    from gpubench_plugin.results.registry import rebuild

    return _summary(
        rebuild(
            options.registry,
            options.results_dir,
            merge_baselines=merge_files,
            drop_missing=options.drop_missing,
        )
    )


def _check(options: argparse.Namespace) -> int:
    from gpubench_plugin.results.registry import Registry, check

    with Registry.open(options.registry, options.results_dir, create=False) as registry:
        report = check(registry)
    for line in report.notes:
        _say(line)
    for line in report.problems:
        _say(f"problem: {line}")
    if not report.problems:
        _say("sound, and agrees with the runs")
    return Exit.INFRASTRUCTURE if report.problems else Exit.FINE


def _summary(report: Report) -> int:
    counts = [f"{report.stored} stored", f"{report.unchanged} there already"]
    if report.written:
        counts.append(f"{report.written} being written just now")
    _say(", ".join(counts))
    for note in report.notes:
        _say(note)
    for problem in report.problems:
        _say(f"not stored: {problem}")
    return Exit.INFRASTRUCTURE if report.problems else Exit.FINE


def _say(line: str) -> None:
    sys.stdout.write(f"{printable(line)}\n")
