"""The command ``gpubench``: benchmarks compared, judged and kept."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Final, cast

from gpubench_plugin import catalog
from gpubench_plugin.cli.commands import Command, Exit
from gpubench_plugin.environment import passwords_in, redacted
from gpubench_plugin.errors import GpubenchError, NothingComparable, RegistryError, ResultsError
from gpubench_plugin.reports import printable

_EXIT: Final[dict[type[GpubenchError], Exit]] = {
    NothingComparable: Exit.NOTHING_COMPARABLE,
    RegistryError: Exit.INFRASTRUCTURE,
    ResultsError: Exit.INFRASTRUCTURE,
}

_EPILOG: Final = (
    "exit codes: 0 fine, 1 a regression, 2 bad usage, 3 nothing comparable, 4 a file or the "
    "database could not be read or written, or an error that nobody has foreseen"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code, see :class:`~.commands.base.Exit`.

    No exception escapes but argparse's own end of the program.
    """
    _open_closed_streams()
    code: int = Exit.FINE
    try:
        code = _outcome(arguments)
        sys.stdout.flush()  # here, not where Python ends: a full disk must be said
    except BrokenPipeError:  # ``| head``: the verdict stays the exit code
        _give_up_output()
    except OSError as error:
        _give_up_output()
        _complain(_refused(error))
        return Exit.INFRASTRUCTURE
    except Exception as error:  # an exit code of 1 would say that something got slower
        _complain(_unforeseen(error, sys.argv if arguments is None else arguments))
        return Exit.INFRASTRUCTURE
    return code


def _outcome(arguments: Sequence[str] | None) -> int:
    try:
        options = _options(arguments)
        return int(options.command.run(options))
    except GpubenchError as error:
        _complain(str(error))
        return next((c for kind, c in _EXIT.items() if isinstance(error, kind)), Exit.USAGE)
    except KeyboardInterrupt:
        _complain("interrupted")
        return 130  # as a shell says of SIGINT


def _complain(message: str) -> None:
    with suppress(OSError):  # nobody listens
        sys.stderr.write(f"gpubench: {_harmless(message)}\n")


def _refused(error: OSError) -> str:
    """What the operating system did not do."""
    reason = error.strerror or str(error)
    if error.filename:
        return f"{os.fsdecode(error.filename)}: {reason}"
    try:
        os.getcwd()  # noqa: PTH109 # Path.cwd() says the same of it
    except OSError:
        return f"the working folder is gone ({reason}): change into one that is there"
    return f"the output could not be written: {reason}"


def _unforeseen(error: Exception, arguments: Sequence[str]) -> str:
    """One line for `error`; its traceback, without secrets, goes into a file of this user's."""

    def harmless(text: str) -> str:
        for password in passwords_in([*arguments, *os.environ.values()]):
            text = text.replace(password, "***")
        return redacted(text)

    summary = harmless("".join(traceback.format_exception_only(error)).strip().partition("\n")[0])
    try:
        descriptor, name = tempfile.mkstemp(prefix="gpubench-", suffix=".txt")
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(harmless("".join(traceback.format_exception(error))))
    except OSError as problem:
        return f"unforeseen {summary:.300}; its traceback could not be kept: {problem.strerror}"
    return f"unforeseen {summary:.300}; please report it with its traceback, which is in {name}"


def _open_closed_streams() -> None:
    """Let what stands in the place of a closed stream (``>&-``) read and write nothing.

    Else the next file that is opened would get its number, and whatever is written to it.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # It stays open for as long as the process: nobody could close it.
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115


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
