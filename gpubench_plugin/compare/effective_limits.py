"""Effective limits where base and head state different ones, and the head's changes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, Literal, TypeAlias, get_args

from gpubench_plugin.compare.comparability import names_or_count
from gpubench_plugin.compare.launch_values import join_names
from gpubench_plugin.compare.matched_metrics import Sides, judged_metrics
from gpubench_plugin.config.limits import Limit
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.core.records import Result

Side: TypeAlias = Literal["base", "head"]
SIDES: Final[tuple[Side, ...]] = get_args(Side)


class LimitResolver:
    """Resolves the limits of each benchmark and records the head's changes.

    `overrides`, by metric, outrank both sides; else those of `side` count, by default the base's:
    a head must not loosen the limits that it is judged by.

    Raises:
        UsageProblem: an override is no limit.
    """

    def __init__(self, overrides: Mapping[str, str], side: Side):
        for metric, text in overrides.items():
            Limit.parse(text, f"gate.limits.{metric}")
        self.overrides = overrides
        self._side = side
        self._changed: dict[tuple[str, Side], dict[str, None]] = {}
        self._until_accepted = False

    def resolve(self, sides: Sides) -> dict[str, str]:
        """Effective limits by metric, as text; a head's text may be invalid."""
        head = judged_metrics(*sides.measured, limits=self.overrides)
        if not sides.limit_sources:
            return head
        recorded_limits = judged_metrics(*sides.limit_sources, limits=self.overrides)
        base = _valid_only(recorded_limits)
        changes = [(change, self._side) for change in _changes(sides, base, head)]
        changes += [(addition, "head") for addition in _additions(sides, base, head)]
        for change in changes:
            self._changed.setdefault(change, {})[sides.id] = None
        self._until_accepted |= sides.limit_sources[-1].pinned
        if self._side == "head":
            return head
        return _base_limits(sides, base, head, unreadable=recorded_limits.keys() - base.keys())

    def explicit_metrics(self, sides: Sides) -> set[str]:
        """Metrics whose effective limit is stated explicitly by either side."""
        head = {*self.overrides, *_stated_by_head(sides)}
        if self._side == "head" or not sides.limit_sources:
            return head
        base = {name for r in sides.limit_sources for name in _valid_only(r.limits)}
        judged = _valid_only(judged_metrics(*sides.limit_sources, limits=self.overrides)).keys()
        return {*self.overrides, *base, *(head - judged)}

    @property
    def notes(self) -> Iterator[str]:
        """One line per change, with the benchmark or the number of benchmarks."""
        for (change, side), names in self._changed.items():
            until = " until `gpubench accept`" * (self._until_accepted and side == "base")
            yield f"the head {change} ({names_or_count([*names])}); the {side}'s counts{until}"


def _base_limits(
    sides: Sides, base: Mapping[str, str], head: Mapping[str, str], unreadable: Collection[str]
) -> dict[str, str]:
    """The base's limits, plus the head's for metrics that the base does not judge.

    A metric that the base has and does not judge is judged only where the head states a limit of
    it: the head's defaults replace no choice of the base's, but an `unreadable` limit is none.
    """
    stated = _stated_by_head(sides)
    base_metrics = _metrics(sides.limit_sources) - {*unreadable}
    head_metrics = _metrics(sides.measured)
    new = {n: t for n, t in head.items() if n in base or n in stated or n not in base_metrics}
    # An invalid limit of the head is reported as an error, not replaced by the base's.
    base_limits = {
        n: t for n, t in base.items() if n in head_metrics and (n not in head or _parsed(head[n]))
    }
    return {**new, **base_limits}


def _changes(sides: Sides, base: Mapping[str, str], head: Mapping[str, str]) -> Iterator[str]:
    """Describe the head's changes to limits of metrics that both sides have."""
    common = _metrics(sides.limit_sources) & _metrics(sides.measured)
    names_by_change: dict[tuple[str, str, str], list[str]] = {}
    for name in filter(common.__contains__, base):
        if name not in head:
            yield f"drops the limit {base[name]} of {name}"
        elif (limit := _parsed(head[name])) and (
            verb := _change_verb(Limit.parse(base[name], ""), limit)
        ):
            names_by_change.setdefault((verb, base[name], limit.text), []).append(name)
    for (verb, old_limit, new_limit), names in names_by_change.items():
        yield f"{verb} the limit of {join_names(names)} from {old_limit} to {new_limit}"


def _additions(sides: Sides, base: Mapping[str, str], head: Mapping[str, str]) -> Iterator[str]:
    """Describe limits the head adds for metrics that the base has but does not judge."""
    common = _metrics(sides.limit_sources) & _metrics(sides.measured)
    for name in sorted(common & _stated_by_head(sides) - base.keys()):
        if _parsed(head[name]):
            yield f"adds the limit {head[name]} of {name}, which has none on the base"


def _change_verb(old: Limit, new: Limit) -> str:
    """Verb for the change of a limit; empty if it is equal in other notation."""
    if old.kind != new.kind:
        return "changes"
    if old.bound == new.bound:
        return ""
    is_looser = new.bound < old.bound if new.kind == "at_least" else new.bound > old.bound
    return "loosens" if is_looser else "tightens"


def _stated_by_head(sides: Sides) -> set[str]:
    """Metrics with a limit stated by the head; its other limits are defaults."""
    return {name for r in sides.measured for name in r.limits}


def _metrics(results: Iterable[Result]) -> set[str]:
    return {name for r in results for name in r.metrics}


def _valid_only(texts: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in texts.items() if _parsed(text)}


def _parsed(text: str) -> Limit | None:
    """The parsed limit; None for invalid text."""
    try:
        return Limit.parse(text, "limit")
    except UsageProblem:
        return None
