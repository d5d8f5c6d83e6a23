"""``gpubench db``: fill or rebuild the registry."""

from __future__ import annotations

import argparse
from typing import ClassVar

from gpubench_plugin.cli.commands._places import add_locations, resolver_of, show
from gpubench_plugin.cli.commands.base import Command, ExitCode
from gpubench_plugin.reports.text import printable


class Db(Command):
    """Maintains the registry, the database of the runs.

    ingest: store new and changed runs; rebuild: derive its index anew from what it keeps of the
    runs and from their folders.
    """

    help: ClassVar[str] = "fill or rebuild the run database"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Action and database location."""
        parser.add_argument("action", choices=("ingest", "rebuild"))
        add_locations(parser)

    def run(self, options: argparse.Namespace) -> int:
        """Run the action and report the result."""
        from gpubench_plugin.results.registry.registry import Registry

        places = resolver_of(options)
        with Registry.open(places.url, places.results_dir) as registry:
            is_rebuild = options.action == "rebuild"
            report = registry.rebuild() if is_rebuild else registry.ingest_all(check_all=True)
        counts = {name: vars(report)[name] for name in ("stored", "unchanged", "in_progress")}
        texts = [f"{report.stored} stored", f"{report.unchanged} already present"]
        if report.in_progress:
            texts.append(f"{report.in_progress} still being written")
        lines = [", ".join(texts), *(f"not stored: {error}" for error in report.errors)]
        document = {"action": options.action, **counts, "errors": report.errors}
        show(options, document, map(printable, lines))
        return ExitCode.INFRASTRUCTURE if report.errors else ExitCode.OK
