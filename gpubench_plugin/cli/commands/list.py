"""``gpubench list``: available components, one line each, and where they work."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import ClassVar, Final

from gpubench_plugin.cli.commands._places import add_format, output_width, show
from gpubench_plugin.cli.commands.base import Command, ExitCode
from gpubench_plugin.core import catalog
from gpubench_plugin.reports.table import column, lines

_KINDS: Final = ("workloads", "precision", "parallelism", "metrics")
"""Kinds listed by default."""
_INDENT: Final = "  "


class List(Command):
    """Lists workloads, precisions, parallelisms and metrics; other component kinds by name."""

    help: ClassVar[str] = "list workloads, precisions, parallelisms, metrics, and where they work"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Component kinds and output format."""
        kinds = catalog.kinds()
        add = parser.add_argument
        add("kinds", metavar="KIND", nargs="*", choices=kinds, help=", ".join(kinds))
        add_format(parser, ("table", "json"))

    def run(self, options: argparse.Namespace) -> int:
        """Print the components of the selected kinds, with meaning and availability."""
        components = [row for kind in options.kinds or _KINDS for row in _component_rows(kind)]
        show(options, {"components": components}, _table(components))
        return ExitCode.OK


def _component_rows(kind: str) -> Iterator[dict[str, str]]:
    """Rows for every component of `kind`; for a metric source, one per metric."""
    for name in catalog.choices(kind):
        try:
            component = catalog.load(kind, name)
        except ModuleNotFoundError as error:
            yield {"kind": kind, "name": name, "meaning": "", "where": f"with {error.name}"}
            continue
        where = getattr(component, "where", "everywhere")
        meanings = getattr(component, "produces", None) or {name: _description(component)}
        for label, meaning in meanings.items():
            yield {"kind": kind, "name": label, "meaning": meaning, "where": where}


def _description(component: object) -> str:
    """A command's help, or else the first line of the component's docstring."""
    description: str = getattr(component, "help", "") or component.__doc__ or ""
    return description.strip().partition("\n")[0].rstrip(".").replace("``", "")


def _table(components: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """A table per kind, cut to a terminal's width; whole in a file or pipe."""
    total = output_width() - len(_INDENT) if sys.stdout.isatty() else None
    for number, (kind, group) in enumerate(groupby(components, key=itemgetter("kind"))):
        rows = [*group]
        columns = [column("", [row[key] for row in rows]) for key in ("name", "meaning", "where")]
        yield from ["", kind] if number else [kind]
        yield from (f"{_INDENT}{line}" for line in lines(columns, total))
