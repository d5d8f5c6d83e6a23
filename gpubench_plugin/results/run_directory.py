"""The folder of one run: the truth from which everything else can be rebuilt."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from gpubench_plugin.environment import whole_file
from gpubench_plugin.errors import UsageProblem, nearest
from gpubench_plugin.results.run_id import began, path_component

PROBE: Final = ".writable"
"""A file that a new run's folder has for a moment."""


@dataclass(frozen=True, kw_only=True)
class RunDirectory:
    """``<results>/<experiment>/<run id>``, absolute, so that a benchmark may change folders."""

    path: Path

    @classmethod
    def create(cls, results_dir: Path, experiment: str, run_id: str) -> RunDirectory:
        """Make the folder and prove that a file can be written into it.

        `results_dir` itself may be a symbolic link; below it none is followed.

        Raises:
            UsageProblem: nothing can be written there, and why; nothing is left behind.
        """
        path_component("--experiment", experiment)
        results = Path(os.path.realpath(results_dir))
        run = cls(path=results / experiment / path_component("run id", run_id))
        missing: list[Path] = []
        try:
            missing += [p for p in (run.path, *run.path.parents) if not p.exists()]
            run.path.parent.mkdir(parents=True, exist_ok=True)
            _refuse_link(run.path.parent)
            run.path.mkdir()
            _prove_writable(run.path)
        except OSError as error:
            _remove(missing)
            raise _not_writable(results, run.path, error) from error
        except BaseException:
            _remove(missing)
            raise
        return run

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """The folder of an earlier run; nothing in it is changed.

        Raises:
            UsageProblem: there is no run, and why.
        """
        run = cls(path=Path(os.path.realpath(path)))
        if run.journal.is_file():
            return run
        if run.path.is_dir():
            raise UsageProblem(f"{path} is no run's folder: it has no {run.journal.name}")
        beside = [p.name for p in run.path.parent.glob("*/")]
        raise UsageProblem(f"{path}: no such folder{nearest(run.path.name, beside)}")

    @property
    def run_id(self) -> str:
        """The run's name among all runs."""
        return self.path.name

    @property
    def began(self) -> datetime:
        """When the run began: its id says; else when its journal was changed last."""
        told = began(self.run_id)
        return told or datetime.fromtimestamp(self.journal.lstat().st_mtime, UTC)

    @property
    def experiment(self) -> str:
        """The experiment it belongs to."""
        return self.path.parent.name

    @property
    def config_resolved(self) -> Path:
        """Every benchmark's resolved configuration, by node id."""
        return self.path / "config_resolved.yaml"

    @property
    def system(self) -> Path:
        """The machine and the software."""
        return self.path / "system.json"

    @property
    def journal(self) -> Path:
        """One line per event, as it happened."""
        return self.path / "metrics.jsonl"

    @property
    def summary(self) -> Path:
        """The summary; written last, so its presence means an orderly end."""
        return self.path / "summary.json"

    @property
    def table(self) -> Path:
        """One row per benchmark."""
        return self.path / "summary.csv"

    @property
    def benchmark(self) -> Path:
        """The measured benchmarks in pytest-benchmark's format."""
        return self.path / "benchmark.json"

    @property
    def verdicts(self) -> Path:
        """What a comparison with a baseline found, where one was made."""
        return self.path / "verdicts.json"

    @property
    def log(self) -> Path:
        """What the plugin logged."""
        return self.path / "run.log"

    @property
    def ranks(self) -> Path:
        """Folder of the ranks' logs; made by whoever writes the first."""
        return self.path / "ranks"

    @property
    def traces(self) -> Path:
        """Folder of the profiler's traces; made by whoever writes the first."""
        return self.path / "traces"

    @property
    def checkpoints(self) -> Path:
        """Folder of the trainings' checkpoints; made by whoever writes the first."""
        return self.path / "checkpoints"

    @property
    def files(self) -> tuple[Path, ...]:
        """All files that a session may write directly into the folder."""
        return (
            *(self.config_resolved, self.system, self.journal, self.summary, self.table),
            *(self.benchmark, self.verdicts, self.log),
        )

    @property
    def folders(self) -> tuple[Path, ...]:
        """All folders that a session may make in it."""
        return (self.ranks, self.traces, self.checkpoints)

    def __str__(self) -> str:
        return str(self.path)


def _refuse_link(experiment: Path) -> None:
    if experiment.is_symlink():
        raise UsageProblem(
            f"--experiment: {experiment} is a symbolic link, which is not followed; give the "
            f"folder it stands in with --results-dir"
        )


def _prove_writable(folder: Path) -> None:
    probe = folder / PROBE
    try:
        whole_file.write(probe, lambda file: file.write(b"yes\n"))
    finally:
        probe.unlink(missing_ok=True)


def _not_writable(results: Path, run: Path, error: OSError) -> UsageProblem:
    existing = next(p for p in (run, *run.parents) if os.path.lexists(p))
    if existing == run:
        reason = f"{run} exists already"
    elif not existing.is_dir():
        reason = f"{existing} is not a folder"
    else:
        reason = error.strerror or str(error)
    return UsageProblem(
        f"--results-dir: cannot write into {results}: {reason}; give another folder with "
        f"--results-dir"
    )


def _remove(folders: list[Path]) -> None:
    """Remove the empty `folders`, the innermost first."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()
