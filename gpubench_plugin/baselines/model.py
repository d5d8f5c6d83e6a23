"""Baseline model: a name, its pinned runs, and the changes that led to them.

A baseline is replayed from its changes in the order of their times. Copies that were changed
independently are merged by replaying the union of their changes, in any direction and any number of
times. No change is ever lost; of contradicting ones the later one has effect.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Annotated, Any, ClassVar, Final, Literal

from gpubench_plugin.core.errors import BrokenFile, UsageProblem
from gpubench_plugin.core.records import LAST, UTC_TIME, Json, Run, doc
from gpubench_plugin.environment import json_files, stored
from gpubench_plugin.results.run_directory import RunDirectory, path_component

Action = Literal["set", "accept", "remove"]

RUN_ID: Final = re.compile(r"\d+(T.*)?")
"""A run's id or its beginning, which ``--baseline`` takes as well: not a baseline's name."""


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """The accepted level of `benchmark` starts with `run`; `time` is UTC in ISO 8601."""

    __pydantic_config__: ClassVar[Json] = {"extra": "forbid"}

    benchmark: str = field(metadata=doc("pytest's node id", min_length=1))
    run: str = field(metadata=doc("Run id", min_length=1))
    time: str = field(metadata={"pattern": UTC_TIME})
    reason: str = field(metadata={"min_length": 1})


@dataclass(frozen=True, kw_only=True)
class BaselineChange:
    """One explicit change: the action, its `time` (UTC, ISO 8601) and the reason.

    `forced` lists overridden objections. With `reset_accepted` a ``set`` drops the levels accepted
    before it. `id` distinguishes changes made at the same time; it is empty in files of version 1.
    """

    __pydantic_config__: ClassVar[Json] = {"extra": "forbid"}

    time: str = field(metadata={"pattern": UTC_TIME})
    id: str = field(
        default="", metadata=doc("Distinguishes changes made at the same time; not in version 1")
    )
    action: Action
    runs: tuple[str, ...] = field(metadata=doc("Run ids"))
    branch: str | None
    benchmark: str = field(default="", metadata=doc("Benchmark accepted; empty for other actions"))
    reason: str = ""
    forced: tuple[str, ...] = field(default=(), metadata=doc("Objections that were overridden"))
    reset_accepted: bool = field(
        default=False,
        metadata=doc("Of a set: earlier accepted levels end; so of every one in version 1"),
    )

    def __post_init__(self) -> None:
        if self.action == "accept" and not (self.benchmark and len(self.runs) == 1):
            raise ValueError("an acceptance must name one benchmark and one run")


class _Listed:
    """Pydantic schema of acceptances: a list in the file, by node id in memory."""

    @staticmethod
    def __get_pydantic_core_schema__(source: object, handler: Any) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_after_validator_function(
            lambda listed: {acceptance.benchmark: acceptance for acceptance in listed},
            handler.generate_schema(tuple[Acceptance, ...]),
            serialization=core_schema.plain_serializer_function_ser_schema(
                lambda by_benchmark: [asdict(acceptance) for acceptance in by_benchmark.values()]
            ),
        )


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """A named baseline, the result of replaying its `changes` (:func:`replay`).

    Later runs on `branch`, if any, are further samples. `acceptances` are by node id. A `removed`
    baseline is kept so that no older copy elsewhere restores it.
    """

    name: str = field(metadata={"min_length": 1})
    runs: tuple[str, ...] = field(metadata=doc("Ids of the pinned runs, oldest first"))
    branch: str | None = field(metadata=doc("Branch whose later runs are samples; null for none"))
    acceptances: Annotated[Mapping[str, Acceptance], _Listed] = field(default_factory=dict)
    changed: str = field(metadata=doc("Time of the last change", pattern=UTC_TIME))
    removed: bool = field(default=False, metadata=doc("The baseline was removed"))
    changes: tuple[BaselineChange, ...] = field(
        default=(), metadata=doc("All changes, oldest first; they determine the other fields")
    )

    @property
    def protected_runs(self) -> frozenset[str]:
        """Ids of the runs it depends on, which must not be pruned."""
        return frozenset((*self.runs, *(a.run for a in self.acceptances.values())))


FORMAT: Final = stored.Format(kind="gpubench baseline", newest=2)
"""Version 2 added to a change its `id` and `reset_accepted`; in version 1 every ``set`` reset.

Older files stay readable, newer ones are refused."""


@dataclass(frozen=True, kw_only=True)
class BaselineFile(Baseline):
    """A baseline's name, pinned runs, and the branch whose later runs are further samples."""

    __pydantic_config__: ClassVar[Json] = {"title": "gpubench baseline", "extra": "forbid"}

    schema_version: Literal[1, 2]


def to_text(baseline: Baseline) -> str:
    """The text of a baseline's file, validated.

    Raises:
        BrokenFile: it breaks the schema.
    """
    document = {"schema_version": FORMAT.newest, **json_files.jsonable(stored.dump(baseline))}
    stored.restore(BaselineFile, document, f"the baseline {baseline.name!r}", strict=True)
    return json_files.text(document, indent=2) + "\n"


