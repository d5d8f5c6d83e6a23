"""Run directory: naming, creation and lookup."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from gpubench_plugin.environment import listed, write
from gpubench_plugin.errors import ResultsError, UsageProblem, nearest

LONGEST: Final = 80
"""Characters in an experiment or a tag: a run id stays far below the 255 bytes of a file name."""

RUN_ID: Final = re.compile(r"(\d{8}T\d{6}Z)_.+_[0-9a-f]{6}")
"""What :func:`new_run_id` gives."""

_STAMP: Final = "%Y%m%dT%H%M%SZ"
_SAFE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def new_run_id(
    tag: str | None, now: datetime, random: Callable[[int], str] = secrets.token_hex
) -> str:
    """New run id ``YYYYmmddTHHMMSSZ_<tag|run>_<6 hex>``.

    It is sortable by time, unique without a counter, and safe as a folder's name.

    Args:
        tag: a word of the user's, or None.
        now: the time of the start, with its time zone.
        random: gives twice as many hexadecimal digits as its argument says.

    Raises:
        UsageProblem: the tag cannot be part of a folder's name.
    """
    stamp = now.astimezone(UTC).strftime(_STAMP)
    return f"{stamp}_{path_component('--tag', tag or 'run')}_{random(3)}"


def start_time(run_id: str) -> datetime | None:
    """Start time in a run id, to the second; None for custom names."""
    try:
        return datetime.strptime(run_id.partition("_")[0], _STAMP).replace(tzinfo=UTC)
    except ValueError:
        return None


def tag_of(run_id: str) -> str:
    """Tag in a run id, ``run`` without one."""
    return run_id.partition("_")[2].rpartition("_")[0]


def is_path_component(value: str) -> bool:
    """Whether `value` is a safe folder name."""
    return _SAFE.fullmatch(value) is not None and len(value) <= LONGEST


def path_component(option: str, value: str) -> str:
    """Validate `value` as a folder name.

    Raises:
        UsageProblem: it is not; the message proposes the nearest one that is.
    """
    if is_path_component(value):
        return value
    suggestion = re.sub(r"[^A-Za-z0-9._-]+", "-", value).strip("._-")[:LONGEST]
    hint = f" (did you mean {suggestion!r}?)" if suggestion else ""
    raise UsageProblem(
        f"{option}: {value!r} cannot name a folder{hint}; allowed: letters, digits, '.', '_' and "
        f"'-', a letter or digit first, at most {LONGEST}"
    )


PROBE: Final = ".writable"
"""A file that a new run's folder has for a moment."""


@dataclass(frozen=True, kw_only=True)
class RunDirectory:
    """``<results>/<experiment>/<run id>``, absolute so that benchmarks may change directory."""

    path: Path

    @classmethod
    def create(cls, results_dir: Path, experiment: str, run_id: str) -> RunDirectory:
        """Create the folder and check that it is writable.

        `results_dir` itself may be a symbolic link; below it none is followed.

        Raises:
            UsageProblem: nothing can be written there, and why; nothing is left behind.
        """
        path_component("--experiment", experiment)
        results = Path(os.path.realpath(results_dir))
        run = cls(path=results / experiment / path_component("run id", run_id))
        new_folders: list[Path] = []
        try:
            new_folders += [p for p in (run.path, *run.path.parents) if not p.exists()]
            run.path.parent.mkdir(parents=True, exist_ok=True)
            _refuse_link(run.path.parent)
            run.path.mkdir()
            _check_writable(run.path)
        except OSError as error:
            _remove(new_folders)
            raise _not_writable(results, run.path, error) from error
        except BaseException:
            _remove(new_folders)
            raise
        return run

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """Open the folder of an earlier run without changing it.

        Raises:
            UsageProblem: there is no run, and why.
        """
        run = cls(path=Path(os.path.realpath(path)))
        if run.journal.is_file():
            return run
        if run.path.is_dir():
            raise UsageProblem(f"{path} is not a run directory: it has no {run.journal.name}")
        siblings = [p.name for p in run.path.parent.glob("*/")]
        raise UsageProblem(f"{path}: no such folder{nearest(run.path.name, siblings)}")

    @property
    def run_id(self) -> str:
        """Unique name of the run."""
        return self.path.name

    @property
    def start_time(self) -> datetime:
        """Start time from the id, else the journal's modification time."""
        time_from_id = start_time(self.run_id)
        return time_from_id or datetime.fromtimestamp(self.journal.lstat().st_mtime, UTC)

    @property
    def experiment(self) -> str:
        """Experiment of the run."""
        return self.path.parent.name

    @property
    def config_resolved(self) -> Path:
        """Resolved configurations by node id."""
        return self.path / "config_resolved.yaml"

    @property
    def system(self) -> Path:
        """Facts of machine and software."""
        return self.path / "system.json"

    @property
    def journal(self) -> Path:
        """Journal: one line per event."""
        return self.path / "metrics.jsonl"

    @property
    def summary(self) -> Path:
        """Summary, written last: its presence marks an orderly end."""
        return self.path / "summary.json"

    @property
    def table(self) -> Path:
        """Table with one row per benchmark."""
        return self.path / "summary.csv"

    @property
    def benchmark(self) -> Path:
        """Measured benchmarks in pytest-benchmark's format."""
        return self.path / "benchmark.json"

    @property
    def verdicts(self) -> Path:
        """Verdicts of a comparison with a baseline, if any."""
        return self.path / "verdicts.json"

    @property
    def log(self) -> Path:
        """Log of the plugin."""
        return self.path / "run.log"

    @property
    def ranks(self) -> Path:
        """Folder of rank logs, created on demand."""
        return self.path / "ranks"

    @property
    def traces(self) -> Path:
        """Folder of profiler traces, created on demand."""
        return self.path / "traces"

    @property
    def checkpoints(self) -> Path:
        """Folder of training checkpoints, created on demand."""
        return self.path / "checkpoints"

    @property
    def files(self) -> tuple[Path, ...]:
        """All files a session may write directly into the folder."""
        return (
            *(self.config_resolved, self.system, self.journal, self.summary, self.table),
            *(self.benchmark, self.verdicts, self.log),
        )

    @property
    def folders(self) -> tuple[Path, ...]:
        """All folders a session may create in it."""
        return (self.ranks, self.traces, self.checkpoints)

    def __str__(self) -> str:
        return str(self.path)


