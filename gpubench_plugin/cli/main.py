"""Entry point of the ``gpubench`` command."""

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
from typing import Any, Final, NoReturn, cast

from gpubench_plugin.cli.commands._places import discard_output
from gpubench_plugin.cli.commands.base import Command, ExitCode
from gpubench_plugin.cli.completion import REQUESTED, complete
from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import (
    CERTAIN,
    GpubenchError,
    NothingComparable,
    RegistryError,
    ResultsError,
    alike,
    did_you_mean,
    invalid_choice,
)
from gpubench_plugin.environment.redaction import find_passwords, redact
from gpubench_plugin.reports.text import printable


class Parser(argparse.ArgumentParser):
    """Parser without abbreviations, with suggestions; subcommands get parsers of its class."""

    def __init__(self, **settings: Any):
        super().__init__(**settings, allow_abbrev=False)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse, and set `parser` to the innermost one, which knows the command's usage."""
        options, unknown = super().parse_known_args(args, namespace)
        if not hasattr(options, "parser"):  # the subcommand's comes first
            options.parser = self
        return options, unknown

    def refuse(self, unknown: Sequence[str], *, hint: str) -> NoReturn:
        """Exit with the usage and the `unknown` arguments, the nearest option, and a `hint`."""
        name = unknown[0].partition("=")[0]
        suggestion = did_you_mean(alike(name, self._option_string_actions, cutoff=CERTAIN))
        self.error(f"unrecognized arguments: {' '.join(unknown)}{suggestion}{hint}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse an unknown command or choice with the nearest; argparse only lists them all."""
        if action.choices is not None and value not in ([], *action.choices):
            name = "/".join(action.option_strings) or str(action.metavar or action.dest)
            choices = [*map(str, action.choices)]
            begun = [choice for choice in choices if value and choice.startswith(str(value))]
            raise invalid_choice(
                name, str(value), choices, aliases={str(value): begun} if begun else {}
            )


_EPILOG: Final = (
    "exit codes: 0 ok, 1 regression, 2 usage error, 3 nothing comparable, 4 a file or database "
    "error, or an unexpected error"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code, see :class:`~.commands.base.ExitCode`.

    The only exception is argparse's SystemExit.
    """
    _open_closed_streams()
    code: int = ExitCode.OK
    try:
        code = _run_command(arguments)
        sys.stdout.flush()  # here, not at the interpreter's exit, to report a full disk
    except GpubenchError as error:
        _print_error(str(error))
        if isinstance(error, NothingComparable):
            return ExitCode.NOTHING_COMPARABLE
        is_broken = isinstance(error, RegistryError | ResultsError)
        return ExitCode.INFRASTRUCTURE if is_broken else ExitCode.USAGE
    except KeyboardInterrupt:
        _print_error("interrupted")
        return 130  # 128 + SIGINT, as of a shell
    except BrokenPipeError:  # ``| head``: the verdict stays the exit code
        discard_output()
    except OSError as error:
        discard_output()
        _print_error(_os_error_text(error))
        return ExitCode.INFRASTRUCTURE
    except Exception as error:  # an uncaught one exits with 1, the code of a regression
        _print_error(_report_unexpected(error, sys.argv if arguments is None else arguments))
        return ExitCode.INFRASTRUCTURE
    return code


def _run_command(arguments: Sequence[str] | None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    parser = build_parser(tuple(words[:1]))
    if REQUESTED in os.environ:
        complete(parser)
    options, unknown = parser.parse_known_args(words)
    options.words, options.passed_on = words, unknown
    if unknown and not options.command.passes_on:
        options.parser.refuse(unknown, hint=options.command.hint_for_unknown)
    return int(options.command.run(options))


def _print_error(message: str) -> None:
    with suppress(OSError):  # stderr is closed
        sys.stderr.write(f"gpubench: {_escape_controls(message)}\n")


def _os_error_text(error: OSError) -> str:
    """Describe an OSError for the user."""
    reason = error.strerror or str(error)
    if error.filename:
        return f"{os.fsdecode(error.filename)}: {reason}"
    if isinstance(error, FileNotFoundError):
        return f"the current directory no longer exists ({reason}): change to an existing one"
    return f"cannot write the output: {reason}"


def _report_unexpected(error: Exception, arguments: Sequence[str]) -> str:
    """One line for an unexpected `error`; its redacted traceback goes to a private file."""

    def redacted(text: str) -> str:
        for password in find_passwords([*arguments, *os.environ.values()]):
            text = text.replace(password, "***")
        return redact(text)

    first_line = "".join(traceback.format_exception_only(error)).strip().partition("\n")[0]
    summary = redacted(first_line)[:300]  # it may quote a whole file; the traceback has it all
    try:
        descriptor, name = tempfile.mkstemp(prefix="gpubench-", suffix=".txt")
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(redacted("".join(traceback.format_exception(error))))
    except OSError as os_error:
        return f"unexpected {summary}; its traceback could not be saved: {os_error.strerror}"
    return f"unexpected {summary}; please report it with the traceback in {name}"


def _open_closed_streams() -> None:
    """Replace closed standard streams (``>&-``) with the null device.

    Else the next file opened would get the stream's descriptor, and all that is written to it.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 # for good


def _escape_controls(message: str) -> str:
    """Escape control characters in `message`, which may quote file contents."""
    lines = message.splitlines()
    indents = (line[: len(line) - len(line.lstrip(" "))] for line in lines)
    return "\n".join(a + printable(line) for a, line in zip(indents, lines, strict=True))


def build_parser(named: Sequence[str] = ()) -> Parser:
    """Parser of the command line, with a subparser for each command.

    Where one command is `named`, only its module is imported.
    """
    parser = Parser(
        prog="gpubench", description="Compare, judge and manage benchmark runs.", epilog=_EPILOG
    )
    parser.add_argument(
        "--version", action="version", version=f"%(prog)s {version('pytest-gpubench')}"
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    names = catalog.choices("commands")
    for name in [name for name in names if name in named] or names:
        command = cast("Command", catalog.load("commands", name)())
        sub = commands.add_parser(name, help=command.help, description=command.__doc__)
        sub.set_defaults(command=command)
        command.add_arguments(sub)
    return parser


if __name__ == "__main__":
    sys.exit(main())
