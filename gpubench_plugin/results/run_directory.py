"""Run directory: naming, creation, lookup and tags.

A tag protects a run from pruning; the word in its id does not.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar, Final, Literal

from gpubench_plugin.core.errors import UsageProblem, suggest
from gpubench_plugin.core.format import counted, listed
from gpubench_plugin.core.records import Json
from gpubench_plugin.core.verdicts import LAST
from gpubench_plugin.system import json_files, stored
from gpubench_plugin.system.files import is_temporary, locked, refusals

LONGEST: Final = 80
"""Characters in an experiment or tag, so that a run id fits into the 255 bytes of a file name."""

RUN_ID: Final = re.compile(r"(\d{8}T\d{6}Z)_.+_[0-9a-f]{6}")
"""Pattern of :func:`new_run_id`."""

LATEST: Final = re.compile(rf"{LAST}(?:~(.*))?")
"""``last`` or ``last~N``, which may still be malformed."""

_STAMP: Final = "%Y%m%dT%H%M%SZ"
_SAFE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def new_run_id(tag: str | None, now: datetime) -> str:
    """New run id ``YYYYmmddTHHMMSSZ_<tag|run>_<6 hex>``: sortable by time, safe as a folder name.

    `now` is the start time with its time zone. Raises UsageProblem for an invalid `tag`.
    """
    stamp = now.astimezone(UTC).strftime(_STAMP)
    return f"{stamp}_{path_component('--tag', tag or 'run')}_{secrets.token_hex(3)}"


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
    """Validate `value` as a folder name; raises UsageProblem with the nearest valid one."""
    if is_path_component(value):
        return value
    suggestion = re.sub(r"[^A-Za-z0-9._-]+", "-", value).strip("._-")[:LONGEST]
    hint = f" (did you mean {suggestion!r}?)" if suggestion else ""
    raise UsageProblem(
        f"{option}: {value!r} is not a valid folder name{hint}; allowed: letters, digits, '.', '_' "
        f"and '-', starting with a letter or digit, at most {LONGEST} characters"
    )


class _Entry:
    """A file or folder of a run directory, by name."""

    def __init__(self, name: str):
        self._name = name

    def __get__(self, run: RunDirectory, _: object) -> Path:
        return run.path / self._name


@dataclass(frozen=True, kw_only=True)
class RunDirectory:
    """``<results>/<experiment>/<run id>``, absolute so that benchmarks may change directory."""

    path: Path

    config_resolved = _Entry("config_resolved.yaml")
    system = _Entry("system.json")
    journal = _Entry("metrics.jsonl")
    summary = _Entry("summary.json")  # written last: it marks an orderly end
    table = _Entry("summary.csv")
    benchmark = _Entry("benchmark.json")  # in pytest-benchmark's format
    verdicts = _Entry("verdicts.json")
    tags = _Entry("tags.json")  # a copy of those in the run's document, if the registry has one
    log = _Entry("run.log")
    ranks, traces, checkpoints = _Entry("ranks"), _Entry("traces"), _Entry("checkpoints")

    @classmethod
    def create(cls, results_dir: Path, experiment: str, run_id: str) -> RunDirectory:
        """Create the folder; raises UsageProblem."""
        path_component("--experiment", experiment)
        results = Path(os.path.realpath(results_dir))
        run = cls(path=results / experiment / path_component("run id", run_id))
        try:
            is_new = not results.exists()
            run.path.mkdir(parents=True)
            if is_new:  # as pytest's cache does; a folder that was there is the user's
                json_files.write_text(results / ".gitignore", "*\n")
        except OSError as error:
            raise _unwritable("--results-dir", results, error.filename, error) from error
        return run

    @classmethod
    def open(cls, path: Path) -> RunDirectory:
        """Open the folder of an earlier run without changing it; raises UsageProblem."""
        run = cls(path=Path(os.path.realpath(path)))
        if run.journal.is_file():
            return run
        if run.path.is_dir():
            raise UsageProblem(f"{path} is not a run directory: it has no {run.journal.name}")
        siblings = [p.name for p in run.path.parent.glob("*/")]
        raise UsageProblem(f"{path}: no such folder{suggest(run.path.name, siblings)}")

    @property
    def run_id(self) -> str:
        """Unique name of the run."""
        return self.path.name

    @property
    def start_time(self) -> datetime:
        """Start time from the id, else the journal's modification time."""
        return start_time(self.run_id) or datetime.fromtimestamp(self.journal.lstat().st_mtime, UTC)

    @property
    def experiment(self) -> str:
        """Experiment of the run."""
        return self.path.parent.name

    @property
    def files(self) -> tuple[Path, ...]:
        """All files a session may write directly into the folder."""
        return (
            *(self.config_resolved, self.system, self.journal, self.summary, self.table),
            *(self.benchmark, self.verdicts, self.tags, self.log),
        )

    def __str__(self) -> str:
        return str(self.path)


def _unwritable(option: str, folder: Path, path: Path | str, error: OSError) -> UsageProblem:
    return UsageProblem(
        f"{option}: cannot write to {folder}: {path}: {error.strerror}; choose another folder"
    )


def require_writable(option: str, folder: Path) -> None:
    """Refuse a folder in which nothing could be created, leaving nothing there."""
    folder = Path(os.path.realpath(folder))
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    try:
        with TemporaryDirectory(prefix=".gpubench-", dir=existing):
            pass
    except OSError as error:
        raise _unwritable(option, folder, existing, error) from error


