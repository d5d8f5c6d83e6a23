"""``summary.json`` and ``summary.csv``: what a run was and what it found.

``summary.json`` is written last, and validated before. The published schema is generated from the
models here, and a test keeps it current::

    gpubench schema > docs/schemas/summary.schema.json
"""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    StringConstraints,
    ValidationError,
    model_validator,
)

from gpubench_plugin.environment import csv_text, json_files, redacted_command, stored
from gpubench_plugin.errors import ResultsError, UsageProblem
from gpubench_plugin.flags import doubts, notes
from gpubench_plugin.records import Better, Outcome, RunStatus

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from gpubench_plugin.environment import Cell
    from gpubench_plugin.records import Json, Measurement, Metric, RunRecord, Work


FORMAT: Final = stored.Format(what="summary of gpubench", newest=3, limit=json_files.LIMIT_BYTES)
"""The version grows with every change; older files stay readable, newer ones are refused."""

UtcTime = Annotated[
    str, StringConstraints(pattern=r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)$")
]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class SummaryMetric(_Model):
    """One number with its unit and the direction in which it gets better."""

    value: float
    unit: str
    better: Better


class SummaryRank(_Model):
    """The times of one rank of several, in seconds per call but for the last."""

    rank: NonNegativeInt
    host: str
    count: NonNegativeInt = Field(description="Durations timed")
    min_s: float
    p5_s: float | None
    median_s: float = Field(description="Median of the rounds")
    p95_s: float | None
    p99_s: float | None
    max_s: float
    total_s: float = Field(description="Length of all timed blocks")


class SummaryWork(_Model):
    """Amounts of work; null what nobody stated or counted."""

    samples: float | None = None
    tokens: float | None = None
    bytes: float | None = None
    flops: float | None = Field(
        default=None, description="A multiplication and an addition counting as two"
    )


class SummaryBenchmark(_Model):
    """One benchmark. Only the outcome ``measured`` carries metrics."""

    model_config = ConfigDict(
        json_schema_extra={
            "if": {"properties": {"outcome": {"not": {"const": "measured"}}}},
            "then": {"properties": {"metrics": {"maxProperties": 0}}},
        }
    )

    id: str = Field(min_length=1, description="pytest's node id")
    name: str = Field(description="The test function's name with its parameters")
    params: dict[str, str] = Field(description="Parameters by name")
    world_size: PositiveInt = Field(description="Ranks that worked together")
    launches: PositiveInt = Field(description="Fresh processes measured in")
    outcome: Outcome
    reason: str = Field(description="Why it was not measured; empty for measured ones")
    configuration: dict[str, Any] = Field(description="The resolved configuration")
    settings: dict[str, Any] | None = Field(
        default=None, description="Of it, by dot key, what is no default and changes numbers"
    )
    limits: dict[str, str] = Field(default={}, description="What the gate judges metrics by")
    timer: str = Field(default="", description="The clock")
    work: SummaryWork | None = Field(
        default=None, description="Of one call of the step, on all ranks together"
    )
    metrics: dict[str, SummaryMetric] = Field(description="Numbers by name")
    per_launch: list[dict[str, float]] = Field(
        default=[], description="The numbers of each launch of fresh processes, of several"
    )
    ranks: list[SummaryRank] = Field(default=[], description="Each rank, where there are several")
    slowest_rank: NonNegativeInt | None = Field(
        default=None, description="The rank with the longest median round"
    )
    flags: list[str] = Field(description="What makes the numbers less trustworthy")
    correctness: dict[str, Any] = Field(description="What the untimed checks found")

    @model_validator(mode="after")
    def _only_measured_carries_numbers(self) -> Self:
        if self.metrics and self.outcome != "measured":
            raise ValueError(f"metrics with the outcome {self.outcome!r}")
        return self


class Summary(_Model):
    """One run. Its presence means an orderly end; `status` says which."""

    model_config = ConfigDict(title="gpubench summary")

    schema_version: Literal[1, 2, 3]
    run_id: str = Field(min_length=1)
    experiment: str
    status: RunStatus
    started: UtcTime = Field(description="ISO 8601 in UTC")
    resumed: list[UtcTime] = Field(default=[], description="When the run went on, in UTC")
    finished: UtcTime = Field(description="ISO 8601 in UTC")
    command: list[str] = Field(description="Arguments of pytest, without secrets")
    environment: dict[str, Any] = Field(description="Facts of system.json")
    benchmarks: list[SummaryBenchmark]


def summary_of(run: RunRecord) -> Summary:
    """The validated summary of `run`.

    A metric that is not finite is left out and the benchmark flagged ``not_finite:<name>``: one
    benchmark never costs the others their summary.

    Raises:
        ResultsError: the record breaks the schema, and where.
    """
    fields = json_files.plain(
        {
            "schema_version": FORMAT.newest,
            "run_id": run.run_id,
            "experiment": run.experiment,
            "status": run.status,
            "started": run.started,
            "resumed": run.resumed,
            "finished": run.finished,
            "command": redacted_command(run.command),
            "environment": run.environment,
            "benchmarks": [_benchmark(measurement) for measurement in run.benchmarks],
        }
    )
    return _validated(fields, f"the summary of {run.run_id}")


