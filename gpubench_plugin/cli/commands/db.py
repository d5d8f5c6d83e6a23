"""``gpubench db``: fill or rebuild the registry, and remove what older versions left in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

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

    from gpubench_plugin.results.registry.registry import Registry


class Db(Command):
    """Maintains the registry, the database of the runs.

    ingest: store new and changed runs; rebuild: derive its index anew from what it keeps of the
    runs and from their folders; clean: remove the index of older versions of gpubench.
    """

    help: ClassVar[str] = "fill, rebuild or clean the run database"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Action and database location."""
        parser.add_argument("action", choices=("ingest", "rebuild", "clean"))
        add_format(parser, ("text", "json"), default="text")
        add_locations(parser)

    def run(self, options: argparse.Namespace) -> int:
        """Run the action and report the result."""
        from gpubench_plugin.results.registry.registry import Registry

        paths = Locations.of(options)
        with Registry.open(paths.registry, paths.results_dir) as registry:
            if options.action == "clean":
                return _clean(registry, as_json=options.format == "json")
            is_rebuild = options.action == "rebuild"
            report = registry.rebuild() if is_rebuild else registry.ingest_all(check_all=True)
        if options.format == "json":
            counts = {name: vars(report)[name] for name in ("stored", "unchanged", "in_progress")}
            echo_json({"action": options.action, **counts, "errors": report.errors})
        else:
            texts = [f"{report.stored} stored", f"{report.unchanged} already present"]
            if report.in_progress:
                texts.append(f"{report.in_progress} still being written")
            errors = [f"not stored: {error}" for error in report.errors]
            echo(map(printable, [", ".join(texts), *errors]))
        return ExitCode.INFRASTRUCTURE if report.errors else ExitCode.OK


def _clean(registry: Registry, *, as_json: bool) -> int:
    from gpubench_plugin.results.registry import tables

    removed = tables.drop_older(registry.database)
    if as_json:
        echo_json({"action": "clean", "removed": removed, "errors": []})
    else:
        echo([f"removed tables: {', '.join(removed) or 'none'}"])
    return ExitCode.OK
