"""Baseline model: a name, and the changes that led to its pinned runs and accepted levels."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import ClassVar, Final, Literal

from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.core.records import UTC_TIME, Json, Run, doc
from gpubench_plugin.core.verdicts import LAST
from gpubench_plugin.results.run_directory import RunDirectory, path_component
from gpubench_plugin.system import json_files, stored

RUN_ID: Final = re.compile(r"\d+(T.*)?")
"""A run's id or its beginning, which ``--baseline`` takes as well: not a baseline's name."""


@dataclass(frozen=True, kw_only=True)
class BaselineChange:
    """One explicit change: the action, its `time` (UTC, ISO 8601) and the reason.

    `forced` lists overridden objections. With `reset_accepted` a ``set`` drops the levels accepted
    before it.
    """

    __pydantic_config__: ClassVar[Json] = {"extra": "forbid"}

    time: str = field(metadata={"pattern": UTC_TIME})
    action: Literal["set", "accept", "remove"]
    runs: tuple[str, ...] = field(metadata=doc("Run ids; of an acceptance the one of the level"))
    branch: str | None = field(metadata=doc("Branch whose later runs are samples; null for none"))
    benchmark: str = field(default="", metadata=doc("Benchmark accepted; empty for other actions"))
    reason: str = ""
    forced: tuple[str, ...] = field(default=(), metadata=doc("Objections that were overridden"))
    reset_accepted: bool = field(
        default=False, metadata=doc("Of a set: earlier accepted levels end")
    )

    def __post_init__(self) -> None:
        if self.action == "accept" and not (self.benchmark and len(self.runs) == 1):
            raise ValueError("an acceptance must name one benchmark and one run")


FORMAT: Final = stored.Format(kind="gpubench baseline", newest=1)


@dataclass(frozen=True, kw_only=True)
class BaselineFile:
    """A baseline: all its changes, oldest first, of which the last ones are in effect."""

    __pydantic_config__: ClassVar[Json] = {"title": "gpubench baseline", "extra": "forbid"}

    schema_version: Literal[1] = 1
    name: str = field(metadata={"min_length": 1})
    changes: tuple[BaselineChange, ...] = field(metadata={"min_length": 1})


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """A named baseline, the result of its `changes` (:func:`replay`).

    Attributes:
        runs: ids of the pinned runs, oldest first.
        branch: the branch whose later runs are further samples, if any.
        acceptances: of each benchmark with an accepted level, the change that accepted it.
        is_removed: it was removed, and only its changes are left.
    """

    name: str
    runs: tuple[str, ...] = ()
    branch: str | None = None
    acceptances: Mapping[str, BaselineChange] = field(default_factory=dict)
    is_removed: bool = True
    changes: tuple[BaselineChange, ...] = ()

    @property
    def accepted_runs(self) -> dict[str, str]:
        """Id of the run with which the accepted level starts, by benchmark."""
        return {name: change.runs[0] for name, change in self.acceptances.items()}

    @property
    def protected_runs(self) -> frozenset[str]:
        """Ids of the runs it depends on, which must not be pruned."""
        return frozenset((*self.runs, *self.accepted_runs.values()))

    @property
    def changed(self) -> str:
        """Time of the last change."""
        return self.changes[-1].time


def replay(name: str, changes: Sequence[BaselineChange]) -> Baseline:
    """The baseline after `changes`, oldest first."""
    baseline = Baseline(name=name, changes=tuple(changes))
    for change in changes:
        if change.action == "remove":
            baseline = Baseline(name=name, changes=baseline.changes)
        elif change.action == "set":
            retained = {} if change.reset_accepted else baseline.acceptances
            baseline = replace(
                baseline,
                runs=change.runs,
                branch=change.branch,
                acceptances=retained,
                is_removed=False,
            )
        else:
            levels = {**baseline.acceptances, change.benchmark: change}
            baseline = replace(baseline, acceptances=levels)
    return baseline


def as_json(baseline: Baseline) -> Json:
    """The baseline for programs."""
    fields = asdict(baseline)
    acceptances = [
        {"benchmark": name, "run": change.runs[0], "time": change.time, "reason": change.reason}
        for name, change in baseline.acceptances.items()
    ]
    del fields["is_removed"]
    return {**fields, "acceptances": acceptances, "changed": baseline.changed}


def to_text(baseline: Baseline) -> str:
    """The text of a baseline's file."""
    file = BaselineFile(name=baseline.name, changes=baseline.changes)
    return json_files.text(stored.dump(file), indent=2) + "\n"


def from_text(text: str | bytes, label: str) -> Baseline:
    """The baseline in a file's text, which messages call `label`.

    Raises:
        BrokenFile: it is no baseline, or of another version.
    """
    file = stored.restore(BaselineFile, FORMAT.parse(text, label), label, strict=True)
    return replay(file.name, file.changes)


@dataclass(frozen=True, kw_only=True)
class Reference:
    """The runs that a run is compared with.

    Attributes:
        label: the user's name for it.
        kind: ``history``: a baseline with samples from several runs; ``single``: one run or file,
            judged by threshold only; ``last``: the last comparable run of each benchmark, judged
            likewise; ``missing``: an unknown baseline, or no run yet.
        runs: oldest first. Those of a history hold only the results that are samples.
        pinned: ids of the baseline's pinned runs, existing or not.
        notes: lines for the user.
        objections: to pinning the run, where it is a candidate.
        registry_error: why the registry cannot be reached, so that the baseline, or one of its
            pinned runs, may exist there.
        typo_hint: error message if a missing baseline's name is likely a typo; else empty.
    """

    label: str
    kind: Literal["history", "single", "last", "missing"]
    runs: tuple[Run, ...] = ()
    pinned: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    objections: tuple[str, ...] = ()
    registry_error: str = ""
    typo_hint: str = ""

    @property
    def run(self) -> Run:
        """The only run of a ``single`` one."""
        return self.runs[0]

    @property
    def directory(self) -> RunDirectory | None:
        """The local directory of a ``single`` run, if any."""
        directory = RunDirectory(path=self.run.path) if self.run.path is not None else None
        return directory if directory is not None and directory.journal.is_file() else None


def baseline_name(name: str) -> str:
    """Validate `name` as a baseline name.

    Raises:
        UsageProblem: it cannot name a file, looks like a run or a file, or is :data:`LAST`.
    """
    path_component("baseline", name)
    if name == LAST:
        raise UsageProblem(
            f"baseline: --baseline={LAST} means the last comparable run and cannot be a "
            "baseline's name; allowed: any other word, for example 'main'"
        )
    if RUN_ID.fullmatch(name) or name.endswith(".json"):
        raise UsageProblem(
            f"baseline: {name!r} looks like a run id or a file; allowed: any other word, for "
            "example 'main'"
        )
    return name
