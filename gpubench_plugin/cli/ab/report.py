"""What a comparison tells: files in its folder, a text for the user, GitHub's pages."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from gpubench_plugin import catalog
from gpubench_plugin.environment import atomic
from gpubench_plugin.verdicts import Comparison

if TYPE_CHECKING:
    from gpubench_plugin.reports.formats.base import Format

VERDICTS: Final = "verdicts.json"
REPORT: Final = "report.md"


def rendered(
    comparison: Comparison, format_name: str, *, width: int = 80, color: bool = False
) -> str:
    """The comparison in that format."""
    form = cast("Format", catalog.load("formats", format_name)())
    return form.render([comparison], width=width, color=color)


def write_files(folder: Path, comparison: Comparison) -> None:
    """``verdicts.json`` and ``report.md`` in `folder`; raises ResultsError."""
    atomic.write_text(folder / VERDICTS, rendered(comparison, "json"))
    atomic.write_text(folder / REPORT, rendered(comparison, "markdown"))


def tell_github(
    comparison: Comparison,
    *,
    locations: Mapping[str, tuple[str, int]],
    command: Sequence[str],
    environ: Mapping[str, str] = os.environ,
) -> None:
    """The job's summary and the annotations, where GitHub runs this.

    That they cannot be written is said, and changes no verdict.
    """
    from gpubench_plugin.reports import github

    if page := environ.get("GITHUB_STEP_SUMMARY"):
        text = github.step_summary([comparison], reproduce=_shell(command), accept="")
        try:
            with Path(page).open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
        except OSError as error:
            sys.stderr.write(f"gpubench ab: no summary for GitHub: {error.strerror}\n")
    if environ.get("GITHUB_ACTIONS") == "true":
        for line in github.annotations([comparison], locations):
            sys.stdout.write(f"{line}\n")


def _shell(command: Sequence[str]) -> str:
    import shlex

    return shlex.join(command)
