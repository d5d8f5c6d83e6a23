"""Base class of the ``gpubench`` commands."""

from __future__ import annotations

import argparse
from abc import ABC, abstractmethod
from enum import IntEnum
from typing import ClassVar


class ExitCode(IntEnum):
    """The exit codes of ``gpubench``."""

    OK = 0
    REGRESSION = 1
    USAGE = 2
    NOTHING_COMPARABLE = 3
    INFRASTRUCTURE = 4


class Command(ABC):
    """A subcommand, named after its module.

    Its module imports nothing heavy, since ``gpubench --help`` loads those of all commands.
    """

    help: ClassVar[str]
    """One line for ``gpubench --help``."""

    passes_on: ClassVar[bool] = False
    """Whether unknown arguments are pytest's."""

    hint_for_unknown: ClassVar[str] = ""
    """Hint appended to the error for an unknown argument."""

    @abstractmethod
    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the command's arguments to `parser`."""

    @abstractmethod
    def run(self, options: argparse.Namespace) -> int:
        """Run the command, print to ``sys.stdout`` and return the exit code (:class:`ExitCode`).

        Raises:
            UsageProblem, NothingComparable, RegistryError, ResultsError: printed as one line, with
                an exit code each.
        """


BASE = Command