def from_text(text: str | bytes, where: str) -> Baseline:
    """The baseline in a file's text, which messages call `where`.

    Raises:
        BrokenFile: it is no baseline, or has a newer format; or its fields contradict its changes,
            since the file was edited.
    """
    document = FORMAT.parse(text, where)
    changes = document.get("changes")
    for change in changes if isinstance(changes, list) else ():
        if isinstance(change, dict):  # of version 1
            change.setdefault("reset_accepted", change.get("action") == "set")
    stated = stored.restore(BaselineFile, document, where, strict=True)
    baseline = replay(stated.name, stated.changes)
    for name in (shared.name for shared in fields(Baseline) if shared.name != "changes"):
        if getattr(stated, name) != getattr(baseline, name):
            raise BrokenFile(
                f"{where} is inconsistent at {name}: its changes lead to another value; edit "
                "it only with 'gpubench baseline' and 'gpubench accept'"
            )
    return baseline


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


@dataclass(frozen=True, kw_only=True)
class Merge:
    """A merged `baseline`, and why changes of one copy are superseded by the other's."""

    baseline: Baseline
    superseded: dict[BaselineChange, str]


def replay(name: str, changes: Iterable[BaselineChange]) -> Baseline:
    """Replay `changes`, in any order and without duplicates, into a baseline."""
    ordered_changes = tuple(
        sorted({*changes}, key=lambda change: (change.time, change.id, repr(change)))
    )
    baseline = Baseline(name=name, runs=(), branch=None, changed="", removed=True)
    for change in ordered_changes:
        baseline = _after(baseline, change)
    return replace(
        baseline,
        changed=ordered_changes[-1].time if ordered_changes else "",
        changes=ordered_changes,
    )


def merge(first: Baseline, second: Baseline) -> Merge:
    """Merge two copies of a baseline."""
    baseline = replay(first.name, (*first.changes, *second.changes))
    only_first = [change for change in first.changes if change not in second.changes]
    only_second = [change for change in second.changes if change not in first.changes]
    reasons = {}
    if only_first and only_second:  # else one copy contains the other
        superseded = superseded_changes(first, baseline) | superseded_changes(second, baseline)
        changes = {*only_first, *only_second}
        reasons = {change: cause for change, cause in superseded.items() if change in changes}
    return Merge(baseline=baseline, superseded=reasons)


def superseded_changes(old: Baseline, new: Baseline) -> dict[BaselineChange, str]:
    """Changes in effect in `old` but not in its superset `new`, with the reason."""
    effective = [change for change in old.changes if _is_in_effect(change, old)]
    return {c: _superseded_text(c, new) for c in effective if not _is_in_effect(c, new)}


def previous_baseline(baseline: Baseline) -> Baseline | None:
    """The baseline before its last "set"; None if there was none."""
    last_set = max((n for n, c in enumerate(baseline.changes) if c.action == "set"), default=0)
    previous = replay(baseline.name, baseline.changes[:last_set])
    return None if previous.removed else previous


def _after(baseline: Baseline, change: BaselineChange) -> Baseline:
    if change.action == "remove":
        return replace(baseline, runs=(), branch=None, acceptances={}, removed=True)
    if change.action == "set":
        retained = {} if change.reset_accepted else baseline.acceptances
        return replace(
            baseline, runs=change.runs, branch=change.branch, acceptances=retained, removed=False
        )
    if baseline.removed:
        return baseline
    acceptance = Acceptance(
        benchmark=change.benchmark, run=change.runs[0], time=change.time, reason=change.reason
    )
    return replace(baseline, acceptances={**baseline.acceptances, change.benchmark: acceptance})


def _is_in_effect(change: BaselineChange, baseline: Baseline) -> bool:
    """Whether `change` is in effect in `baseline`."""
    if change.action == "remove" or baseline.removed:
        return baseline.removed == (change.action == "remove")
    if change.action == "set":
        return (baseline.runs, baseline.branch) == (change.runs, change.branch)
    acceptance = baseline.acceptances.get(change.benchmark)
    return acceptance is not None and acceptance.run == change.runs[0]


def _superseded_text(change: BaselineChange, baseline: Baseline) -> str:
    """Explain in one line why `change` is not in effect in `baseline`."""
    action = {
        "set": f"setting it to {', '.join(change.runs)}",
        "accept": f"accepting {change.benchmark} from {', '.join(change.runs)} on",
        "remove": "removing it",
    }[change.action]
    cause = f" ({change.reason})" if change.reason else ""
    return (
        f"baseline {baseline.name!r}: {action}{cause} has no effect: meanwhile it was "
        f"{_current_state(change, baseline)}; the change log keeps both"
    )


def _current_state(change: BaselineChange, baseline: Baseline) -> str:
    acceptance = baseline.acceptances.get(change.benchmark)
    if baseline.removed:
        return "removed"
    if acceptance is not None:
        return f"accepted from {acceptance.run} on ({acceptance.reason})"
    if change.action == "accept":
        return "set without the earlier accepted levels"
    branch = "no branch" if baseline.branch is None else f"branch {baseline.branch}"
    return f"set to {', '.join(baseline.runs)}, {branch}"
