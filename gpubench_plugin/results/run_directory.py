"""The folder of one run: the truth from which all else can be rebuilt; its name, and its lookup."""

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
    """``YYYYmmddTHHMMSSZ_<tag|run>_<6 hex>``.

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


def began(run_id: str) -> datetime | None:
    """When the run began, to the second; None where somebody gave it another name."""
    try:
        return datetime.strptime(run_id.partition("_")[0], _STAMP).replace(tzinfo=UTC)
    except ValueError:
        return None


def tag_of(run_id: str) -> str:
    """The tag in a run id, ``run`` where there was none."""
    return run_id.partition("_")[2].rpartition("_")[0]


def is_path_component(value: str) -> bool:
    """Whether `value` is safe as the name of one folder."""
    return _SAFE.fullmatch(value) is not None and len(value) <= LONGEST


def path_component(option: str, value: str) -> str:
    """`value`, which is safe as the name of one folder.

    Raises:
        UsageProblem: it is not; the message proposes the nearest one that is.
    """
    if is_path_component(value):
        return value
    nearest = re.sub(r"[^A-Za-z0-9._-]+", "-", value).strip("._-")[:LONGEST]
    hint = f" (did you mean {nearest!r}?)" if nearest else ""
    raise UsageProblem(
        f"{option}: {value!r} cannot name a folder{hint}; allowed: letters, digits, '.', '_' and "
        f"'-', a letter or digit first, at most {LONGEST}"
    )


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
        write(probe, lambda file: file.write(b"yes\n"))
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


_REMOVED: Final = re.compile(r"\..+\.gpubench-[0-9a-f]{8}\.removed")


def under_removal(run: Path) -> Path:
    """A new name for the folder of a run, under which no reader takes it for one."""
    return run.with_name(f".{run.name}.gpubench-{secrets.token_hex(4)}.removed")


def is_under_removal(folder: Path) -> bool:
    """Whether it has such a name."""
    return _REMOVED.fullmatch(folder.name) is not None


def runs_in(results_dir: Path) -> list[RunDirectory]:
    """All runs below `results_dir`, of every experiment, the oldest first."""
    journals = Path(os.path.realpath(results_dir)).glob("*/*/metrics.jsonl")
    folders = (journal.parent for journal in journals)
    found = (RunDirectory(path=folder) for folder in folders if not is_under_removal(folder))
    return sorted(found, key=lambda run: (run.run_id, run.experiment))


def find_run(results_dir: Path, text: str, *, here: Path) -> RunDirectory:
    """The run that `text` names: its folder, a file in that, its id or the id's beginning.

    A path is seen from `results_dir` or from `here`; an id is looked for in all experiments.

    Raises:
        UsageProblem: no run is named so, or several are; the message names those there are.
        ResultsError: the operating system does not let it be looked for.
    """
    with opening(text):
        return _run_at(results_dir, text, here) or _run_called(results_dir, text, here)


@contextmanager
def opening(text: str) -> Iterator[None]:
    """Turn what the system says of the path `text` into errors that name it."""
    try:
        yield
    except ValueError as error:  # a path with a null character
        raise UsageProblem(f"{text!r} is no path: {error}") from None
    except OSError as error:  # a name too long, a folder that is closed
        raise ResultsError(f"{text} cannot be read: {error.strerror}") from error


def _run_at(results_dir: Path, text: str, here: Path) -> RunDirectory | None:
    """The run at the path `text`; None where that may be an id."""
    below = results_dir / text
    path = below if os.sep in text and below.exists() else here / text
    folder = path.parent if path.is_file() else path
    is_run = bool(text) and RunDirectory(path=folder).journal.is_file()
    return RunDirectory.open(folder) if is_run or os.sep in text else None


def _run_called(results_dir: Path, text: str, here: Path) -> RunDirectory:
    runs = runs_in(results_dir)
    matches = [run for run in runs if run.run_id == text]
    matches = matches or [run for run in runs if run.run_id.startswith(text)]
    if len(matches) == 1:
        return matches[0]
    if text and (here / text).is_dir():
        return RunDirectory.open(here / text)  # says why not
    if matches:
        raise UsageProblem(f"{len(matches)} runs begin with {text!r}: {_listed(matches)}")
    hint = nearest(text, [run.run_id for run in runs])
    there = f"the latest: {_listed(runs)}" if runs else "there is none at all"
    raise UsageProblem(f"no run in {results_dir} begins with {text!r}{hint}; {there}")


def _listed(runs: Sequence[RunDirectory]) -> str:
    """The latest of `runs`, the latest first."""
    return listed([f"{run.experiment}/{run.run_id}" for run in reversed(runs)])
