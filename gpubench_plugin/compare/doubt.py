"""What puts the numbers behind a verdict in doubt, in the words that end its reason."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from gpubench_plugin.environment import listed
from gpubench_plugin.flags import DOUBTS, doubts
from gpubench_plugin.measure import interval_ranks
from gpubench_plugin.records import CONFIDENCE, Result, Run, Verdict

_CONFIDENCE: Final = "measure.confidence"
_MEMORY: Final = "_bytes"
"""Metrics whose names end so were not timed: what held the clock up says nothing of them."""


def doubted(verdict: Verdict, bases: Sequence[Run], heads: Sequence[Run]) -> Verdict:
    """The verdict, which stands as it was found; its reason names the doubts of either side.

    Nothing is said of a base that a fixed bound is not compared with.
    """
    if not _is_judged_by_time(verdict):
        return verdict
    results = _sides(verdict, bases, heads)
    raised = ", ".join(_raised(results))
    words = [verdict.reason, raised and f"in doubt: {raised}", *_few(results)]
    return replace(verdict, reason="; ".join(filter(None, words)))


def unchanged_in_doubt(
    verdicts: Iterable[Verdict], bases: Sequence[Run], heads: Sequence[Run]
) -> Iterator[str]:
    """A line for each kind of doubt about what is taken to be as the base is.

    Tables give no reason for what is unchanged. Of several launches of a side most must be in
    doubt.
    """
    names: dict[str, dict[str, None]] = {}
    for verdict in verdicts:
        if verdict.kind == "unchanged" and _is_judged_by_time(verdict):
            results = _sides(verdict, bases, heads)
            raised = ", ".join(_raised_by_most(results))
            for words in (raised and f"in doubt: {raised}", *_few(results)):
                names.setdefault(words, {})[verdict.id] = None
    names.pop("", None)
    for words, those in names.items():
        yield f"unchanged, but {words}: {listed([*those])}"


def _sides(verdict: Verdict, bases: Sequence[Run], heads: Sequence[Run]) -> dict[str, list[Result]]:
    """What a verdict rests on, by side; a fixed bound is not compared with any base."""
    sides = {"base": () if verdict.method == "absolute" else bases, "head": heads}
    return {side: list(_measured(runs, verdict.id)) for side, runs in sides.items()}


def _is_judged_by_time(verdict: Verdict) -> bool:
    return verdict.method is not None and not verdict.metric.endswith(_MEMORY)


def _measured(runs: Sequence[Run], node_id: str) -> Iterator[Result]:
    for run in runs:
        result = run.results.get(node_id)
        if result is not None and result.outcome == "measured":
            yield result


def _counts(results: Mapping[str, Sequence[Result]]) -> dict[str, Counter[str]]:
    """How many results of a side raised each doubt."""
    return {
        side: Counter(name for one in of_side for name in doubts(one.flags))
        for side, of_side in results.items()
    }


def _raised_by_most(results: Mapping[str, Sequence[Result]]) -> Iterator[str]:
    """``contended (base, head), drifting (head)``: what more than half of a side raised."""
    counted = _counts(results)
    for name in DOUBTS:
        sides = [side for side, counts in counted.items() if counts[name] > len(results[side]) / 2]
        if sides:
            yield f"{name} ({', '.join(sides)})"


def _raised(results: Mapping[str, Sequence[Result]]) -> Iterator[str]:
    """``contended (base, head), drifting (2 of 5 in head)``."""
    counted = _counts(results)
    for name in DOUBTS:
        sides = [
            side if count == len(results[side]) else f"{count} of {len(results[side])} in {side}"
            for side, counts in counted.items()
            if (count := counts[name])
        ]
        if sides:
            yield f"{name} ({', '.join(sides)})"


def _few(results: Mapping[str, Sequence[Result]]) -> Iterator[str]:
    """Of how few rounds a side's number is where no interval can be told of so few."""
    for side, of_side in results.items():
        rounds = [few for one in of_side if (few := _too_few(one))]
        if rounds:
            least = min(rounds)
            noun = "round is" if least == 1 else "rounds are"
            yield f"{least} {noun} too few for an interval ({side})"


def _too_few(result: Result) -> int | None:
    """The rounds of the only launch if they have no interval; several launches have one."""
    rounds = result.metrics.get("rounds")
    if rounds is None or not math.isfinite(rounds.value) or len(result.launches) > 1:
        return None
    confidence = result.configuration.get(_CONFIDENCE, result.settings.get(_CONFIDENCE, CONFIDENCE))
    return int(rounds.value) if interval_ranks(int(rounds.value), confidence) is None else None