def _refuse_link(experiment: Path) -> None:
    if experiment.is_symlink():
        raise UsageProblem(
            f"--experiment: {experiment} is a symbolic link, which is not followed; use "
            "--results-dir for the folder that contains its target"
        )


def _check_writable(folder: Path) -> None:
    probe = folder / PROBE
    try:
        write(probe, lambda file: file.write(b"yes\n"))
    finally:
        probe.unlink(missing_ok=True)


def _not_writable(results: Path, run: Path, error: OSError) -> UsageProblem:
    nearest_existing = next(p for p in (run, *run.parents) if os.path.lexists(p))
    if nearest_existing == run:
        reason = f"{run} already exists"
    elif not nearest_existing.is_dir():
        reason = f"{nearest_existing} is not a folder"
    else:
        reason = error.strerror or str(error)
    return UsageProblem(
        f"--results-dir: cannot write to {results}: {reason}; choose another directory with "
        "--results-dir"
    )


def _remove(folders: list[Path]) -> None:
    """Remove the empty `folders`, innermost first."""
    for folder in folders:
        with suppress(OSError):
            folder.rmdir()


_REMOVED: Final = re.compile(r"\..+\.gpubench-[0-9a-f]{8}\.removed")


def removal_name(run: Path) -> Path:
    """New name for a run folder that readers ignore, for removal."""
    return run.with_name(f".{run.name}.gpubench-{secrets.token_hex(4)}.removed")


def is_removal_name(folder: Path) -> bool:
    """Whether the folder has such a name."""
    return _REMOVED.fullmatch(folder.name) is not None


def runs_in(results_dir: Path) -> list[RunDirectory]:
    """All runs below `results_dir`, of every experiment, oldest first."""
    journals = Path(os.path.realpath(results_dir)).glob("*/*/metrics.jsonl")
    folders = (journal.parent for journal in journals)
    candidates = (RunDirectory(path=folder) for folder in folders if not is_removal_name(folder))
    return sorted(candidates, key=lambda run: (run.run_id, run.experiment))


def find_run(results_dir: Path, text: str, *, cwd: Path) -> RunDirectory:
    """The run that `text` names: its folder, a file in that, its id or the id's beginning.

    A path is seen from `results_dir` or from `cwd`; an id is looked for in all experiments.

    Raises:
        UsageProblem: no run is named so, or several are; the message names those there are.
        ResultsError: the operating system does not let it be looked for.
    """
    with opening(text):
        return _run_at(results_dir, text, cwd) or _run_called(results_dir, text, cwd)


@contextmanager
def opening(text: str) -> Iterator[None]:
    """Turn what the system says of the path `text` into errors that name it."""
    try:
        yield
    except ValueError as error:  # a path with a null character
        raise UsageProblem(f"{text!r} is not a path: {error}") from None
    except OSError as error:  # a name too long, a folder that is closed
        raise ResultsError(f"cannot read {text}: {error.strerror}") from error


def _run_at(results_dir: Path, text: str, here: Path) -> RunDirectory | None:
    """The run at the path `text`; None where that may be an id."""
    below = results_dir / text
    path = below if os.sep in text and below.exists() else here / text
    folder = path.parent if path.is_file() else path
    is_run = bool(text) and RunDirectory(path=folder).journal.is_file()
    return RunDirectory.open(folder) if is_run or os.sep in text else None


def _run_called(results_dir: Path, text: str, cwd: Path) -> RunDirectory:
    runs = runs_in(results_dir)
    matches = [run for run in runs if run.run_id == text]
    matches = matches or [run for run in runs if run.run_id.startswith(text)]
    if len(matches) == 1:
        return matches[0]
    if text and (cwd / text).is_dir():
        return RunDirectory.open(cwd / text)  # says why not
    if matches:
        raise UsageProblem(f"{len(matches)} runs start with {text!r}: {_names_text(matches)}")
    hint = nearest(text, [run.run_id for run in runs])
    there = f"latest: {_names_text(runs)}" if runs else "there are none"
    raise UsageProblem(f"no run in {results_dir} starts with {text!r}{hint}; {there}")


def _names_text(runs: Sequence[RunDirectory]) -> str:
    """Names of the latest `runs`, newest first."""
    return listed([f"{run.experiment}/{run.run_id}" for run in reversed(runs)])
