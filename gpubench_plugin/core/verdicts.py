"""Verdicts: what comparisons say, as records in the form of :mod:`gpubench_plugin.core.records`."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf
from typing import Annotated, Any, ClassVar, Final, Literal, get_args

from gpubench_plugin.core.records import Better, Json, doc

VerdictKind = Literal[
    "regressed",
    "errored",
    "improved",
    "inconclusive",
    "unchanged",
    "no_baseline",
    "new",
    "removed",
    "incomparable",
    "not_measured",
]
VERDICT_KINDS: Final[tuple[VerdictKind, ...]] = get_args(VerdictKind)
"""Most important first. ``no_baseline``: none, or too few runs of one; ``new``: not in the base;
``removed``: only there; ``errored``: failed, misconfigured, crashed, hung or out of memory;
``not_measured``: did not run."""

COMPARED: Final[frozenset[VerdictKind]] = frozenset(
    {"improved", "unchanged", "regressed", "inconclusive"}
)
"""Verdicts of comparisons of two numbers, or of a number with a fixed bound."""

Method = Literal["paired", "history", "threshold", "exact", "absolute"]
"""Method of a verdict. ``threshold`` is not statistical; ``exact`` is for metrics without variance;
``absolute`` compares with a fixed bound instead of a baseline."""

MAIN: Final = "main"
"""The branch whose history is shown, if it has runs."""

LAST: Final = "last"
"""Name of the last comparable run in ``--baseline``; no baseline may have it."""


def is_regression(kind: str, method: str | None, *, base: str) -> bool:
    """Whether a verdict excludes its run from the samples of later ones; `base` is a label.

    A threshold against the last run does not: two runs of the same code exceed it often enough, and
    a history without its slower half would judge all others slow.
    """
    return kind == "regressed" and not (method == "threshold" and base == LAST)


class _Unbounded:
    """pydantic schema of an interval: JSON has no infinity, so that an unbounded end is null.

    https://docs.pydantic.dev/latest/concepts/types/#customizing-validation-with-__get_pydantic_core_schema__
    """

    @staticmethod
    def __get_pydantic_core_schema__(source: object, handler: Any) -> Any:
        from pydantic_core import core_schema

        def bounded(ends: tuple[float | None, float | None]) -> tuple[float, float]:
            low, high = ends
            return (-inf if low is None else low, inf if high is None else high)

        ends = handler.generate_schema(tuple[float | None, float | None])
        return core_schema.no_info_after_validator_function(bounded, ends)


Interval = Annotated[tuple[float, float], _Unbounded]


@dataclass(frozen=True, kw_only=True)
class VerdictPart:
    """Comparison of one number, which may be one of several of a verdict.

    `effect` and `interval` are fractions, positive if the head is worse: head/base − 1 if lower is
    better, 1 − head/base if higher is. `limit` is the text of the limit.
    """

    __pydantic_config__: ClassVar[Json] = {"allow_inf_nan": False}

    metric: str = field(
        default="", metadata=doc("Empty if the verdict is about the whole benchmark")
    )
    unit: str = field(default="", metadata=doc("Unit of base and head"))
    better: Better = field(default="none", metadata=doc("Direction of improvement"))
    kind: VerdictKind = field(metadata={"alias": "verdict"})
    base: float | None = field(default=None, metadata=doc("Base value in the unit"))
    head: float | None = field(default=None, metadata=doc("Head value in the unit"))
    effect: float | None = field(
        default=None, metadata=doc("Fraction, positive if the head is worse")
    )
    interval: Interval | None = field(
        default=None,
        metadata=doc("Confidence interval of the effect as fractions; an unbounded end is null"),
    )
    limit: str = field(default="", metadata=doc("Limit it was judged by"))
    doubts: str = field(default="", metadata=doc("Doubts that touch the numbers, by side"))


@dataclass(frozen=True, kw_only=True)
class Verdict(VerdictPart):
    """Verdict on one metric of a benchmark, or on its step time as a whole.

    The step time is judged by several metrics, its `parts`; the verdict's own numbers are those of
    the deciding one.
    """

    id: str = field(metadata=doc("pytest's node id", min_length=1))
    method: Method | None = field(
        default=None, metadata=doc("threshold: not statistical; exact: values without variance")
    )
    launches: int = field(
        default=0, metadata=doc("Independent samples: pairs, earlier runs, or 1", ge=0)
    )
    smallest_visible_effect: float | None = field(
        default=None,
        metadata=doc("Smallest true effect that would have been detected, as a fraction"),
    )
    pairs_needed: int | None = field(
        default=None, metadata=doc("Estimated number of pairs for a decision", ge=0)
    )
    runs_needed: int | None = field(
        default=None, metadata=doc("Number of further earlier runs required for a history", ge=0)
    )
    reason: str = field(default="", metadata=doc("Reason in one line"))
    parts: tuple[VerdictPart, ...] = field(
        default=(), metadata=doc("For a step time: all metrics it is judged by")
    )

    @property
    def changed_metrics(self) -> tuple[str, ...]:
        """Metrics of the parts that have the verdict's kind, or its only metric."""
        return tuple(part.metric for part in self.parts if part.kind == self.kind) or (self.metric,)

    @property
    def is_unchecked(self) -> bool:
        """Whether the limit could not be checked, since the metric is missing or unusable.

        One that is incomparable has a `limit` only where the base or the caller states it.
        """
        is_escaped = self.kind == "incomparable" and bool(self.limit)
        return bool(self.metric) and (self.kind in {"not_measured", "errored"} or is_escaped)


@dataclass(frozen=True, kw_only=True)
class FactDifference:
    """Fact by dot key that differs between base and head; None on a side without it."""

    key: str
    base: Any
    head: Any


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Verdicts of one head against one base, one per benchmark and metric, in the head's order.

    `notes` are lines printed above the verdicts, `measured` the benchmarks that the base measured.
    """

    base: str
    head: str
    verdicts: tuple[Verdict, ...] = ()
    environment_differences: tuple[FactDifference, ...] = ()
    notes: tuple[str, ...] = ()
    measured: frozenset[str] = frozenset()

    def count(self, kind: VerdictKind) -> int:
        """Number of verdicts of that kind."""
        return sum(verdict.kind == kind for verdict in self.verdicts)

    @property
    def all_incomparable(self) -> bool:
        """Whether benchmarks are shared but all incomparable, fixed bounds left out."""
        kinds = {verdict.kind for verdict in self.verdicts if verdict.method != "absolute"}
        return "incomparable" in kinds and kinds.isdisjoint(COMPARED)
