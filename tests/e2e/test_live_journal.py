"""A training that is killed leaves in the journal what it had logged, whichever process ends."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.exhaustive import shown

if TYPE_CHECKING:
    from tests.support.projects import Project

pytestmark = pytest.mark.own_process

STEPS = 60
TRAINING = """
import json, os, signal, time
from pathlib import Path
import pytest
pytestmark = pytest.mark.gpubench(config="mlp", ranks="any")

IS_ROOT = os.environ.get("RANK", "0") == "0"
LAST = int(os.environ["LAST_STEP"])
VICTIM = {"plain": os.getpid, "rank": os.getpid, "torchrun": os.getpid, "controller": os.getppid}

def logged():
    (journal,) = Path("results").glob("*/*/metrics.jsonl")
    lines = [json.loads(line) for line in journal.read_text().splitlines()]
    return [line["step"] for line in lines if line["event"] == "training_step"]

def test_killed(gpubench, trainer):
    steps = []
    def after_step(*_):
        steps.append(time.time())
        if len(steps) == LAST and IS_ROOT:
            deadline = time.monotonic() + 60
            while len(logged()) < LAST - 1 and time.monotonic() < deadline:
                time.sleep(0.01)
            Path("steps.json").write_text(json.dumps(steps))
            os.kill(VICTIM[os.environ["KILLED"]](), signal.SIGKILL)
    trainer.optimizer.register_step_post_hook(after_step)
    gpubench(trainer)

def test_healthy(gpubench, trainer):
    gpubench(trainer)
"""


@pytest.mark.parametrize("killed", shown("plain", exhaustively=("rank", "controller", "torchrun")))
def test_killed_training_leaves_what_it_logged(project: Project, killed: str) -> None:
    """Every step but the one that ran is on disk while the next one runs, at its own time.

    A rank of a gang is replaced, and the next benchmark measured. ``gpubench watch`` knows where a
    run was killed.
    """
    project.write("test_it.py", TRAINING)
    last = random.randrange(3, STEPS)
    run = project.run(
        *("--training.log_every=1", f"--training.steps={STEPS}", "--measure.check=false"),
        *{"rank": ("--isolate",), "controller": ("--world-size=2",)}.get(killed, ()),
        env={"KILLED": killed, "LAST_STEP": str(last)},
        ranks=2 * (killed == "torchrun"),
    )

    (directory,) = run.directories
    events = [e for e in run.journal if "test_killed" in e.get("benchmark", "")]
    steps = [event for event in events if event["event"] == "training_step"]
    assert [event["step"] for event in steps] == [*range(1, last)], run.out + run.err
    times = json.loads((project.path / "steps.json").read_text())
    for began, event, ended in zip(times, steps, times[1:], strict=False):
        assert began <= seconds(event["time"]) <= ended
    phases = [event["phase"] for event in events if event["event"] == "phase"]
    assert phases[-1] == "train"
    state = watched(project, directory.name)
    if killed == "rank":
        assert [*run.outcomes.values()] == ["crashed", "measured"]
        healthy = [e for e in run.journal if "test_healthy" in e.get("benchmark", "")]
        steps = [event["step"] for event in healthy if event["event"] == "training_step"]
        assert steps == [*range(1, STEPS + 1)]
        assert (state["state"], state["current"]) == ("failed", None)
    elif killed != "torchrun":
        assert (state["state"], state["current"]["step"]) == ("interrupted", last - 1)
        assert "test_killed" in state["current"]["id"]


def seconds(time: str) -> float:
    """A time of the journal since the epoch."""
    from datetime import datetime

    return datetime.fromisoformat(time).timestamp()


def watched(project: Project, run: str) -> dict[str, Any]:
    """What ``gpubench watch --once`` tells of the run."""
    command = [sys.executable, "-m", "gpubench_plugin", "watch", run, "--once", "--format=json"]
    out = subprocess.run(command, cwd=project.path, check=True, capture_output=True, text=True)
    state: dict[str, Any] = json.loads(out.stdout)
    return state
