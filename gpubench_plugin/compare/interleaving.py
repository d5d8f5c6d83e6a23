"""Whether paired launches alternated, by their time stamps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from statistics import median
from typing import Final

from gpubench_plugin.compare.launch_values import LaunchValues
from gpubench_plugin.compare.threshold import simple_verdict, verdict
from gpubench_plugin.core.records import Run, Verdict

_DRIFT: Final = "a drift of the machine could pass for an effect"


def intruder_text(bases: Sequence[Run], heads: Sequence[Run]) -> str:
    """Describe a launch that started between the two of a pair; empty if none did.

    Those of a pair may start in either order. Without all time stamps nothing is known.
    """
    launches = _in_order(bases, heads)
    for (_, pair, first), (_, other, intruder) in zip(launches[::2], launches[1::2], strict=True):
        if pair != other:
            second = heads[pair] if first is bases[pair] else bases[pair]
            between = f"between {first.label} and {second.label}, which form a pair"
            return f"{intruder.label} started {between}"
    return ""


def order_notes(bases: Sequence[Run], heads: Sequence[Run]) -> Iterator[str]:
    """Notes on missing time stamps, or on a launch that started during another one."""
    launches = _in_order(bases, heads)
    if not launches:
        yield (
            "it cannot be verified that launches alternated, since some have no start time: "
            f"{_DRIFT}"
        )
    for (_, _, earlier), (start, _, later) in pairwise(launches):
        end = _time(earlier.finished)
        if end and start < end and not (later.run_id and later.run_id == earlier.run_id):
            yield f"{later.label} started during {earlier.label}: they slowed each other down"
            return


def judge_unpaired(series: Sequence[LaunchValues], intruder: str) -> list[Verdict]:
    """One verdict per series, in order: without statistics, or inconclusive."""
    reason = (
        f"not judged because the launches did not alternate: {intruder}; {_DRIFT}; "
        "alternate base and head, or use `gpubench ab`"
    )
    return [
        simple_verdict(item)
        or verdict(
            item,
            "inconclusive",
            "paired",
            reason,
            base=median(item.base),
            head=median(item.head),
            launches=len(item.head),
        )
        for item in series
    ]


def _in_order(bases: Sequence[Run], heads: Sequence[Run]) -> list[tuple[datetime, int, Run]]:
    """Start time, pair and run of each launch, by time; empty where some have no time."""
    pairs = enumerate(zip(bases, heads, strict=True))
    launches = [(_time(run.started), pair, run) for pair, both in pairs for run in both]
    known = [(start, pair, run) for start, pair, run in launches if start]
    # At equal times, a coarse clock's, the two of a pair stay together.
    return sorted(known, key=lambda launch: launch[:2]) if len(known) == len(launches) else []


def _time(text: str) -> datetime | None:
    """Parse an ISO 8601 time, as UTC if unspecified; None if missing."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo else time.replace(tzinfo=UTC)
