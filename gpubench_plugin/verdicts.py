"""What a comparison finds: one verdict per benchmark and metric, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from gpubench_plugin.records import Better

VerdictKind = Literal[
    "improved",
    "unchanged",
    "regressed",
    "inconclusive",
    "no_baseline",
    "new",
    "removed",
    "incomparable",
    "errored",
    "not_measured",
]
VERDICT_KINDS: Final[tuple[VerdictKind, ...]] = get_args(VerdictKind)
"""In words: ``no_baseline``: nothing to compare with at all, or too little of it; ``new``: the
baseline has no such benchmark; ``removed``: only the baseline has it; ``errored``: it failed,
crashed, hung or ran out of memory; ``not_measured``: it did not run."""

MISSING: Final[frozenset[VerdictKind]] = frozenset({"no_baseline", "new", "incomparable"})
"""What ``--gate-missing`` decides about."""

Method = Literal["paired", "history", "threshold", "exact", "absolute"]
"""How a verdict was found. ``threshold`` is not statistical; ``exact`` is for metrics without any
variance; ``absolute`` compares with a fixed bound instead of a baseline."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What was found of one metric of one benchmark.

    `effect` and `interval` are fractions, positive where the head is slower or worse: head/base − 1
    for a metric that should be low, 1 − head/base for one that should be high. `launches` counts
    the independent samples the verdict rests on: pairs, earlier runs, or 1.
    `smallest_visible_effect` is the least true effect that could have been called, a fraction.
    `limit` is the text of the limit. `reason` says why in one line. `pairs_needed` estimates how
    many pairs would decide it. `metric` is empty where the verdict is about the whole benchmark.
    """

    id: str
    metric: str = ""
    unit: str = ""
    better: Better = "none"
    kind: VerdictKind
    method: Method | None = None
    base: float | None = None
    head: float | None = None
    effect: float | None = None
    interval: tuple[float, float] | None = None
    launches: int = 0
    smallest_visible_effect: float | None = None
    pairs_needed: int | None = None
    limit: str = ""
    reason: str = ""

    @property
    def unchecked(self) -> bool:
        """Whether the metric was not measured or allows no judgement: nobody checked its limit."""
        return self.kind in {"not_measured", "errored"} and bool(self.metric)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A fact by its dot key that differs between base and head; None where one lacks it."""

    key: str
    base: Any
    head: Any


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The verdicts of one head against one base, in the order of the head's benchmarks.

    `notes` are lines that stand above the verdicts, that incomparable runs were compared for
    example.
    """

    base: str
    head: str
    verdicts: tuple[Verdict, ...] = ()
    environment_differences: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()

    def count(self, kind: VerdictKind) -> int:
        """How many verdicts are of that kind."""
        return sum(verdict.kind == kind for verdict in self.verdicts)
