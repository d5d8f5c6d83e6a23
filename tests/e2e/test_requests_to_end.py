"""SIGTERM while torch's real compiler works, which swallows exceptions and wraps them."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from random import Random
from time import sleep
from typing import TYPE_CHECKING

import pytest

from tests.support.exhaustive import shown
from tests.support.processes import wait_until
from tests.support.projects import QUICK, Run
from tests.support.sessions import written_by

if TYPE_CHECKING:
    import subprocess

    from tests.support.projects import Project

TESTS = """
import pathlib, pytest, torch

def test_before(gpubench): gpubench(lambda: None)
def test_compiled(gpubench):
    pathlib.Path("compiling").touch()
    layers = [layer for _ in range(4) for layer in (torch.nn.Linear(8, 8), torch.nn.GELU())]
    for rows in range(2, 12):  # of which each is compiled
        torch.compiler.reset()
        model = torch.compile(torch.nn.Sequential(*layers))
        model(torch.ones(rows, 8)).sum().backward()
    gpubench(lambda: model(torch.ones(rows, 8)))
def test_after(gpubench): gpubench(lambda: None)
"""
SPAN_S = 10.0
"""The compiler works longer, on any machine."""


@dataclass(frozen=True)
class Launcher:
    """How the benchmarks are run: on so many ranks, which pytest starts, or torchrun."""

    ranks: int = 1
    is_torchrun: bool = False

    def start(self, project: Project) -> subprocess.Popen[str]:
        """Start pytest or torchrun."""
        source = f"{TESTS}pytestmark = pytest.mark.gpubench(ranks={self.ranks})\n"
        project.write("test_it.py", source)
        env = {"TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
        return project.start(*QUICK, env=env, ranks=self.ranks if self.is_torchrun else 0)


LAUNCHERS = {
    "in_process": Launcher(),
    "gang": Launcher(ranks=2),
    "torchrun": Launcher(ranks=2, is_torchrun=True),
}


SLOW_START = """
import os, time
if "RANK" in os.environ: time.sleep(3)
"""


@pytest.mark.slow
@pytest.mark.own_process
@pytest.mark.parametrize("name", ["gang", pytest.param("torchrun", marks=pytest.mark.exhaustive)])
def test_request_while_ranks_start_is_kept(project: Project, name: str) -> None:
    """They have not joined yet."""
    project.write("conftest.py", SLOW_START)
    process = LAUNCHERS[name].start(project)
    wait_until(lambda: [*project.path.glob("results/*/*/metrics.jsonl")] != [])
    sleep(1)
    process.send_signal(signal.SIGTERM)

    out, err = written_by(process, within_s=60)
    run = Run(process.returncode, out, err, project.path / "results")
    assert run.code == (1 if LAUNCHERS[name].is_torchrun else 2), run.out + run.err
    assert run.summary["status"] == "interrupted"
    assert "nothing reacted" not in run.out + run.err


@pytest.mark.slow
@pytest.mark.own_process
@pytest.mark.parametrize("seed", shown(0, exhaustively=range(10)))
@pytest.mark.parametrize("name", LAUNCHERS)
def test_compiler_loses_no_request(project: Project, name: str, seed: int) -> None:
    """An interrupted run, pytest's exit code 2, with what had ended before."""
    process = LAUNCHERS[name].start(project)
    wait_until(lambda: (project.path / "compiling").exists() or process.poll() is not None)
    sleep(Random(seed).uniform(0, SPAN_S))
    process.send_signal(signal.SIGTERM)

    out, err = written_by(process, within_s=60)
    run = Run(process.returncode, out, err, project.path / "results")
    code = 1 if LAUNCHERS[name].is_torchrun else 2  # torchrun's own
    assert run.code == code, run.out + run.err
    assert run.summary["status"] == "interrupted"
    assert [b["outcome"] for b in run.summary["benchmarks"]] == [
        "measured",
        "not_measured",
        "not_measured",
    ]
