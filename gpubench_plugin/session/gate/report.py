"""What GitHub's runner is told of the verdicts, where the session runs in a job of its."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from gpubench_plugin.environment.redaction import redacted_command
from gpubench_plugin.reports import github as page

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pytest

    from gpubench_plugin.session.gate.judgement import Judgement


def told(
    judgement: Judgement, places: Mapping[str, tuple[str, int]], config: pytest.Config
) -> Iterator[str]:
    """Append to the job's summary; the lines to print: annotations, and what went wrong.

    `places` has file, from the rootdir, and line of each benchmark by node id.
    """
    comparison = judgement.comparison
    if comparison is None:
        return
    if file := os.environ.get("GITHUB_STEP_SUMMARY"):
        text = page.step_summary(
            [comparison],
            reproduce=shlex.join(["pytest", *redacted_command(_arguments(config))]),
            accept=judgement.accepting,
        )
        yield from _appended(Path(file), text)
    if os.environ.get("GITHUB_ACTIONS") == "true":
        yield from page.annotations([comparison], dict(_from_workspace(places, config.rootpath)))


def _arguments(config: pytest.Config) -> list[str]:
    return [str(argument) for argument in config.invocation_params.args]


def _appended(file: Path, text: str) -> Iterator[str]:
    try:
        with file.open("a", encoding="utf-8") as summary:
            summary.write(f"{text}\n")
    except OSError as error:
        yield f"GITHUB_STEP_SUMMARY={file} could not be written: {error.strerror}"


def _from_workspace(
    places: Mapping[str, tuple[str, int]], root: Path
) -> Iterator[tuple[str, tuple[str, int]]]:
    """The places as the runner names them: from the folder of the checkout."""
    workspace = Path(os.environ.get("GITHUB_WORKSPACE") or root).resolve()
    for node_id, (file, line) in places.items():
        path = (root / file).resolve()
        inside = path.is_relative_to(workspace)
        yield node_id, (path.relative_to(workspace).as_posix() if inside else file, line)
