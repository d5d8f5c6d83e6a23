"""The limits that count where base and head state different ones, and what a head changes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, Literal, TypeAlias, get_args

from gpubench_plugin.compare.comparability import several
from gpubench_plugin.compare.matched_metrics import Sides, gated
from gpubench_plugin.compare.series import enumerated
from gpubench_plugin.config import Limit
from gpubench_plugin.errors import UsageProblem
from gpubench_plugin.records import Result

Side: TypeAlias = Literal["base", "head"]
SIDES: Final[tuple[Side, ...]] = get_args(Side)


class Limits:
    """Chooses the limits of one benchmark after the other, and keeps notes of what heads change.

    A head that set its own limits would judge itself: so the base's count.

    Args:
        given: by metric, for every benchmark; they outrank those of both sides.
        side: whose limits count otherwise.

    Raises:
        UsageProblem: a text of `given` is no limit.
    """

    def __init__(self, given: Mapping[str, str], side: Side):
        for metric, text in given.items():
            Limit.parse(text, f"gate.limits.{metric}")
        self.given = given
        self._side = side
        self._changed: dict[tuple[str, Side], dict[str, None]] = {}
        self._until_accepted = False

    def of(self, sides: Sides) -> dict[str, str]:
        """The texts of the limits by metric; those that a head states may be none."""
        head = gated(*sides.measured, limits=self.given)
        if not sides.limiting:
            return head
        recorded = gated(*sides.limiting, limits=self.given)
        base = _valid(recorded)
        for change in _changes(sides, base, head):
            self._changed.setdefault((change, self._side), {})[sides.id] = None
        for addition in _additions(sides, base, head):
            self._changed.setdefault((addition, "head"), {})[sides.id] = None
        self._until_accepted |= sides.limiting[-1].pinned
        if self._side == "head":
            return head
        unreadable = recorded.keys() - base.keys()
        return _of_base(sides, base, head, unreadable)

    def stated(self, sides: Sides) -> set[str]:
        """The metrics whose limits that count are no defaults, whoever states them."""
        head = {*self.given, *_stated(sides)}
        if self._side == "head" or not sides.limiting:
            return head
        base = {name for one in sides.limiting for name in _valid(one.limits)}
        judged = _valid(gated(*sides.limiting, limits=self.given)).keys()
        return {*self.given, *base, *(head - judged)}

    @property
    def notes(self) -> Iterator[str]:
        """A line for each change, with the only benchmark or their number."""
        until = " until `gpubench accept`" if self._until_accepted else ""
        for (change, side), names in self._changed.items():
            counts = f"the {side}'s counts{until if side == 'base' else ''}"
            yield f"the head {change} ({several([*names])}); {counts}"


def _of_base(
    sides: Sides, base: Mapping[str, str], head: Mapping[str, str], unreadable: Collection[str]
) -> dict[str, str]:
    """The base's limits, and the head's of what the base does not judge.

    A metric that the base has and does not judge is judged only where the head states a limit of
    it: the head's defaults replace no choice of the base's, but what is `unreadable` is none.
    """
    stated = _stated(sides)
    before, now = _metrics(sides.limiting) - {*unreadable}, _metrics(sides.measured)
    new = {n: t for n, t in head.items() if n in base or n in stated or n not in before}
    # What no longer says what it is to be judged by is an error, not the base's business.
    kept = {n: t for n, t in base.items() if n in now and (n not in head or _parsed(head[n]))}
    return {**new, **kept}


def _changes(sides: Sides, base: Mapping[str, str], head: Mapping[str, str]) -> Iterator[str]:
    """What the head does with the limits of metrics that both sides have, in words."""
    both = _metrics(sides.limiting) & _metrics(sides.measured)
    alike: dict[tuple[str, str, str], list[str]] = {}
    for name in (name for name in base if name in both):
        if name not in head:
            yield f"drops the limit {base[name]} of {name}"
        elif (limit := _parsed(head[name])) and (verb := _verb(Limit.parse(base[name], ""), limit)):
            alike.setdefault((verb, base[name], limit.text), []).append(name)
    for (verb, before, now), names in alike.items():
        yield f"{verb} the limit of {enumerated(names)} from {before} to {now}"


def _additions(sides: Sides, base: Mapping[str, str], head: Mapping[str, str]) -> Iterator[str]:
    """The limits that the head states of metrics that the base has and does not judge."""
    both = _metrics(sides.limiting) & _metrics(sides.measured)
    for name in sorted(both & _stated(sides) - base.keys()):
        if _parsed(head[name]):
            yield f"adds the limit {head[name]} of {name}, of which the base has none"


def _verb(before: Limit, now: Limit) -> str:
    """What became of the limit; empty where it is the same in other digits."""
    if before.kind != now.kind:
        return "changes"
    if before.bound == now.bound:
        return ""
    is_looser = now.bound < before.bound if now.kind == "at_least" else now.bound > before.bound
    return "loosens" if is_looser else "tightens"


def _stated(sides: Sides) -> set[str]:
    """The metrics whose limits the head states; its others are defaults."""
    return {name for one in sides.measured for name in one.limits}


def _metrics(results: Iterable[Result]) -> set[str]:
    return {name for one in results for name in one.metrics}


def _valid(texts: Mapping[str, str]) -> dict[str, str]:
    return {name: text for name, text in texts.items() if _parsed(text)}


def _parsed(text: str) -> Limit | None:
    """The limit, or None where the text is none."""
    try:
        return Limit.parse(text, "limit")
    except UsageProblem:
        return None