def to_json_text(summary: Summary) -> str:
    """The text of ``summary.json``."""
    return json_files.text(summary.model_dump(mode="json"), indent=2) + "\n"


def write_summary(path: Path, run: RunRecord) -> Summary:
    """Write the summary of `run` to `path`, whole or not at all.

    Raises:
        ResultsError: the record breaks the schema, or the file could not be written.
    """
    summary = summary_of(run)
    json_files.write_text(path, to_json_text(summary))
    return summary


def read_summary(path: Path) -> Summary:
    """The summary at `path`.

    Raises:
        ResultsError: it cannot be read, is newer than this version knows, or breaks the schema.
    """
    try:
        fields = json_files.load(path)
    except UsageProblem as error:
        raise ResultsError(str(error)) from error
    return parsed(fields, str(path))


def parsed(fields: object, where: str) -> Summary:
    """The summary that the file called `where` holds, read from its JSON.

    Raises:
        ResultsError: it is newer than this version knows, or breaks the schema.
    """
    return _validated(FORMAT.checked(fields, where), where)


def json_schema() -> Json:
    """The JSON Schema (draft 2020-12) of ``summary.json``."""
    return {"$schema": stored.SCHEMA_URL, **Summary.model_json_schema()}


def schema_text() -> str:
    """The text of the published schema."""
    return json_files.text(json_schema(), indent=2) + "\n"


def _benchmark(measurement: Measurement) -> Json:
    finite = {n: m for n, m in measurement.metrics.items() if math.isfinite(m.value)}
    lost = tuple(f"not_finite:{n}" for n in measurement.metrics if n not in finite)
    return {
        "id": measurement.id,
        "name": measurement.name,
        "params": measurement.params,
        "world_size": measurement.world_size,
        "launches": measurement.launches,
        "outcome": measurement.outcome,
        "reason": measurement.reason,
        "configuration": measurement.configuration,
        "settings": measurement.settings,
        "limits": measurement.limits,
        "timer": measurement.timer,
        "work": measurement.work and _floats(measurement.work),
        "metrics": {name: _metric(asdict(metric)) for name, metric in finite.items()},
        "per_launch": [_finite_values(launch.metrics) for launch in measurement.per_launch],
        "ranks": [asdict(rank) for rank in measurement.ranks],
        "slowest_rank": measurement.slowest_rank and measurement.slowest_rank.rank,
        "flags": (*measurement.flags, *lost),
        "correctness": measurement.correctness,
    }


def _floats(work: Work) -> dict[str, float]:
    return {name: float(amount) for name, amount in work.known.items()}


def _finite_values(metrics: Mapping[str, Metric]) -> dict[str, float]:
    return {name: float(m.value) for name, m in metrics.items() if math.isfinite(m.value)}


def _metric(fields: Json) -> Json:
    return {"value": float(fields["value"]), "unit": fields["unit"], "better": fields["better"]}


def _validated(fields: Json, what: str) -> Summary:
    try:
        return Summary.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        message = f"{what} breaks the schema at {where}: {first['msg']}"
        raise ResultsError(message) from error


def table_text(measurements: Sequence[Measurement]) -> str:
    """The text of ``summary.csv``: one row per benchmark, for a spreadsheet.

    Columns: id, name, outcome, reason, world_size, one ``params.<name>`` per parameter, one per
    metric, doubts and notes (the flags, with semicolons between). A cell is empty where a
    benchmark lacks the value. Numbers are in the metrics' own units and round-trip exactly.

    Texts are as :func:`csv_text` writes them, in ``summary.json`` as they are.
    """
    params = _in_order(name for m in measurements for name in m.params)
    metrics = _in_order(name for m in measurements for name in m.metrics)
    fixed = ["id", "name", "outcome", "reason", "world_size"]
    titles = [*fixed, *(f"params.{name}" for name in params), *metrics, "doubts", "notes"]
    return csv_text([titles, *(_row(one, params, metrics) for one in measurements)])


def _row(measurement: Measurement, params: Iterable[str], metrics: Iterable[str]) -> Iterator[Cell]:
    yield from (measurement.id, measurement.name, measurement.outcome, measurement.reason)
    yield measurement.world_size
    for name in params:
        yield measurement.params.get(name)
    for name in metrics:
        metric = measurement.metrics.get(name)
        yield metric.value if metric and math.isfinite(metric.value) else None
    yield ";".join(doubts(measurement.flags))
    yield ";".join(notes(measurement.flags))


def _in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Each of `names` once, in the order of first appearance."""
    return tuple(dict.fromkeys(names))
