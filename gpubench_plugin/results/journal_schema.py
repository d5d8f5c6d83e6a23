"""Journal schema: the lines of ``metrics.jsonl`` as records.

The published schema is generated from them, and a test keeps it current::

    gpubench schema journal > docs/schemas/journal.schema.json

Every line is one JSON object. Readers ignore unknown events: new ones need no new version.
Non-finite numbers are null, and listed under ``not_finite``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, make_dataclass
from typing import Annotated, Any, ClassVar, Final, Literal, Union

from pydantic import Field

from gpubench_plugin.core.events import Event
from gpubench_plugin.core.records import UTC_TIME, BenchmarkRecord, Better, RunStatus, doc
from gpubench_plugin.results.verdicts import VerdictDocument

_OPEN: Final = {"extra": "allow", "allow_inf_nan": False}


@dataclass(frozen=True, kw_only=True)
class _Line:
    __pydantic_config__: ClassVar = _OPEN

    schema_version: Literal[1]
    time: str = field(metadata=doc("UTC time of the event", pattern=UTC_TIME))
    not_finite: Mapping[str, Literal["nan", "inf", "-inf"]] = field(
        default_factory=dict,
        metadata=doc("Non-finite numbers of this line, which are stored as null, by JSON pointer"),
    )


@dataclass(frozen=True, kw_only=True)
class RunStarted(_Line):
    """First line of a run."""

    event: Literal["run_started"]
    run_id: str = field(metadata={"min_length": 1})
    command: tuple[str, ...] = field(metadata=doc("Arguments of pytest, without secrets"))
    code: Mapping[str, str] = field(
        metadata=doc("Content hash of every code file, as seen from pytest's rootdir")
    )
    params: Mapping[str, Mapping[str, str]] = field(
        metadata=doc("Parameters of every selected benchmark, by node id")
    )


@dataclass(frozen=True, kw_only=True)
class RunResumed(_Line):
    """Continuation of the run in another session."""

    event: Literal["run_resumed"]
    run_id: str = field(metadata={"min_length": 1})
    command: tuple[str, ...]
    kept: int = field(metadata=doc("Number of benchmarks measured before", ge=0))


@dataclass(frozen=True, kw_only=True)
class RunFinished(_Line):
    """Orderly end; the summary is written afterwards."""

    event: Literal["run_finished"]
    status: RunStatus


@dataclass(frozen=True, kw_only=True)
class JournalMetric:
    """A metric; the value is null if it was not finite."""

    __pydantic_config__: ClassVar = _OPEN

    name: str
    value: float | None
    unit: str
    better: Better


@dataclass(frozen=True, kw_only=True)
class BenchmarkEvent(_Line, BenchmarkRecord):
    """Complete record of a benchmark with all samples; the last line wins."""

    event: Literal["benchmark"]
    samples: Mapping[str, Any] | None = field(metadata=doc("Every duration, in seconds per call"))
    metrics: Mapping[str, JournalMetric]
    per_launch: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, kw_only=True)
class VerdictsEvent(_Line):
    """Verdicts of a comparison with a baseline; the last line wins."""

    event: Literal["verdicts"]
    verdicts: VerdictDocument


@dataclass(frozen=True, kw_only=True)
class _BenchmarkLine(_Line):
    benchmark: str = field(metadata=doc("Node id of the benchmark", min_length=1))
    launch: int | None = field(
        default=None, metadata=doc("Number of the launch, of several (--launches)", ge=1)
    )


def _line_of(event: type[Event]) -> type[_Line]:
    """Line with an `event`: its fields, and those of every line of a benchmark."""
    return make_dataclass(
        event.__name__,
        [("event", Literal[event.kind])],
        bases=(event, _BenchmarkLine),
        namespace={"__doc__": event.__doc__, "__module__": __name__},
        frozen=True,
        kw_only=True,
    )


LINES: Final[Mapping[str, type[_Line]]] = {
    "run_started": RunStarted,
    "run_resumed": RunResumed,
    "run_finished": RunFinished,
    "benchmark": BenchmarkEvent,
    "verdicts": VerdictsEvent,
    **{event.kind: _line_of(event) for event in Event.__subclasses__()},
}
"""Form of the lines by their event."""


@dataclass(frozen=True, kw_only=True)
class OtherEvent(_Line):
    """Any other event, with arbitrary fields."""

    event: Annotated[str, Field(min_length=1, json_schema_extra={"not": {"enum": sorted(LINES)}})]


Line: Any = Annotated[
    Union[(*LINES.values(), OtherEvent)],  # computed
    Field(title="gpubench journal line"),
]
