"""What a run is at a glance, also of one that is being written, was killed, or is broken.

This looks at files without validating them whole: thousands of runs are listed, and whatever is
wrong with one of them is said of that one.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from gpubench_plugin.environment import json_files
from gpubench_plugin.environment.locks import KernelLock
from gpubench_plugin.errors import BrokenFile, GpubenchError
from gpubench_plugin.results.recorded import events_of
from gpubench_plugin.results.tags import tags_of

if TYPE_CHECKING:
    from gpubench_plugin.results.registry.rows import RunRow
    from gpubench_plugin.results.run_directory import RunDirectory

State = Literal["complete", "failed", "interrupted", "running", "broken"]
"""``running``: a process is writing it; ``broken``: its files cannot be read."""


@dataclass(frozen=True, kw_only=True)
class Overview:
    """One run. `started` is UTC in ISO 8601, or empty; `outcomes` counts benchmarks.

    `path` is None for a run that only the registry knows. `problem` says what is broken.
    """

    run_id: str
    experiment: str
    path: Path | None
    state: State
    problem: str = ""
    started: str = ""
    command: tuple[str, ...] = ()
    commit: str | None = None
    branch: str | None = None
    dirty: bool | None = None
    outcomes: Mapping[str, int] = field(default_factory=dict)
    regressed: bool = False
    tags: tuple[str, ...] = ()

    @property
    def benchmarks(self) -> int:
        """How many were selected."""
        return sum(self.outcomes.values())

    @property
    def measured(self) -> int:
        """How many have numbers."""
        return self.outcomes.get("measured", 0)


def overview(directory: RunDirectory) -> Overview:
    """The run in `directory`, whatever has become of it; nothing is raised."""
    facts: dict[str, Any] = {
        "run_id": directory.run_id,
        "experiment": directory.experiment,
        "path": directory.path,
    }
    try:
        facts["tags"] = tags_of(directory)
        facts["regressed"] = _regressed(directory)
        read = _from_summary if directory.summary.exists() else _from_journal
        return Overview(**facts, **read(directory))
    except (GpubenchError, *json_files.MALFORMED) as error:
        problem = (
            str(error) if isinstance(error, GpubenchError) else f"not as written: {error!r:.200}"
        )
        facts["state"] = "running" if is_being_written(directory) else "broken"
        return Overview(**facts, problem=problem)


def of_registry(row: RunRow) -> Overview:
    """A run of another machine, as the registry tells it."""
    others = row.benchmarks - row.measured
    return Overview(
        run_id=row.run_id,
        experiment=row.experiment,
        path=None,
        state=row.status or "interrupted",
        started=row.started,
        commit=row.commit,
        branch=row.branch,
        dirty=row.dirty,
        outcomes={"measured": row.measured, **({"not measured": others} if others else {})},
        regressed=row.regressed,
        tags=row.tags,
    )


def is_being_written(directory: RunDirectory) -> bool:
    """Whether a living process holds the run's journal."""
    try:
        with KernelLock(directory.journal, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK) as journal:
            journal.take(shared=True)  # so that two who look do not see each other
    except BlockingIOError:
        return True
    except OSError:
        return False  # a file system without locks tells nobody
    return False


def _from_summary(directory: RunDirectory) -> dict[str, Any]:
    document = json_files.load(directory.summary)
    state = document["status"]
    if state not in {"complete", "failed", "interrupted"}:
        raise ValueError(f"status {state!r}")
    return {
        "state": state,
        "started": str(document["started"]),
        "command": tuple(map(str, document["command"])),
        "outcomes": dict(Counter(str(b["outcome"]) for b in document["benchmarks"])),
        **_git(document["environment"]),
    }


def _from_journal(directory: RunDirectory) -> dict[str, Any]:
    events = events_of(directory)
    running = is_being_written(directory)
    beginning = next((event for event in events if event.get("event") == "run_started"), None)
    if beginning is None:
        raise BrokenFile(f"{directory.journal} has no beginning: the run never started")
    recorded = {e["id"]: str(e["outcome"]) for e in events if e.get("event") == "benchmark"}
    selected = dict.fromkeys(beginning.get("params") or (), "not_measured")
    return {
        "state": "running" if running else "interrupted",
        "started": str(beginning["time"]),
        "command": tuple(map(str, beginning["command"])),
        "outcomes": dict(Counter({**selected, **recorded}.values())),
        **_git(json_files.load(directory.system, limit=json_files.LIMIT_OF_FACTS_BYTES)),
    }


def _git(environment: Mapping[str, Any]) -> dict[str, Any]:
    git = environment.get("git")
    git = git if isinstance(git, Mapping) else {}
    kinds = {"commit": str, "branch": str, "dirty": bool}
    return {key: git[key] for key, kind in kinds.items() if isinstance(git.get(key), kind)}


def _regressed(directory: RunDirectory) -> bool:
    if not directory.verdicts.exists():
        return False
    found = json_files.load(directory.verdicts, limit=json_files.LIMIT_OF_FACTS_BYTES)["benchmarks"]
    return any(verdict["verdict"] == "regressed" for verdict in found)
