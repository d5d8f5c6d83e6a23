"""Reports, endings and tiny ranks."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from gpubench_plugin.launchers.gang.processes import RankProcesses
from gpubench_plugin.launchers.gang.protocol import JoinInfo

from gpubench_plugin.launchers import report_payload
from gpubench_plugin.launchers.outcome import RankOutcome
from gpubench_plugin.system.scratch import private_folder

Launch = Callable[..., RankProcesses]


def report(when: str = "call", outcome: str = "passed", **changes: Any) -> pytest.TestReport:
    """The report of a phase; `kind` and `reason` are what a rank would note on it."""
    kind, reason = changes.pop("kind", None), changes.pop("reason", "")
    usual = {"nodeid": "test_x.py::test_x", "location": ("test_x.py", 3, "test_x"), "keywords": {}}
    made = pytest.TestReport(
        **{**usual, "when": when, "outcome": outcome, "longrepr": None, **changes}
    )
    if outcome != "passed":
        report_payload.set_outcome(made, kind or outcome, reason)
    return made


def ended(rank: int, *reports: pytest.TestReport, **changes: Any) -> RankOutcome:
    """A rank that came to the end of a benchmark, by default with a pass."""
    return RankOutcome(rank=rank, state="ended", reports=reports or (report(),), **changes)


@pytest.fixture
def reported() -> Callable[..., pytest.TestReport]:
    """Makes reports."""
    return report


@pytest.fixture
def came_to_end() -> Callable[..., RankOutcome]:
    """Makes endings of ranks that came to the end."""
    return ended


@pytest.fixture
def invitation() -> Iterator[JoinInfo]:
    """The invitation to a gang, in a folder of its own."""
    folder = private_folder()
    yield JoinInfo(folder=folder.path, token="the token")
    folder.remove()


@pytest.fixture
def launch(tmp_path: Path, invitation: JoinInfo) -> Iterator[Launch]:
    """Launches ranks that run a piece of Python instead of pytest, and kills them at the end."""
    launched = []

    def start(source: str, size: int = 1) -> RankProcesses:
        launcher = RankProcesses(
            size,
            command=[sys.executable, "-c", textwrap.dedent(source)],
            join_info=invitation,
            logs=tmp_path / "ranks",
            folder=tmp_path,
        )
        launched.append(launcher)
        return launcher

    yield start
    for launcher in launched:
        launcher.kill()
