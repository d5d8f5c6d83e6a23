"""``gpu-check.json``: what each stage found; rewritten after every stage.

The published schema is generated from the records, and a test keeps it current::

    gpubench schema gpu-check > docs/schemas/gpu-check.schema.json
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal

from gpubench_plugin.core.records import Json, Outcome, doc
from gpubench_plugin.environment import stored

FORMAT: Final = stored.Format(kind="gpu-check record", newest=1)
"""The version grows with every change; older files stay readable, newer ones are refused."""

_EXACTLY: Final[Json] = {"extra": "forbid", "allow_inf_nan": False}

Part = Literal["proof", "speed"]

StageOutcome = Literal["passed", "failed", "crashed", "hang", "unsupported", "cut", "not_run"]
"""``failed``: a criterion was not met; ``crashed``: the process ended before the stage did;
``hang``: it reached its limit; ``unsupported``: the machine lacks what it needs; ``cut``: the
budget was too short, or the run was interrupted; ``not_run``: never begun, or never ended since the
run was killed."""

NOT_PROVEN: Final[frozenset[StageOutcome]] = frozenset(
    {"failed", "crashed", "hang", "cut", "not_run"}
)

Bound = Literal["at_most", "at_least", "equal"]


@dataclass(frozen=True, kw_only=True)
class Criterion:
    """A number and the limit that it has to keep; one that is unknown (None) does not."""

    __pydantic_config__: ClassVar[Json] = _EXACTLY

    name: str
    value: float | None = field(metadata=doc("Null if it could not be measured"))
    bound: Bound
    limit: float
    unit: str = ""
    passed: bool

    @classmethod
    def of(cls, name: str, value: float | None, bound: Bound, limit: float, unit: str) -> Criterion:
        """Judge `value`; a number that is not finite is unknown."""
        known = None if value is None or not math.isfinite(value) else float(value)
        passed = (
            known is not None
            and {
                "at_most": known <= limit,
                "at_least": known >= limit,
                "equal": known == limit,
            }[bound]
        )
        return cls(name=name, value=known, bound=bound, limit=limit, unit=unit, passed=passed)


@dataclass(frozen=True, kw_only=True)
class Band:
    """A published figure: a range of numbers for one workload on one kind of device."""

    __pydantic_config__: ClassVar[Json] = _EXACTLY

    value: float
    unit: str
    device: str = field(metadata=doc("Hardware of the figure, which need not be the measured one"))
    settings: str = field(metadata=doc("Batch, precision and software, as far as published"))
    date: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Row:
    """Numbers of one benchmark. `bare_s` is a step of the loop written by hand."""

    __pydantic_config__: ClassVar[Json] = _EXACTLY

    id: str
    precision: str
    outcome: Outcome
    reason: str = ""
    step_time_s: float | None = None
    interval_s: tuple[float, float] | None = field(
        default=None, metadata=doc("Confidence interval of the median")
    )
    rate: float | None = None
    rate_unit: str = ""
    mfu: float | None = None
    peak_memory_bytes: float | None = None
    flags: tuple[str, ...] = ()
    bare_s: float | None = field(
        default=None, metadata=doc("Seconds of a step of a loop written by hand")
    )
    bands: tuple[Band, ...] = ()


@dataclass(frozen=True, kw_only=True)
class StageResult:
    """What came of a stage. `last_lines` are the end of the output of one that did not pass."""

    __pydantic_config__: ClassVar[Json] = _EXACTLY

    name: str
    outcome: StageOutcome
    reason: str = ""
    seconds: float = field(default=0.0, metadata={"ge": 0})
    limit_s: float = field(metadata={"ge": 0})
    criteria: tuple[Criterion, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    last_lines: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class GpuCheck:
    """A run of ``gpubench gpu-check``; `finished` is None while it lasts, and if it was killed.

    `unproven` are the statements that this run does not show, each with the reason.
    """

    __pydantic_config__: ClassVar[Json] = {**_EXACTLY, "title": "gpubench gpu-check"}

    schema_version: Literal[1] = 1
    part: Part | Literal["all"]
    budget_s: float = field(metadata={"gt": 0})
    started: str = field(metadata=doc("ISO 8601 in UTC"))
    finished: str | None = None
    device: Mapping[str, Any] | None = field(
        default=None, metadata=doc("Facts of the measured GPU; null if there is none")
    )
    versions: Mapping[str, str] = field(default_factory=dict)
    stages: tuple[StageResult, ...] = ()
    rows: tuple[Row, ...] = ()
    unproven: tuple[str, ...] = ()
