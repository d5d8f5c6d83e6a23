"""``gpubench list``: what there is to measure with, each in one line, and where it works."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from operator import itemgetter
from typing import ClassVar, Final

from gpubench_plugin import catalog
from gpubench_plugin.cli.commands._places import add_format, glyphs, say
from gpubench_plugin.cli.commands.base import Command, Exit
from gpubench_plugin.environment import text
from gpubench_plugin.errors import not_one_of
from gpubench_plugin.reports import column, lines

_KINDS: Final = ("workloads", "precision", "parallelism", "metrics")
"""What is listed where no kind is named."""


class List(Command):
    """Workloads, precisions, parallelisms and metrics; any other kind of component by name."""

    help: ClassVar[str] = "workloads, precisions, parallelisms and metrics, and where they work"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The kinds, and how to print."""
        parser.add_argument("kinds", metavar="KIND", nargs="*", help=", ".join(catalog.kinds()))
        add_format(parser, ("table", "json"))

    def run(self, options: argparse.Namespace) -> int:
        """Print the list."""
        for kind in options.kinds:
            if kind not in catalog.kinds():
                raise not_one_of("KIND", kind, catalog.kinds())
        components = [line for kind in options.kinds or _KINDS for line in _listed(kind)]
        if options.format == "json":
            say([text(components, indent=2)])
        else:
            say(_table(components))
        return Exit.FINE


def _listed(kind: str) -> Iterator[dict[str, str]]:
    """Every component of `kind`; of a source of metrics, every metric."""
    for name in catalog.choices(kind):
        component = catalog.load(kind, name)
        where = getattr(component, "where", "everywhere")
        meanings = getattr(component, "produces", None) or {name: _meaning(component)}
        for own_name, meaning in meanings.items():
            yield {"kind": kind, "name": own_name, "meaning": meaning, "where": where}


def _meaning(component: object) -> str:
    """A command's help, or else the first line of the component's docstring."""
    said: str = getattr(component, "help", "") or component.__doc__ or ""
    return said.strip().partition("\n")[0].rstrip(".").replace("``", "")


def _table(components: Sequence[Mapping[str, str]]) -> Iterator[str]:
    for number, (kind, group) in enumerate(groupby(components, key=itemgetter("kind"))):
        rows = [*group]
        columns = [
            column("", [row[title] for row in rows]) for title in ("name", "meaning", "where")
        ]
        yield from ["", kind] if number else [kind]
        yield from (f"  {line}" for line in lines(columns, None, glyphs()))
