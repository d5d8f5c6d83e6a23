"""Arguments and output shared by most commands."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin.cli.commands.base import ExitCode
from gpubench_plugin.config.settings import OPTIONS, OptionValue, results_dir_from, whole_number
from gpubench_plugin.reports.text import encodable, printable
from gpubench_plugin.system import json_files

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from gpubench_plugin.baselines.resolve import Resolver

RUN: Final[Mapping[str, Any]] = {
    "metavar": "RUN",
    "help": "folder of a run, its id or the beginning of it, or last, last~1, …",
}
BENCHMARK: Final[Mapping[str, Any]] = {
    "metavar": "BENCHMARK",
    "help": "node id, a part of it, or an expression as for pytest -k",
}


def resolver_of(options: argparse.Namespace) -> Resolver:
    """Resolver of runs and baselines, by the arguments added by :func:`add_locations`."""
    from gpubench_plugin.baselines.resolve import Resolver

    cwd = Path.cwd()
    registry = OPTIONS["registry"].parse(OptionValue("--registry", options.registry or "", cwd))
    return Resolver(registry, results_dir_from(cwd, options.results_dir), cwd)


def add_locations(
    parser: argparse.ArgumentParser, formats: Collection[str] = ("text", "json")
) -> None:
    """Add ``--format``, see :func:`add_format`, ``--results-dir`` and ``--registry``."""
    add_format(parser, formats)
    for name in ("results_dir", "registry"):
        add_option(parser, name)


def add_option(parser: argparse.ArgumentParser, name: str) -> None:
    """Add an option as the plugin declares it, by the name of its setting."""
    option = OPTIONS[name]
    parser.add_argument(f"--{option.name}", metavar=option.metavar, help=option.help)


def add_format(parser: argparse.ArgumentParser, formats: Collection[str]) -> None:
    """Add ``--format``, one of `formats`: by default a table, else the first."""
    default = "table" if "table" in formats else next(iter(formats))
    parser.add_argument(
        "--format",
        metavar="NAME",
        default=default,
        choices=formats,
        help=f"output format: {', '.join(formats)} (default: {default})",
    )


def add_last(parser: argparse.ArgumentParser, default: int, *, zero_for_all: bool = False) -> None:
    """Add ``-n/--last``, a number of runs."""
    all_text = ", 0 for all" * zero_for_all
    parser.add_argument(
        "-n",
        "--last",
        metavar="N",
        type=partial(whole_number, "--last", 0 if zero_for_all else 1),
        default=default,
        help=f"number of latest runs{all_text} (default: {default})",
    )


def show(options: argparse.Namespace, document: Mapping[str, Any], lines: Iterable[str]) -> None:
    """Write the `document` with ``--format=json``, else the `lines`."""
    if options.format == "json":
        lines = [json_files.text({"schema_version": 1, **document}, indent=2)]
    echo(lines)


def echo(lines: Iterable[str]) -> None:
    """Write `lines` to stdout, see :func:`echo_text`."""
    echo_text("".join(f"{line}\n" for line in lines))


def echo_text(text: str) -> None:
    """Write `text` to stdout, see :func:`encodable`."""
    sys.stdout.write(encodable(text, sys.stdout))


def echo_report(text: str) -> None:
    """Write the last `text` of a command, whose exit code stays even if nobody reads it."""
    try:
        echo_text(text)
        sys.stdout.flush()
    except BrokenPipeError:  # ``| head``
        discard_output()


def warn(lines: Iterable[str]) -> None:
    """Print `lines` to stderr, prefixed with the program name."""
    sys.stderr.write("".join(f"gpubench: {printable(line)}\n" for line in lines))


def exit_code(*problems: str) -> ExitCode:
    """4 if there are `problems` that are not empty, which are printed to stderr, else 0."""
    lines = dict.fromkeys(filter(None, problems))
    warn(lines)
    return ExitCode.INFRASTRUCTURE if lines else ExitCode.OK


def discard_output() -> None:
    """Redirect stdout to the null device, so that the interpreter's final flush cannot fail."""
    with suppress(OSError, ValueError):  # stdout is closed, or not a file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def output_width() -> int:
    """Output width: the terminal's, 80 without one."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 80


def colored() -> bool:
    """Whether to use colours, following https://no-color.org."""
    environ = os.environ
    return sys.stdout.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"
