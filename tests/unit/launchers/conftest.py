"""Reports, endings and tiny ranks."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gpubench_plugin.launchers.link import Invitation, new_token
from gpubench_plugin.launchers.outcome import RankOutcome
from gpubench_plugin.launchers.processes import RankCommand, RankProcess
from gpubench_plugin.launchers.ways.gang import Gang
from gpubench_plugin.results import report_payload
from gpubench_plugin.system.scratch import private_folder

Launch = Callable[..., Mapping[int, RankProcess]]


def report(when: str = "call", outcome: str = "passed", **changes: Any) -> pytest.TestReport:
    """The report of a phase; `kind` and `reason` are what a rank would note on it."""
    kind, reason = changes.pop("kind", outcome), changes.pop("reason", "")
    usual = {"nodeid": "test_x.py::test_x", "location": ("test_x.py", 3, "test_x"), "keywords": {}}
    made = pytest.TestReport(
        **{**usual, "when": when, "outcome": outcome, "longrepr": None, **changes}
    )
    if outcome != "passed":
        report_payload.set_outcome(made, kind, reason)
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
def invitation() -> Iterator[Invitation]:
    """The invitation to a team, in a folder of its own, where nobody listens."""
    folder = private_folder()
    yield Invitation(addresses=(f"unix:{folder.path}/controller",), token=new_token())
    folder.remove()


@pytest.fixture
def launch(tmp_path: Path, invitation: Invitation) -> Iterator[Launch]:
    """Launches gangs that run a piece of Python instead of pytest, and kills them at the end."""
    launched: list[RankProcess] = []

    def start(source: str, size: int = 1) -> Mapping[int, RankProcess]:
        command = [sys.executable, "-c", textwrap.dedent(source)]
        call = RankCommand(command=command, folder=tmp_path, logs=tmp_path / "ranks")
        processes = Gang().start(size, invitation, call)
        launched.extend(processes.values())
        return processes

    yield start
    for process in launched:
        process.kill()
