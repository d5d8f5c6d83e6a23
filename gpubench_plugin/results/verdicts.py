"""The verdicts as a file: ``gpubench compare --format=json`` and a run's ``verdicts.json``.

The published schema is generated from the models here, and a test keeps it current::

    gpubench schema verdicts > docs/schemas/verdicts.schema.json
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError

from gpubench_plugin.environment import stored
from gpubench_plugin.errors import BrokenFile, ResultsError, UsageProblem
from gpubench_plugin.records import (
    Better,
    Difference,
    Json,
    Method,
    Part,
    Verdict,
    VerdictKind,
    is_regression,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from gpubench_plugin.records import Comparison

FORMAT: Final = stored.Format(what="file of verdicts", newest=1)
"""The version grows with every change; older files stay readable, newer ones are refused."""


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class PartVerdict(_Model):
    """What was found of one number of several that one verdict is about."""

    metric: str
    unit: str
    better: Better
    verdict: VerdictKind
    base: float | None
    head: float | None
    effect: float | None
    interval: tuple[float | None, float | None] | None
    limit: str

    def restored(self) -> Part:
        """The part that was written."""
        return Part(
            metric=self.metric,
            unit=self.unit,
            better=self.better,
            kind=self.verdict,
            base=self.base,
            head=self.head,
            effect=self.effect,
            interval=_unbounded(self.interval),
            limit=self.limit,
        )


class BenchmarkVerdict(_Model):
    """What was found of one metric of one benchmark; null where there is no such number."""

    id: str = Field(min_length=1, description="pytest's node id")
    metric: str = Field(description="Empty where the verdict is about the whole benchmark")
    unit: str = Field(description="Of base and head")
    better: Better = Field(description="The direction in which the metric gets better")
    base: float | None = Field(description="The value before, in the unit")
    head: float | None = Field(description="The value now, in the unit")
    verdict: VerdictKind
    effect: float | None = Field(description="A fraction, positive where the head is worse")
    interval: tuple[float | None, float | None] | None = Field(
        description="Of the effect, fractions; an end that is not bounded is null"
    )
    launches: NonNegativeInt = Field(description="Independent samples: pairs, earlier runs, or 1")
    smallest_visible_effect: float | None = Field(
        description="The least true effect that could have been called, a fraction"
    )
    pairs_needed: NonNegativeInt | None = Field(
        default=None, description="About how many pairs would decide it"
    )
    runs_needed: NonNegativeInt | None = Field(
        default=None, description="More earlier runs that a history needs before it can judge"
    )
    method: Method | None = Field(
        default=None, description="threshold is not statistical, exact has no variance"
    )
    limit: str = Field(default="", description="What it was judged by")
    reason: str = Field(description="Why, in one line")
    parts: list[PartVerdict] = Field(
        default=[], description="Of a step time: all numbers that it is judged by"
    )
    base_label: str = Field(default="", description="What it was compared with")
    head_label: str = Field(default="", description="What was judged")

    def restored(self) -> Verdict:
        """The verdict that was written."""
        return Verdict(
            id=self.id,
            metric=self.metric,
            unit=self.unit,
            better=self.better,
            kind=self.verdict,
            method=self.method,
            base=self.base,
            head=self.head,
            effect=self.effect,
            interval=_unbounded(self.interval),
            launches=self.launches,
            smallest_visible_effect=self.smallest_visible_effect,
            pairs_needed=self.pairs_needed,
            runs_needed=self.runs_needed,
            limit=self.limit,
            reason=self.reason,
            parts=tuple(part.restored() for part in self.parts),
        )


class EnvironmentDifference(_Model):
    """A fact that differs between base and head; null where one lacks it."""

    key: str
    base: Any
    head: Any
    head_label: str = ""


class VerdictDocument(_Model):
    """The verdicts of one head, or of several, against one base."""

    model_config = ConfigDict(title="gpubench verdicts")

    schema_version: Literal[1]
    base_label: str = ""
    head_labels: list[str] = []
    benchmarks: list[BenchmarkVerdict]
    environment_differences: list[EnvironmentDifference]
    notes: list[str] = []

    @property
    def regressed(self) -> tuple[str, ...]:
        """The benchmark of each verdict that keeps the run from being a sample."""
        return tuple(
            row.id
            for row in self.benchmarks
            if is_regression(row.verdict, row.method, base=self.base_label)
        )

    def verdicts_on(self, node_id: str) -> tuple[Verdict, ...]:
        """Those on one benchmark, of its metrics and of the whole."""
        return tuple(row.restored() for row in self.benchmarks if row.id == node_id)

    @property
    def differences(self) -> tuple[Difference, ...]:
        """The facts that differ between base and head."""
        return tuple(
            Difference(key=one.key, base=one.base, head=one.head)
            for one in self.environment_differences
        )


def document(comparisons: Sequence[Comparison]) -> Json:
    """The verdicts in JSON's own types."""
    return _model(comparisons).model_dump(mode="json")


