"""Check by time stamps that paired launches alternated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from statistics import median
from typing import Final

from gpubench_plugin.compare.launch_values import LaunchValues
from gpubench_plugin.compare.threshold import simple_verdict, verdict
from gpubench_plugin.core.records import Run, Verdict

_DRIFT: Final = "a drift of the machine could pass for an effect"
_RISK: Final = f"{_DRIFT}; alternate base and head, or use `gpubench ab`"
_UNKNOWN: Final = (
    f"it cannot be verified that launches alternated, since some have no start time: {_DRIFT}"
)


@dataclass(frozen=True, kw_only=True)
class Interleaving:
    """Interleaving of paired launches according to their time stamps.

    `violation` names the launch between the two of a pair; it is empty where each pair's two
    followed each other, in either order, and where time stamps are missing.
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
        # At equal times, a coarse clock's, the two of a pair stay together.
        started_runs.sort(key=lambda launch: launch[:2])
        overlapping = _overlapping([run for _, _, run in started_runs])
        notes = [overlapping] if overlapping else []
        for (_, pair, earlier), (_, other_pair, intruder) in zip(
            started_runs[::2], started_runs[1::2], strict=True
        ):
            if pair != other_pair:
                partner = next(run for run in (bases[pair], heads[pair]) if run is not earlier)
                between = f"between {earlier.label} and {partner.label}, which form a pair"
                return cls(violation=f"{intruder.label} started {between}", notes=tuple(notes))
        return cls(notes=tuple(notes))

    def judge_unpaired(self, series: Sequence[LaunchValues]) -> list[Verdict]:
        """One verdict per series, in order: without statistics, or inconclusive."""
        return [simple_verdict(item) or self._undecided(item) for item in series]

    def _undecided(self, series: LaunchValues) -> Verdict:
        reason = f"not judged because the launches did not alternate: {self.violation}; {_RISK}"
        medians = {"base": median(series.base), "head": median(series.head)}
        return verdict(
            series, "inconclusive", "paired", reason, **medians, launches=len(series.head)
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
    during = f"{later.label} during {earlier.label}"
    return (
        f"{count} started before the previous one had ended ({during}): they slowed each other down"
    )


def _parse_time(text: str) -> datetime | None:
    """Parse an ISO 8601 time, as UTC if unspecified; None if missing."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)
