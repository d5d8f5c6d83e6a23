"""A run directory as it is stored: the run, its tags, its verdicts, and its files' digest."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from gpubench_plugin.environment import files, json_files
from gpubench_plugin.errors import ResultsError, UsageProblem
from gpubench_plugin.results import verdicts
from gpubench_plugin.results.sources import run_in
from gpubench_plugin.results.tags import TagChange, tag_changes, tags_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from gpubench_plugin.results.run_directory import RunDirectory
    from gpubench_plugin.runs import Run

_AND: Final = "+"
"""Between what the files' digest is and the tags'."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a run's files say. `state` is equal where they are; `regressed` holds node ids."""

    run: Run
    experiment: str
    state: str
    tags: frozenset[TagChange]
    regressed: frozenset[str]


def read(directory: RunDirectory) -> Reading:
    """The run in `directory`.

    Raises:
        ResultsError: it cannot be read.
    """
    state = state_of(directory)
    try:
        run = run_in(directory)
    except UsageProblem as error:
        raise ResultsError(str(error)) from error
    return Reading(
        run=run,
        experiment=directory.experiment,
        state=state,
        tags=tag_changes(directory),
        regressed=_regressed(directory),
    )


def state_of(directory: RunDirectory) -> str:
    """The digest of the files that tell of the run; a file that is missing counts as empty.

    Raises:
        ResultsError: one of them cannot be read.
    """
    ended = directory.summary.exists()
    told = (directory.summary,) if ended else (directory.journal, directory.system)
    digest = sha256()
    for file in (directory.verdicts, *told):
        data = _bytes(file)
        digest.update(f"{file.name} {len(data)}\n".encode())
        digest.update(data)
    return with_tags(digest.hexdigest()[:24], tags_of(directory))


def with_tags(state: str, tags: Iterable[str]) -> str:
    """The `state` of a run that was given other `tags`."""
    digest = sha256("\0".join(sorted(set(tags))).encode("utf-8", "backslashreplace"))
    return f"{state.partition(_AND)[0]}{_AND}{digest.hexdigest()[:24]}"


def _regressed(directory: RunDirectory) -> frozenset[str]:
    if not directory.verdicts.exists():
        return frozenset()
    return verdicts.read(directory.verdicts).ids("regressed")


def _bytes(file: Path) -> bytes:
    try:
        return files.read(file, limit=json_files.LIMIT_BYTES)
    except FileNotFoundError:
        return b""
