"""A git repository to compare states of, and runs as launches leave them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpubench_plugin.core.records import Measurement, Metric, RunRecord, Samples
from gpubench_plugin.environment import stored
from gpubench_plugin.results import journal, summary


@dataclass(frozen=True)
class Repo:
    """A repository of one file, and what git says of it."""

    path: Path

    def git(self, *arguments: str) -> str:
        command = ["git", "-C", str(self.path), "-c", "user.name=a", "-c", "user.email=a@b.invalid"]
        done = subprocess.run([*command, *arguments], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def write(self, name: str, text: str) -> None:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def commit(self, message: str = "change") -> str:
        self.git("add", "--all")
        self.git("commit", "-q", "-m", message)
        return self.git("rev-parse", "HEAD")

    def worktrees(self) -> int:
        return len(self.git("worktree", "list").splitlines())


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    made = Repo((tmp_path / "repo").resolve())
    made.path.mkdir()
    made.git("init", "-q", "-b", "main")
    made.write("src/mylib/__init__.py", "VALUE = 1\n")
    made.commit("first")
    return made


def samples(rounds: int) -> Samples:
    return Samples(
        timer="perf_counter",
        durations_s=(1.0,) * rounds,
        block_s=(1.0,) * rounds,
        block_calls=(1,) * rounds,
        first_step_s=1.0,
        warmup_s=(1.0,),
        warmup_calls=1,
    )


def write_run(
    folder: Path, times: Mapping[str, float | str], *, rounds: int = 10, flags: tuple[str, ...] = ()
) -> Path:
    """A run's folder: by node id a step time in seconds, or why it failed; all have the `flags`."""
    folder.mkdir(parents=True)
    measured = tuple(_measurement(name, time, rounds, flags) for name, time in times.items())
    with journal.Journal(folder / "metrics.jsonl") as lines:
        lines.append(
            {"event": "run_started", "run_id": folder.name, "command": [], "params": {}, "code": {}}
        )
        for one in measured:
            lines.append({"event": "benchmark", **stored.dump(one)})
    record = RunRecord(
        run_id=folder.name,
        experiment="default",
        status="complete",
        started="2026-01-31T12:00:00.000000Z",
        finished="2026-01-31T12:01:00.000000Z",
        command=(),
        environment={},
        benchmarks=measured,
    )
    (folder / "system.json").write_text(json.dumps({}))
    summary.write_summary(folder / "summary.json", record)
    return folder


def _measurement(name: str, time: float | str, rounds: int, flags: tuple[str, ...]) -> Measurement:
    failed = isinstance(time, str)
    names = ("step_time_s", "step_time_min_s")
    metrics = {
        n: Metric(name=n, value=float(time), unit="s", better="lower") for n in names if not failed
    }
    return Measurement(
        id=name,
        name=name.rpartition("::")[2],
        params={},
        world_size=1,
        outcome="failed" if failed else "measured",
        reason=time if failed else "",
        timer="perf_counter",
        samples=None if failed else samples(rounds),
        metrics=metrics,
        flags=flags,
    )


@pytest.fixture(name="write_run")
def write_run_fixture() -> Callable[..., Path]:
    return write_run
