"""A git repository to compare states of, and runs as launches leave them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from gpubench_plugin.core.records import Measurement, Outcome, Samples
from tests.support import runs_builder
from tests.support.git import git


@dataclass(frozen=True)
class Repo:
    """A repository of one file, and what git says of it."""

    path: Path

    def git(self, *arguments: str) -> str:
        return git(self.path, *arguments)

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


def write_run(
    folder: Path, times: Mapping[str, float | str], *, rounds: int = 10, flags: tuple[str, ...] = ()
) -> Path:
    """A run's folder: by node id a step time in seconds, or why it failed; all have the `flags`."""
    run = runs_builder.write_run(
        folder.parents[1],
        1,
        [_measurement(name, time, rounds, flags) for name, time in times.items()],
        experiment=folder.parent.name,
    )
    return run.path.rename(folder)


def _measurement(name: str, time: float | str, rounds: int, flags: tuple[str, ...]) -> Measurement:
    if isinstance(time, str):
        outcome: Outcome = "skipped" if time.startswith("skip") else "failed"
        return replace(runs_builder.measurement(name, outcome=outcome, flags=flags), reason=time)
    samples = Samples(
        timer="perf_counter",
        durations_s=(1.0,) * rounds,
        block_s=(1.0,) * rounds,
        block_calls=(1,) * rounds,
        first_step_s=1.0,
        warmup_s=(1.0,),
        warmup_calls=1,
    )
    measured = runs_builder.measurement(name, time, samples=samples, flags=flags)
    judged = {n: m for n, m in measured.metrics.items() if n.startswith("step_time")}
    return replace(measured, metrics=judged)


@pytest.fixture(name="write_run")
def write_run_fixture() -> Callable[..., Path]:
    return write_run