def writable_file(option: str, text: str, cwd: Path) -> Path:
    """The file at `text`, relative to `cwd`, that `option` names.

    Raises:
        UsageProblem: it is empty, a folder or a device, or cannot be written.
    """
    file = cwd / text
    is_other = file.exists() and not file.is_file()  # a writer would replace a device
    if not text or is_other or not os.access(file if file.exists() else file.parent, os.W_OK):
        allowed = "allowed: a writable file, not a folder, in a folder that exists"
        raise UsageProblem(f"{option}={text}: not writable; {allowed}")
    return file.resolve() if file.is_symlink() else file


def runs_in(results_dir: Path) -> list[RunDirectory]:
    """All runs below `results_dir`, of every experiment, in the order of their start."""
    journals = Path(os.path.realpath(results_dir)).glob("*/*/metrics.jsonl")
    folders = (journal.parent for journal in journals)
    candidates = (RunDirectory(path=folder) for folder in folders if not is_temporary(folder.name))
    return sorted(candidates, key=_start)


def _start(run: RunDirectory) -> tuple[str, int, str, str]:
    """Start of the run: ids have seconds, files that are written then have nanoseconds.

    A folder that the user has renamed, which has no time in its name, is as old as its journal.
    """
    match = RUN_ID.fullmatch(run.run_id)
    second, written_ns = match[1] if match else "", 0
    with suppress(OSError):  # removed just now, or no file was written then
        second = second or run.start_time.strftime(_STAMP)
        written_ns = run.system.stat().st_mtime_ns
    return second, written_ns, run.run_id, run.experiment


def find_run(results_dir: Path, text: str, *, cwd: Path) -> RunDirectory:
    """Find the run that `text` names: its folder, a file in it, or a prefix of its id.

    ``last`` is the latest run, ``last~1`` the one before, as git counts commits. A path is relative
    to `results_dir` or `cwd`; an id may be of any experiment.

    Raises:
        UsageProblem: `text` is empty, no run matches, or several do; the message lists them.
        ResultsError: the operating system refuses to look for it.
    """
    if not text:  # as of an unset variable of a shell: every id starts with it
        raise UsageProblem(f"RUN: empty; allowed: a folder, an id or its beginning, or {LAST}")
    with refusals("read", text):  # e.g. a name too long, a folder without permission
        return _run_at(results_dir, text, cwd) or _run_called(results_dir, text, cwd)


def _run_at(results_dir: Path, text: str, cwd: Path) -> RunDirectory | None:
    """The run at the path `text`; None if `text` may be an id."""
    below = results_dir / text
    path = below if os.sep in text and below.exists() else cwd / text
    folder = path.parent if path.is_file() else path
    is_run = RunDirectory(path=folder).journal.is_file()
    return RunDirectory.open(folder) if is_run or os.sep in text else None


def _run_called(results_dir: Path, text: str, cwd: Path) -> RunDirectory:
    runs = runs_in(results_dir)
    if match := LATEST.fullmatch(text):
        steps = "0" if match[1] is None else match[1]
        if not (steps.isascii() and steps.isdigit()):
            raise UsageProblem(f"{text}: not a run; allowed: {LAST}, {LAST}~1 for the one before …")
        back = int(steps)
        if back >= len(runs):
            raise UsageProblem(f"{text}: {results_dir} has {counted(len(runs), 'run')}")
        return runs[-1 - back]
    matches = [run for run in runs if run.run_id == text]
    matches = matches or [run for run in runs if run.run_id.startswith(text)]
    if len(matches) == 1:
        return matches[0]
    if (cwd / text).is_dir():
        return RunDirectory.open(cwd / text)  # raises the reason
    if matches:
        raise UsageProblem(f"{len(matches)} runs start with {text!r}: {_names_text(matches)}")
    hint = suggest(text, [run.run_id for run in runs])
    listing = f"latest: {_names_text(runs)}" if runs else "there are none"
    raise UsageProblem(f"no run in {results_dir} starts with {text!r}{hint}; {listing}")


def _names_text(runs: Sequence[RunDirectory]) -> str:
    """Names of the latest `runs`, newest first."""
    return listed([f"{run.experiment}/{run.run_id}" for run in reversed(runs)])


FORMAT: Final = stored.Format(kind="tags file", newest=1)


@dataclass(frozen=True, kw_only=True)
class TagFile:
    """Tags of a run."""

    __pydantic_config__: ClassVar[Json] = {"extra": "forbid"}

    schema_version: Literal[1] = 1
    tags: tuple[str, ...]


def tags_of(directory: RunDirectory) -> tuple[str, ...]:
    """Sorted tags in the folder of a run; where the registry has its document, those count.

    Raises:
        ResultsError: the file cannot be read, is broken, or of another version.
    """
    path = directory.tags
    if not path.exists():
        return ()
    file = stored.restore(TagFile, FORMAT.load(path), str(path), strict=True)
    return tuple(sorted({*file.tags}))


def change_tags(
    directory: RunDirectory, *, add: Collection[str] = (), remove: Collection[str] = ()
) -> tuple[str, ...]:
    """Add or remove tags in the folder of a run that no registry has; return the resulting tags.

    Raises:
        UsageProblem: a tag is invalid.
        ResultsError: as :func:`tags_of`, or the file could not be written.
    """
    with locked(directory.path):
        tags = changed_tags(tags_of(directory), add, remove)
        write_tags(directory, tags)
    return tags


def changed_tags(
    tags: Collection[str], add: Collection[str], remove: Collection[str]
) -> tuple[str, ...]:
    """The `tags` after the change, sorted; raises UsageProblem for an invalid one."""
    for tag in add:
        path_component("tag", tag)
    return tuple(sorted({*tags, *add} - {*remove}))


def write_tags(directory: RunDirectory, tags: tuple[str, ...]) -> None:
    """Write the tags into the folder of the run; raises ResultsError."""
    json_files.write_json(directory.tags, stored.dump(TagFile(tags=tags)))
