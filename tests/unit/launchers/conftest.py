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
from gpubench_plugin.system.scratch import private_folder
from tests.support.phase_reports import phase_report

Launch = Callable[..., Mapping[int, RankProcess]]


def ended(rank: int, *reports: pytest.TestReport, **changes: Any) -> RankOutcome:
    """A rank that came to the end of a benchmark, by default with a pass."""
    return RankOutcome(rank=rank, state="ended", reports=reports or (phase_report(),), **changes)


@pytest.fixture
def reported() -> Callable[..., pytest.TestReport]:
    """Makes reports."""
    return phase_report


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
        processes = dict(Gang().start(size, invitation, call))
        launched.extend(processes.values())
        return processes

    yield start
    for process in launched:
        process.kill()
