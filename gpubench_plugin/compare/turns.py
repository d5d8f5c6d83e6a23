"""Check by time stamps that paired launches alternated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from statistics import median

from gpubench_plugin.compare.plain import exact_verdict, has_no_variance, trivial_verdict, verdict
from gpubench_plugin.compare.series import Series
from gpubench_plugin.records import Run, Verdict

_ADVICE = "alternate base and head, or use `gpubench ab`"
_UNKNOWN = (
    "it cannot be verified that launches alternated, since some have no start time: a drift "
    "of the machine could pass for an effect"
)


@dataclass(frozen=True, kw_only=True)
class Interleaving:
    """Interleaving of paired launches according to their time stamps.

    `violation` says which launch came between the two of a pair; it is empty where each pair's two
    followed each other, in either order, and where nobody knows. `notes` are for the user.
    """

    violation: str = ""
    notes: tuple[str, ...] = ()

    @classmethod
    def of(cls, bases: Sequence[Run], heads: Sequence[Run]) -> Interleaving:
        """Check launches of both sides, in pair order."""
        started_runs = [
            (start_time, pair, run)
            for pair, pair_runs in enumerate(zip(bases, heads, strict=True))
            for run in pair_runs
            if (start_time := _parse_time(run.started)) is not None
        ]
        if len(started_runs) < len(bases) + len(heads):
            return cls(notes=(_UNKNOWN,))
        # Of equal times the two of a pair stand together: nothing says that they did not.
        started_runs.sort(key=lambda launch: launch[:2])
        overlapping = _overlapping([run for _, _, run in started_runs])
        notes = [overlapping] if overlapping else []
        for (_, pair, earlier), (_, other_pair, intruder) in zip(
            started_runs[::2], started_runs[1::2], strict=True
        ):
            if pair != other_pair:
                partner = next(run for run in (bases[pair], heads[pair]) if run is not earlier)
                broken = (
                    f"{intruder.label} started between {earlier.label} and {partner.label}, "
                    "which form a pair"
                )
                return cls(violation=broken, notes=tuple(notes))
        return cls(notes=tuple(notes))

    def judge_unpaired(self, series: Sequence[Series]) -> list[Verdict]:
        """One verdict per series, in order: trivial ones judged, all others undecided."""
        return [self._without_pairs(item) for item in series]

    def _without_pairs(self, series: Series) -> Verdict:
        if trivial := trivial_verdict(series):
            return trivial
        if has_no_variance(series):
            return exact_verdict(series, launches=len(series.base))
        return verdict(
            series,
            "inconclusive",
            "paired",
            (
                f"not judged because the launches did not alternate: {self.violation}; a drift of "
                f"the machine could pass for an effect; {_ADVICE}"
            ),
            base=median(series.base),
            head=median(series.head),
            launches=len(series.head),
        )


def _overlapping(launches: Sequence[Run]) -> str:
    """Describe launches that overlapped in time; empty if none did."""
    overlaps = [
        (earlier, later)
        for earlier, later in pairwise(launches)
        if (end_time := _parse_time(earlier.finished)) is not None
        and (start_time := _parse_time(later.started)) is not None
        and start_time < end_time
        and (not later.run_id or later.run_id != earlier.run_id)
    ]
    if not overlaps:
        return ""
    earlier, later = overlaps[0]
    count = f"{len(overlaps)} launches" if len(overlaps) > 1 else "a launch"
    return (
        f"{count} started before the previous one had ended ({later.label} during "
        f"{earlier.label}): they slowed each other down"
    )


def _parse_time(text: str) -> datetime | None:
    """Parse an ISO 8601 time, as UTC if unspecified; None if missing."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)