def to_text(comparisons: Sequence[Comparison]) -> str:
    """The text of ``verdicts.json``: strict JSON in ASCII."""
    return json.dumps(document(comparisons), indent=2, allow_nan=False) + "\n"


def read(path: Path) -> VerdictDocument:
    """The verdicts at `path`.

    Raises:
        ResultsError: it cannot be read, is newer than this version knows, or breaks the schema.
    """
    try:
        fields = FORMAT.load(path)
    except BrokenFile:
        raise
    except UsageProblem as error:
        raise ResultsError(str(error)) from error
    try:
        return VerdictDocument.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise ResultsError(f"{path} breaks the schema at {where}: {first['msg']}") from error


def json_schema() -> Json:
    """The JSON Schema (draft 2020-12) of ``verdicts.json``."""
    return {"$schema": stored.SCHEMA_URL, **VerdictDocument.model_json_schema()}


def schema_text() -> str:
    """The text of the published schema."""
    return json.dumps(json_schema(), indent=2) + "\n"


def _model(comparisons: Sequence[Comparison]) -> VerdictDocument:
    return VerdictDocument(
        schema_version=1,
        base_label=_well_formed(comparisons[0].base) if comparisons else "",
        head_labels=[_well_formed(comparison.head) for comparison in comparisons],
        benchmarks=[
            _verdict(verdict, comparison)
            for comparison in comparisons
            for verdict in comparison.verdicts
        ],
        environment_differences=[
            EnvironmentDifference(
                key=_well_formed(difference.key),
                base=_plain(difference.base),
                head=_plain(difference.head),
                head_label=_well_formed(comparison.head),
            )
            for comparison in comparisons
            for difference in comparison.environment_differences
        ],
        notes=[_well_formed(note) for note in _once(comparisons)],
    )


def _once(comparisons: Iterable[Comparison]) -> dict[str, None]:
    return dict.fromkeys(note for comparison in comparisons for note in comparison.notes)


def _part(part: Part) -> PartVerdict:
    return PartVerdict(
        metric=_well_formed(part.metric),
        unit=_well_formed(part.unit),
        better=part.better,
        verdict=part.kind,
        base=_finite(part.base),
        head=_finite(part.head),
        effect=_finite(part.effect),
        interval=_ends(part.interval),
        limit=_well_formed(part.limit),
    )


def _ends(interval: tuple[float, float] | None) -> tuple[float | None, float | None] | None:
    return interval and (_finite(interval[0]), _finite(interval[1]))


def _unbounded(ends: tuple[float | None, float | None] | None) -> tuple[float, float] | None:
    """The interval that was written; an end that is not bounded is infinite."""
    if ends is None:
        return None
    low, high = ends
    return (-math.inf if low is None else low, math.inf if high is None else high)


def _verdict(verdict: Verdict, comparison: Comparison) -> BenchmarkVerdict:
    return BenchmarkVerdict(
        id=_well_formed(verdict.id),
        metric=_well_formed(verdict.metric),
        unit=_well_formed(verdict.unit),
        better=verdict.better,
        base=_finite(verdict.base),
        head=_finite(verdict.head),
        verdict=verdict.kind,
        effect=_finite(verdict.effect),
        interval=_ends(verdict.interval),
        launches=verdict.launches,
        smallest_visible_effect=_finite(verdict.smallest_visible_effect),
        pairs_needed=verdict.pairs_needed,
        runs_needed=verdict.runs_needed,
        method=verdict.method,
        limit=_well_formed(verdict.limit),
        reason=_well_formed(verdict.reason),
        parts=[_part(part) for part in verdict.parts],
        base_label=_well_formed(comparison.base),
        head_label=_well_formed(comparison.head),
    )


def _finite(number: float | None) -> float | None:
    """A number as a float, also one of numpy; none that JSON has no word for."""
    return float(number) if number is not None and math.isfinite(number) else None


def _plain(value: Any) -> Any:
    """`value`, which was read from JSON, without NaN and lone surrogates."""
    if isinstance(value, float):
        return _finite(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {_well_formed(str(key)): _plain(item) for key, item in value.items()}
    return value if value is None or isinstance(value, int) else _well_formed(str(value))


def _well_formed(text: str) -> str:
    """`text` with lone surrogates, which are no Unicode, written as escapes."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
