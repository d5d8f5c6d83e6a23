"""Arguments shared by most commands: results directory and registry."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpubench_plugin.environment import json_files
from gpubench_plugin.errors import RegistryError, UsageProblem, invalid_choice
from gpubench_plugin.reports import Glyphs, glyphs_for, printable

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from gpubench_plugin.compare.baselines import Baselines, Resolver


@dataclass(frozen=True, kw_only=True)
class Locations:
    """Where runs are: `results_dir` is absolute; `registry` a URL, ``none``, or empty (default)."""

    results_dir: Path
    registry: str
    cwd: Path

    @classmethod
    def of(cls, options: argparse.Namespace) -> Locations:
        """Build from the arguments added by :func:`add_locations`."""
        cwd = Path.cwd()
        url = options.registry
        return cls(
            results_dir=cwd / options.results_dir,
            registry=os.environ.get("GPUBENCH_REGISTRY", "") if url is None else url,
            cwd=cwd,
        )

    def resolver(self) -> Resolver:
        """What resolves the names of runs and baselines here."""
        from gpubench_plugin.compare.baselines import Resolver

        return Resolver(self.registry, self.results_dir, self.cwd)

    @contextmanager
    def baselines(self) -> Iterator[tuple[Baselines, Resolver]]:
        """The baselines, and the resolver of names, with the registry if it can be reached.

        In the end their notes are told, of which one says that it cannot; also where the block
        raises, but for a RegistryError, which says it itself.
        """
        with self.resolver() as resolver:
            baselines = resolver.baselines()
            if baselines.registry_error:
                baselines.notes.append(
                    f"baselines are currently not shared: {baselines.registry_error}"
                )
            noted = True
            try:
                yield baselines, resolver
            except RegistryError:
                noted = False
                raise
            finally:
                warn(baselines.notes if noted else ())


def add_locations(parser: argparse.ArgumentParser) -> None:
    """Give `parser` the arguments ``--results-dir`` and ``--registry``."""
    parser.add_argument(
        "--results-dir",
        default="results",
        metavar="DIR",
        help="results directory (default: results)",
    )
    parser.add_argument(
        "--registry",
        metavar="URL",
        help=(
            "registry database URL, or none (default: GPUBENCH_REGISTRY, else registry.sqlite in "
            "the results directory)"
        ),
    )


def add_format(
    parser: argparse.ArgumentParser, formats: Collection[str], default: str = "table"
) -> None:
    """Give `parser` the argument ``--format``; one not among `formats` raises UsageProblem."""

    def known(text: str) -> str:
        if text not in formats:
            raise invalid_choice("--format", text, formats)
        return text

    allowed = ", ".join(formats)
    parser.add_argument(
        "--format", metavar="NAME", default=default, type=known, help=f"one of {allowed}"
    )


def add_last(parser: argparse.ArgumentParser, default: int, *, zero: str = "") -> None:
    """Give `parser` the argument ``-n/--last``: how many runs; `zero` is what 0 of them means.

    ``--limit``, which is a limit of a metric everywhere, raises UsageProblem.
    """
    least = 0 if zero else 1

    def number(text: str) -> int:
        if not (text.isascii() and text.isdigit() and int(text) >= least):
            raise UsageProblem(f"--last: {text} is not a whole number from {least}")
        return int(text)

    def no_limit(text: str) -> None:
        raise UsageProblem(
            f"--limit={text}: a limit of a metric is not for this command; how many runs it shows "
            f"is -n {text or 'N'} or --last={text or 'N'}"
        )

    meaning = f"; 0: {zero}" * bool(zero)
    parser.add_argument(
        "-n",
        "--last",
        metavar="N",
        type=number,
        default=default,
        help=f"so many of the latest runs ({default}){meaning}",
    )
    parser.add_argument("--limit", nargs="?", const="", type=no_limit, help=argparse.SUPPRESS)


def say_json(document: Mapping[str, Any]) -> None:
    """Write a JSON document to the standard output."""
    echo([json_files.text({"schema_version": 1, **document}, indent=2)])


def echo(lines: Iterable[str]) -> None:
    """Write `lines` to the standard output as :func:`say_text` does."""
    say_text("".join(f"{line}\n" for line in lines))


def say_text(text: str) -> None:
    """Write `text` to the standard output; a sign that it cannot show is written as an escape."""
    encoding = sys.stdout.encoding or "ascii"
    sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))


def warn(lines: Iterable[str]) -> None:
    """Print `lines` to stderr, prefixed with the program name."""
    sys.stderr.write("".join(f"gpubench: {printable(line)}\n" for line in lines))


def output_width() -> int:
    """Output width: the terminal's, 80 without one."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else 80


def colored(environ: Mapping[str, str], *, terminal: bool) -> bool:
    """Whether to use colours, following https://no-color.org."""
    return terminal and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def glyphs() -> Glyphs:
    """Symbols that stdout can encode."""
    return glyphs_for(sys.stdout.encoding)
