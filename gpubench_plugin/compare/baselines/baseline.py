"""What a baseline is: a name, the runs it pins, and how it came to be so."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from gpubench_plugin.errors import UsageProblem
from gpubench_plugin.results.run_id import path_component

Action = Literal["set", "accept", "remove"]

RUN_ID: Final = re.compile(r"\d+(T.*)?")
"""A run's id or its beginning, which ``--baseline`` takes as well: no baseline is called so."""


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """From `run` on, `benchmark` has its accepted level: `time` is UTC in ISO 8601."""

    benchmark: str
    run: str
    time: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Change:
    """One explicit act: what it was, at which `time` (UTC, ISO 8601) and why.

    `forced` lists what spoke against it and was overruled. `reset_accepted` says of a ``set`` that
    the levels accepted before it no longer count. `id` tells apart acts of the same moment; those
    of files of version 1 have none.
    """

    time: str
    id: str = ""
    action: Action
    runs: tuple[str, ...]
    branch: str | None
    benchmark: str = ""
    reason: str = ""
    forced: tuple[str, ...] = ()
    reset_accepted: bool = False


@dataclass(frozen=True, kw_only=True)
class Baseline:
    """What a name stands for, as its `changes` lead to it (:mod:`.baseline_history`).

    `runs` are the ids of the pinned runs, the oldest first. Later runs on `branch` are further
    samples; None where there are none. `acceptances` stand by the benchmark's node id. A `removed`
    baseline stands for nothing; it is kept so that no older copy elsewhere brings it back.
    """

    name: str
    runs: tuple[str, ...]
    branch: str | None
    acceptances: Mapping[str, Acceptance] = field(default_factory=dict)
    changed: str
    removed: bool = False
    changes: tuple[Change, ...] = ()

    @property
    def kept(self) -> frozenset[str]:
        """The ids of the runs it rests on, which are never pruned."""
        return frozenset((*self.runs, *(a.run for a in self.acceptances.values())))


def baseline_name(name: str) -> str:
    """`name`, which can be a baseline's.

    Raises:
        UsageProblem: it cannot name a file, or is what a run or a file would be called.
    """
    path_component("baseline", name)
    if RUN_ID.fullmatch(name) or name.endswith(".json"):
        raise UsageProblem(
            f"baseline: {name!r} is what a run or a file is called; allowed: any other word, "
            "such as 'main'"
        )
    return name


def one_of(names: Iterable[str], option: str) -> str:
    """The only one of `names`, for a command that was given none.

    Raises:
        UsageProblem: there are several, or none.
    """
    known = list(names)
    if len(known) == 1:
        return known[0]
    if not known:
        raise UsageProblem(f"{option}: there is no baseline yet; make one: gpubench baseline set")
    raise UsageProblem(f"{option}: there are several, name one: {', '.join(known)}")
