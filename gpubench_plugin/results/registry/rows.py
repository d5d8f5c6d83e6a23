"""What the registry answers with, beside whole runs."""

from __future__ import annotations

from dataclasses import dataclass

from gpubench_plugin.records import RunStatus
from gpubench_plugin.runs import Result


@dataclass(frozen=True, kw_only=True)
class RunRow:
    """One line in a list of runs.

    `started` is UTC in ISO 8601. `status` is None for a run that never came to an orderly end.
    `benchmarks` counts those selected, `measured` those with numbers. `regressed` says whether its
    own verdicts found a regression.
    """

    run_id: str
    experiment: str
    started: str
    status: RunStatus | None
    commit: str | None
    branch: str | None
    dirty: bool | None
    tags: tuple[str, ...]
    benchmarks: int
    measured: int
    regressed: bool


@dataclass(frozen=True, kw_only=True)
class Point:
    """One benchmark in one run; `started` is UTC in ISO 8601.

    Of the `result` its clock and its numbers are there. `fingerprint` is equal where two points
    were measured on like machines with like settings and by the same clock.
    """

    run_id: str
    started: str
    commit: str | None
    branch: str | None
    result: Result
    fingerprint: str
