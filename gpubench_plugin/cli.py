"""The command ``gpubench``: benchmarks compared, judged and kept."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import suppress
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
    code: int = Exit.FINE
    try:
        code = _outcome(_options(arguments))
        sys.stdout.flush()  # here, not where Python ends: a full disk must be said
    except BrokenPipeError:  # ``| head``: the verdict stays the exit code
        _give_up_output()
    except OSError as error:
        _give_up_output()
        where = f"{error.filename}: " if error.filename else "the output could not be written: "
        sys.stderr.write(f"gpubench: {_harmless(f'{where}{error.strerror or error}')}\n")
        return Exit.INFRASTRUCTURE
    return code


def _outcome(options: argparse.Namespace) -> int:
    try:
        return int(options.command.run(options))
    except GpubenchError as error:
        sys.stderr.write(f"gpubench: {_harmless(str(error))}\n")
        return next((c for kind, c in _EXIT.items() if isinstance(error, kind)), Exit.USAGE)
    except KeyboardInterrupt:
        sys.stderr.write("gpubench: interrupted\n")
        return 130  # as a shell says of SIGINT


def _give_up_output() -> None:
    """Let what is still to be written go nowhere: Python's end would try, and fail, again."""
    with suppress(OSError, ValueError):  # one that is no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = _parser()
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        hint = options.command.hint_for_unknown
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{hint and f'; {hint}'}")
    return options


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
