"""``summary.json``: final summary of a run, written last.

The published schema is generated from the records, and a test keeps it current::

    gpubench schema summary > docs/schemas/summary.schema.json
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final, Literal

from gpubench_plugin.core.records import (
    BenchmarkRecord,
    Better,
    Json,
    Measurement,
    RunFacts,
    RunRecord,
    doc,
)
from gpubench_plugin.system import json_files, stored

FORMAT: Final = stored.Format(kind="gpubench summary", newest=1, limit=json_files.LIMIT_BYTES)

_FINITE: Final[Json] = {"allow_inf_nan": False}  # a key that is not known is a later version's


@dataclass(frozen=True, kw_only=True)
class SummaryMetric:
    """A number with its unit and better direction."""

    __pydantic_config__: ClassVar[Json] = _FINITE

    value: float
    unit: str
    better: Better


@dataclass(frozen=True, kw_only=True)
class SummaryBenchmark(BenchmarkRecord):
    """One benchmark; only outcome ``measured`` has metrics."""

    __pydantic_config__: ClassVar[Json] = _FINITE

    metrics: Mapping[str, SummaryMetric] = field(metadata=doc("Metrics by name"))
    per_launch: tuple[Mapping[str, float], ...] = field(
        default=(), metadata=doc("Metrics of each launch, for several launches")
    )
    slowest_rank: int | None = field(
        default=None, metadata=doc("The rank with the longest median round", ge=0)
    )


@dataclass(frozen=True, kw_only=True)
class Summary(RunFacts):
    """One run, written at its orderly end with the final `status`."""

    __pydantic_config__: ClassVar[Json] = {**_FINITE, "title": "gpubench summary"}

    schema_version: Literal[1]
    benchmarks: tuple[SummaryBenchmark, ...]


def write_summary(path: Path, run: RunRecord) -> None:
    """Write the summary of `run` to `path` atomically; raises ResultsError."""
    json_files.write_json(path, document_of(run))


def document_of(run: RunRecord) -> Json:
    """The summary of `run`; non-finite metrics are omitted and flagged ``not_finite:<name>``."""
    facts = {name: value for name, value in vars(run).items() if name != "events"}
    return {
        "schema_version": FORMAT.newest,
        **facts,
        "benchmarks": [fields_of(measurement) for measurement in run.benchmarks],
    }


def parse(fields: object, label: str) -> Summary:
    """Validate parsed JSON as a summary, called `label` in messages; raises BrokenFile."""
    return stored.restore(Summary, FORMAT.check(fields, label), label, strict=True)


def fields_of(measurement: Measurement) -> Json:
    """Summary entry of a benchmark: its record without samples and non-finite numbers."""
    finite = measurement.finite().without_samples()
    record = stored.dump(finite)
    del record["samples"]
    return {
        **record,
        "metrics": {
            name: {"value": float(metric.value), "unit": metric.unit, "better": metric.better}
            for name, metric in finite.metrics.items()
        },
        "per_launch": [
            {name: float(metric.value) for name, metric in launch.metrics.items()}
            for launch in finite.per_launch
        ],
        "slowest_rank": finite.slowest_rank and finite.slowest_rank.rank,
    }
