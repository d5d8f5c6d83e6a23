"""The lines of a journal, ``metrics.jsonl``, as models: for the published schema.

The schema is generated from the models here, and a test keeps it current::

    gpubench schema journal > docs/schemas/journal.schema.json

Every line is one JSON object. A reader takes the events it knows and passes over the others: new
ones come without a new version. A number that is not finite is null, and ``not_finite`` says which
it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    TypeAdapter,
)

from gpubench_plugin.environment import json_files, stored
from gpubench_plugin.records import Better, Outcome, RunStatus, Work
from gpubench_plugin.results.summary import UtcTime
from gpubench_plugin.results.verdicts import VerdictDocument

if TYPE_CHECKING:
    from gpubench_plugin.records import Json


class _Line(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True, allow_inf_nan=False)

    schema_version: Literal[1]
    time: UtcTime = Field(description="When it was written, in UTC")
    not_finite: dict[str, Literal["nan", "inf", "-inf"]] = Field(
        default={}, description="By JSON pointer, the numbers of this line that became null"
    )


class RunStarted(_Line):
    """The first line."""

    event: Literal["run_started"]
    run_id: str = Field(min_length=1)
    command: list[str] = Field(description="Arguments of pytest, without secrets")
    params: dict[str, dict[str, str]] = Field(
        default={}, description="Of every selected benchmark by node id, its parameters"
    )
    code: dict[str, str] | None = Field(
        default=None,
        description="Of every file of the code, relative to pytest's rootdir, what tells its "
        "contents from others; null in runs of versions that did not record it",
    )


class RunResumed(_Line):
    """The run goes on, in another session."""

    event: Literal["run_resumed"]
    run_id: str = Field(min_length=1)
    command: list[str]
    kept: NonNegativeInt = Field(description="Benchmarks that were measured before")


class RunFinished(_Line):
    """An orderly end; the summary is written after it."""

    event: Literal["run_finished"]
    status: RunStatus


class JournalMetric(BaseModel):
    """One number; null where it was not finite."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: str
    value: float | None
    unit: str
    better: Better


class Benchmark(_Line):
    """One benchmark's whole record with all its samples; of several lines the last counts."""

    event: Literal["benchmark"]
    id: str = Field(min_length=1, description="pytest's node id")
    name: str
    params: dict[str, str]
    world_size: PositiveInt
    launches: PositiveInt
    outcome: Outcome
    reason: str
    configuration: dict[str, Any]
    settings: dict[str, Any] = Field(
        default={}, description="Of it, by dot key, what is no default and changes numbers"
    )
    limits: dict[str, str] = {}
    timer: str = ""
    work: Work | None = Field(
        default=None, description="Of one call of the step, on all ranks together"
    )
    samples: dict[str, Any] | None = Field(description="Every duration, in seconds per call")
    metrics: dict[str, JournalMetric]
    flags: list[str]
    correctness: dict[str, Any]
    per_launch: list[dict[str, Any]] = []
    ranks: list[dict[str, Any]] = []


class Verdicts(_Line):
    """What a comparison with a baseline found; of several lines the last counts."""

    event: Literal["verdicts"]
    verdicts: VerdictDocument


class _Told(_Line):
    benchmark: str = Field(min_length=1, description="The node id of what it happened in")


class TrainingStep(_Told):
    """A step of the untimed check."""

    event: Literal["training_step"]
    step: NonNegativeInt
    loss: float | None


class Code(_Told):
    """Files of the code that the benchmark, or what ran before it, was the first to load."""

    event: Literal["code"]
    files: dict[str, str] = Field(
        description="Relative to pytest's rootdir, what tells the contents of each from others"
    )


class Flops(_Told):
    """What was counted of one call of the step."""

    event: Literal["flops"]
    per_call: float
    uncounted_ops: list[str] | dict[str, Any] = Field(description="Operations without a formula")


class Traffic(_Told):
    """What the ranks told each other while they measured."""

    event: Literal["traffic"]


KNOWN: Final = frozenset(
    {
        "run_started",
        "run_resumed",
        "run_finished",
        "benchmark",
        "verdicts",
        "training_step",
        "code",
        "flops",
        "traffic",
    }
)
"""Events with a model of their own."""


def _another(event: str) -> str:
    if event in KNOWN:
        raise ValueError(f"{event!r} has a form of its own")
    return event


class OtherEvent(_Line):
    """Any other event: its fields are its own."""

    event: Annotated[
        str,
        AfterValidator(_another),
        Field(min_length=1, json_schema_extra={"not": {"enum": sorted(KNOWN)}}),
    ]


Line = (
    RunStarted
    | RunResumed
    | RunFinished
    | Benchmark
    | Verdicts
    | TrainingStep
    | Code
    | Flops
    | Traffic
    | OtherEvent
)


def json_schema() -> Json:
    """The JSON Schema (draft 2020-12) of one line."""
    adapter: TypeAdapter[Line] = TypeAdapter(Line)
    return {"$schema": stored.SCHEMA_URL, "title": "gpubench journal line", **adapter.json_schema()}


def schema_text() -> str:
    """The text of the published schema."""
    return json_files.text(json_schema(), indent=2) + "\n"
