"""``gpubench schema``: the JSON Schemas of the files this project writes."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, ClassVar

from gpubench_plugin.commands.base import Command, Exit
from gpubench_plugin.errors import not_one_of

if TYPE_CHECKING:
    import argparse

_FILES = ("summary",)


class Schema(Command):
    """Prints a published schema."""

    help: ClassVar[str] = "print the JSON Schema of a file this project writes"

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Which file's schema."""
        parser.add_argument(
            "file", nargs="?", default="summary", help=f"of which file: {', '.join(_FILES)}"
        )

    def run(self, options: argparse.Namespace) -> int:
        """Print it."""
        if options.file not in _FILES:
            raise not_one_of("gpubench schema", options.file, _FILES)
        from gpubench_plugin.results.summary import schema_text

        sys.stdout.write(schema_text())
        return Exit.FINE
