"""``gpubench validate``: whether files that gpubench wrote are intact."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from gpubench_plugin.cli.commands._places import (
    Locations,
    add_format,
    add_locations,
    echo,
    echo_json,
)
from gpubench_plugin.cli.commands.base import Command, ExitCode
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.core.format import counted
from gpubench_plugin.reports.text import printable

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence

    from gpubench_plugin.cli.validation.kinds import FileReport

_MOST_SHOWN: Final = 20
"""Problems of a file that are printed: the first ones mostly cause the others. Not measured."""


class Validate(Command):
    """Validates files that gpubench wrote, by their schemas: single ones, or all of a run's folder.

    Prints a line per problem with file, line and key. Exits with 0 if all are valid, with 4 if one
    is not, and with 2 for a file that is missing or has no schema of gpubench.
    """

    help: ClassVar[str] = "validate files written by gpubench, or a whole run"
    other_words: ClassVar[Mapping[str, str]] = {"check": ""}

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Files, and output format."""
        parser.add_argument(
            "files",
            metavar="FILE",
            nargs="+",
            help="file, a run by its folder or id, or folder of a gpubench ab comparison",
        )
        add_locations(parser)
        add_format(parser, ("text", "json"), default="text")

    def run(self, options: argparse.Namespace) -> int:
        """Print the problems."""
        from gpubench_plugin.cli.validation.kinds import validate

        paths = Locations.of(options)
        files = [_path(name, paths) for name in options.files]
        reports = [report for path in files for report in validate(path)]
        if options.format == "json":
            echo_json({"files": [_as_json(report) for report in reports]})
        else:
            echo(map(printable, _lines(reports)))
        is_valid = not any(report.problems for report in reports)
        return ExitCode.OK if is_valid else ExitCode.INFRASTRUCTURE


def _path(name: str, paths: Locations) -> Path:
    """The file or folder of that name, or the folder of the run.

    Raises:
        UsageProblem: there is neither.
    """
    from gpubench_plugin.results.run_directory import find_run

    path = Path(name)
    if os.path.lexists(path):
        return path
    try:
        return find_run(paths.results_dir, name, cwd=paths.cwd).path
    except UsageProblem as problem:
        raise UsageProblem(f"{name}: no such file, and {problem}") from None


def _lines(reports: Sequence[FileReport]) -> Iterator[str]:
    for report in reports:
        for problem in report.problems[:_MOST_SHOWN]:
            key = f"{problem.key}: " if problem.key else ""
            yield f"{report.path}:{problem.line}: {key}{problem.message}"
        if (hidden := len(report.problems) - _MOST_SHOWN) > 0:
            yield f"{report.path}: and {counted(hidden, 'more problem')} (--format=json has all)"
        if not report.problems:
            yield f"{report.path}: valid ({report.kind})"


def _as_json(report: FileReport) -> dict[str, Any]:
    return {
        "path": str(report.path),
        "kind": report.kind,
        "problems": [vars(problem) for problem in report.problems],
    }
