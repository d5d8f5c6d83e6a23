"""Runs as comparisons see them, wherever they were read from.

A run directory, a file of pytest-benchmark (ours or anybody's) and the registry all give the same
records: what is compared does not know where it came from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from gpubench_plugin.records import Metric, Outcome, RunStatus

UNFINISHED: Final = "unfinished"
"""The flag of a result of which its run has not told, and the run has no end: it was killed, or is
still being written."""


@dataclass(frozen=True, kw_only=True)
class Result:
    """One benchmark of one run.

    `timer` names the clock: ``cuda_events`` and ``cuda_kernel`` take the device's own time, all
    others are clocks of the host. `metrics` are those of the whole run; `launches` holds the value
    of each metric in each launch of fresh processes, one mapping per launch, never none for a
    measured benchmark. `settings` is the configuration by dot key with defaults left out, as far as
    it makes numbers comparable; `configuration` is all of it by dot key, empty where it is unknown.
    `limits` are those that the run itself was to be judged by, by metric. `pinned`: somebody has
    said that this is the level of the benchmark, by pinning the run or accepting it. `foreign`: it
    was read from what pytest-benchmark alone wrote of it, which is less.
    """

    id: str
    outcome: Outcome
    reason: str = ""
    timer: str = ""
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    launches: tuple[Mapping[str, float], ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    configuration: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, str] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    pinned: bool = False
    foreign: bool = False


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run with its results by node id.

    `label` is what messages call it: as the user named it. `started` is UTC in ISO 8601, or empty.
    `machine` holds the facts by dot key that must be equal for numbers to be comparable,
    `environment` other facts worth saying where they differ. `status` is None where the source
    knows none. `path` is the file or folder it was read from. A `foreign` run is a file that
    pytest-benchmark alone has written: it knows fewer facts, and one it lacks is no difference.
    """

    label: str
    run_id: str = ""
    started: str = ""
    status: RunStatus | None = None
    commit: str | None = None
    branch: str | None = None
    dirty: bool | None = None
    machine: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, Any] = field(default_factory=dict)
    results: Mapping[str, Result] = field(default_factory=dict)
    path: Path | None = None
    foreign: bool = False
