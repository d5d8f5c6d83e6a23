"""The command ``gpubench``: benchmarks compared, judged and kept."""

from __future__ import annotations

import argparse
import sys
from importlib.metadata import version
from typing import TYPE_CHECKING, Final, cast

from gpubench_plugin import catalog
from gpubench_plugin.commands.base import Command, Exit
from gpubench_plugin.errors import GpubenchError, NothingComparable, RegistryError, ResultsError
from gpubench_plugin.reports.cells import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

_EXIT: Final[dict[type[GpubenchError], Exit]] = {
    NothingComparable: Exit.NOTHING_COMPARABLE,
    RegistryError: Exit.INFRASTRUCTURE,
    ResultsError: Exit.INFRASTRUCTURE,
}

_EPILOG: Final = (
    "exit codes: 0 fine, 1 a regression, 2 bad usage, 3 nothing comparable, 4 a file or the "
    "database could not be read or written"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code, see :class:`~.commands.base.Exit`."""
    options = _parser().parse_args(arguments)
    try:
        return int(options.command.run(options))
    except GpubenchError as error:
        sys.stderr.write(f"gpubench: {_harmless(str(error))}\n")
        return next((c for kind, c in _EXIT.items() if isinstance(error, kind)), Exit.USAGE)
    except BrokenPipeError:
        sys.stderr.close()
        return Exit.FINE
    except KeyboardInterrupt:
        sys.stderr.write("gpubench: interrupted\n")
        return 130  # as a shell says of SIGINT


def _harmless(message: str) -> str:
    """`message`, which may quote a file, with everything that steers a terminal as an escape."""
    lines = message.splitlines()
    indents = (line[: len(line) - len(line.lstrip(" "))] for line in lines)
    return "\n".join(a + printable(line) for a, line in zip(indents, lines, strict=True))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpubench", description=__doc__, epilog=_EPILOG, allow_abbrev=False
    )
    parser.add_argument(
        "--version", action="version", version=f"%(prog)s {version('pytest-gpubench')}"
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name in catalog.choices("commands"):
        command = cast("Command", catalog.load("commands", name)())
        own = commands.add_parser(
            name, help=command.help, description=command.__doc__, allow_abbrev=False
        )
        own.set_defaults(command=command)
        command.add_arguments(own)
    return parser
