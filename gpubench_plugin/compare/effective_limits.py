"""Limits that apply where base and head state different ones, and notes on the head's changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, Literal, TypeAlias, get_args

from gpubench_plugin.compare.comparability import names_or_count
from gpubench_plugin.compare.matched_metrics import Sides, judged_metrics, parsed_limit, rate_of
from gpubench_plugin.config.limits import Limit
from gpubench_plugin.core.records import Result

SideName: TypeAlias = Literal["base", "head"]
SIDES: Final[tuple[SideName, ...]] = get_args(SideName)


class LimitResolver:
    """Resolves the limits of each benchmark and records the head's changes.

    `overrides`, by metric, outrank both sides; else those of `side` count, by default the base's:
    a head must not loosen the limits that it is judged by. `default`, unless empty, replaces all
    limits that the sides state or have by default.

    Raises:
        UsageProblem: an override is no limit.
    """

    def __init__(self, overrides: Mapping[str, str], side: SideName, default: str = ""):
        for metric, text in overrides.items():
            Limit.parse(text, f"gate.limits.{metric}")
        self.overrides = overrides
        self._side = side
        self._default = default
        self._ids_by_change: dict[tuple[str, SideName], dict[str, None]] = {}
        self._until_accepted = False

    def resolve(self, sides: Sides) -> tuple[dict[str, str], set[str], set[str]]:
        """Limits by metric, as text, which may be invalid; and the metrics of which one is stated.

        Last come those that the base has and of which it or the caller states one: the head must
        not escape it. The base's count, and the head's of metrics that the base does not have or
        judge: of one that it has and does not judge only a stated limit of the head, since the
        head's defaults replace no choice of the base's. An invalid limit of the base is none; one
        of the head is reported as an error.
        """
        measured = [self._limited(result) for result in sides.measured]
        sources = [self._limited(result) for result in sides.limit_sources]
        head = judged_metrics(*measured, limits=self.overrides)
        stated = {*self.overrides, *_stated(measured)}
        required = self.overrides.keys() & _measured(sides.bases)
        if not sources:
            return head, stated, required
        recorded = judged_metrics(*sources, limits=self.overrides)
        base = {name: text for name, text in recorded.items() if parsed_limit(text)}
        stated_by_base = _stated(sources) & base.keys()
        for change in _changes(sides, base, head, self._side):
            self._ids_by_change.setdefault(change, {})[sides.id] = None
        self._until_accepted |= sides.limit_sources[-1].pinned
        if self._side == "head":
            return head, stated, required
        required |= _stated(sides.limit_sources) & base.keys() & _measured(sources)
        base_metrics = _measured(sources) - (recorded.keys() - base.keys())
        limits = {
            name: text
            for name, text in head.items()
            if name in base or name in stated or name not in base_metrics
        }
        kept = required | _measured(sides.measured)
        limits |= {
            name: text
            for name, text in base.items()
            if name in kept and (name not in head or parsed_limit(head[name]))
        }
        return limits, {*self.overrides, *stated_by_base, *(stated - base.keys())}, required

    def _limited(self, result: Result) -> Result:
        """With the default limit of all judged metrics but throughput, which follows the time's."""
        if not self._default:
            return result
        metrics = result.metrics.keys()
        rates = {rate_of(metrics), rate_of(metrics - result.limits.keys())}
        judged = [metric for metric in judged_metrics(result) if metric not in rates]
        return replace(result, limits=dict.fromkeys(judged, self._default))

    @property
    def notes(self) -> Iterator[str]:
        """One line per change, with the benchmark or the number of benchmarks."""
        for (change, side), ids in self._ids_by_change.items():
            until = " until `gpubench accept`" * (self._until_accepted and side == "base")
            yield f"the head {change} ({names_or_count([*ids])}); the {side}'s counts{until}"


def _changes(
    sides: Sides, base: Mapping[str, str], head: Mapping[str, str], side: SideName
) -> Iterator[tuple[str, SideName]]:
    """Changes of limits of the base's metrics, each with the side whose limit counts."""
    head_metrics = _measured(sides.measured) | _stated(sides.limit_sources)
    metrics = _measured(sides.limit_sources) & head_metrics
    added = sorted(_stated(sides.measured) - base.keys())
    names_by_change: dict[tuple[str, str, SideName], list[str]] = {}
    for name in filter(metrics.__contains__, (*base, *added)):
        old, new = parsed_limit(base.get(name, "")), parsed_limit(head.get(name, ""))
        is_invalid = name in head and new is None  # which is reported as an error
        if not is_invalid and old != new:
            change = base.get(name, "none"), new.text if new else "none"
            counting: SideName = side if name in base else "head"
            names_by_change.setdefault((*change, counting), []).append(name)
    for (before, now, counting), names in names_by_change.items():
        yield f"changes the limit of {', '.join(names)} from {before} to {now}", counting


def _stated(results: Iterable[Result]) -> set[str]:
    """Metrics with a stated limit; all other limits are defaults."""
    return {name for r in results for name in r.limits}


def _measured(results: Iterable[Result]) -> set[str]:
    return {name for r in results for name in r.metrics}
