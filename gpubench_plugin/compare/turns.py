"""Whether launches that are to be judged as pairs were taken in turns, by their time stamps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from statistics import median

from gpubench_plugin.compare.plain import at_once, exact, verdict, without_variance
from gpubench_plugin.compare.series import Series
from gpubench_plugin.records import Run, Verdict

_ADVICE = "take base and head in turns, or let `gpubench ab` do it"
_UNKNOWN = (
    "nobody knows whether the launches were taken in turns, since not all of them say when they "
    "began: what the machine did meanwhile would pass for an effect"
)


@dataclass(frozen=True, kw_only=True)
class Turns:
    """What time stamps tell of launches in pairs.

    `broken` says which launch came between the two of a pair; it is empty where each pair's two
    followed each other, in either order, and where nobody knows. `notes` are for the user.
    """

    broken: str = ""
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, bases: Sequence[Run], heads: Sequence[Run]) -> Turns:
        """Those of as many launches of each, in the order of the pairs."""
        stamped = [
            (began, pair, run)
            for pair, both in enumerate(zip(bases, heads, strict=True))
            for run in both
            if (began := _moment(run.started)) is not None
        ]
        if len(stamped) < len(bases) + len(heads):
            return cls(notes=(_UNKNOWN,))
        # Of equal times the two of a pair stand together: nothing says that they did not.
        stamped.sort(key=lambda launch: launch[:2])
        overlapping = _overlapping([run for _, _, run in stamped])
        notes = [overlapping] if overlapping else []
        for (_, pair, first), (_, other, between) in zip(stamped[::2], stamped[1::2], strict=True):
            if pair != other:
                mate = next(run for run in (bases[pair], heads[pair]) if run is not first)
                broken = f"{between.label} began between {first.label} and {mate.label}, a pair"
                return cls(broken=broken, notes=tuple(notes))
        return cls(notes=tuple(notes))

    def judge_without(self, series: Sequence[Series]) -> list[Verdict]:
        """One verdict per series, in order: what needs no pairs is judged, all else undecided."""
        return [self._without_pairs(one) for one in series]

    def _without_pairs(self, series: Series) -> Verdict:
        if plain := at_once(series):
            return plain
        if without_variance(series):
            return exact(series, launches=len(series.base))
        return verdict(
            series,
            "inconclusive",
            "paired",
            f"not judged, since the launches were not taken in turns: {self.broken}; what the "
            f"machine did meanwhile would pass for an effect; {_ADVICE}",
            base=median(series.base),
            head=median(series.head),
            launches=len(series.head),
        )


def _overlapping(launches: Sequence[Run]) -> str:
    """How many of the launches, in the order of time, began before the one before had ended."""
    beside = [
        (before, now)
        for before, now in pairwise(launches)
        if (end := _moment(before.finished)) is not None
        and (began := _moment(now.started)) is not None
        and began < end
        and (not now.run_id or now.run_id != before.run_id)
    ]
    if not beside:
        return ""
    before, now = beside[0]
    count = f"{len(beside)} launches" if len(beside) > 1 else "a launch"
    return (
        f"{count} began before the one before had ended ({now.label} beside {before.label}): each "
        "slowed the other"
    )


def _moment(text: str) -> datetime | None:
    """A time in ISO 8601, in UTC where it does not say; None for none."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
