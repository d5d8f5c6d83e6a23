"""``gpubench schema``: JSON Schemas of the files gpubench writes."""

from __future__ import annotations

import argparse
import importlib
import inspect
from typing import ClassVar, Final

from gpubench_plugin.cli.commands._places import add_format, echo
from gpubench_plugin.cli.commands.base import Command, ExitCode
from gpubench_plugin.system import json_files, stored

_FILES: Final = {
    "summary": ("gpubench_plugin.results.summary", "Summary"),
    "verdicts": ("gpubench_plugin.results.verdicts", "VerdictDocument"),
    "journal": ("gpubench_plugin.results.journal_schema", "Line"),
    "baseline": ("gpubench_plugin.baselines.model", "BaselineFile"),
    "csv": ("gpubench_plugin.results.csv_table", "table_schema"),
}
"""Module of each file, and class of its record or function that returns its schema."""


class Schema(Command):
    """Prints the JSON Schema of a file that gpubench writes; of csv the Table Schema."""

    help: ClassVar[str] = "print the schema of a file written by gpubench"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the kind of file, by default the summary."""
        text = f"{', '.join(_FILES)} (default: summary)"
        add = parser.add_argument
        add("file", metavar="FILE", nargs="?", default="summary", choices=_FILES, help=text)
        add_format(parser, ("json",))

    def run(self, options: argparse.Namespace) -> int:
        """Print the schema, derived from the class of the records."""
        module, name = _FILES[options.file]
        source = getattr(importlib.import_module(module), name)
        schema = source() if inspect.isfunction(source) else stored.json_schema(source)
        echo([json_files.text(schema, indent=2)])
        return ExitCode.OK
