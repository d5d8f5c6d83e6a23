"""Caveats: flags and too few rounds that put a verdict's numbers in doubt."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from gpubench_plugin.environment import listed
from gpubench_plugin.flags import DOUBTFUL_FLAGS, doubtful_flags
from gpubench_plugin.measure import interval_ranks
from gpubench_plugin.records import CONFIDENCE, Result, Run, Verdict

_CONFIDENCE: Final = "measure.confidence"
_MEMORY: Final = "_bytes"
"""Metrics whose names end so were not timed: what held the clock up says nothing of them."""


def with_doubts(verdict: Verdict, bases: Sequence[Run], heads: Sequence[Run]) -> Verdict:
    """Append the doubts of either side to the verdict's reason.

    Nothing is said of a base that a fixed bound is not compared with.
    """
    if not _is_judged_by_time(verdict):
        return verdict
    results = _sides(verdict, bases, heads)
    flags_text = ", ".join(_flag_texts(results))
    clauses = [
        verdict.reason,
        flags_text and f"in doubt: {flags_text}",
        *_too_few_rounds_notes(results),
    ]
    return replace(verdict, reason="; ".join(filter(None, clauses)))


def unchanged_in_doubt(
    verdicts: Iterable[Verdict], bases: Sequence[Run], heads: Sequence[Run]
) -> Iterator[str]:
    """One line per kind of doubt about benchmarks judged unchanged.

    Tables give no reason for what is unchanged. Of several launches of a side most must be in
    doubt.
    """
    names: dict[str, dict[str, None]] = {}
    for verdict in verdicts:
        if verdict.kind == "unchanged" and _is_judged_by_time(verdict):
            results = _sides(verdict, bases, heads)
            flags_text = ", ".join(_majority_flag_texts(results))
            for clause in (
                flags_text and f"in doubt: {flags_text}",
                *_too_few_rounds_notes(results),
            ):
                names.setdefault(clause, {})[verdict.id] = None
    names.pop("", None)
    for clause, metric_names in names.items():
        yield f"unchanged, but {clause}: {listed([*metric_names])}"


def _sides(verdict: Verdict, bases: Sequence[Run], heads: Sequence[Run]) -> dict[str, list[Result]]:
    """Results behind a verdict, by side; for an absolute bound the head's only."""
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
    """Number of results that raised each flag, by side."""
    return {
        side: Counter(name for r in of_side for name in doubtful_flags(r.flags))
        for side, of_side in results.items()
    }


def _majority_flag_texts(results: Mapping[str, Sequence[Result]]) -> Iterator[str]:
    """``contended (base, head), drifting (head)``: flags raised by more than half of a side."""
    counts_by_side = _counts(results)
    for name in DOUBTFUL_FLAGS:
        sides = [
            side for side, counts in counts_by_side.items() if counts[name] > len(results[side]) / 2
        ]
        if sides:
            yield f"{name} ({', '.join(sides)})"


def _flag_texts(results: Mapping[str, Sequence[Result]]) -> Iterator[str]:
    """``contended (base, head), drifting (2 of 5 in head)``."""
    counts_by_side = _counts(results)
    for name in DOUBTFUL_FLAGS:
        sides = [
            side if count == len(results[side]) else f"{count} of {len(results[side])} in {side}"
            for side, counts in counts_by_side.items()
            if (count := counts[name])
        ]
        if sides:
            yield f"{name} ({', '.join(sides)})"


def _too_few_rounds_notes(results: Mapping[str, Sequence[Result]]) -> Iterator[str]:
    """Note on sides with too few rounds for a confidence interval."""
    for side, of_side in results.items():
        rounds = [round_count for r in of_side if (round_count := _rounds_without_interval(r))]
        if rounds:
            fewest = min(rounds)
            noun = "round is" if fewest == 1 else "rounds are"
            yield f"{fewest} {noun} too few for an interval ({side})"


def _rounds_without_interval(result: Result) -> int | None:
    """Number of rounds of a single launch without an interval; None for several launches."""
    rounds = result.metrics.get("rounds")
    if rounds is None or not math.isfinite(rounds.value) or len(result.launches) > 1:
        return None
    confidence = result.configuration.get(_CONFIDENCE, result.settings.get(_CONFIDENCE, CONFIDENCE))
    return int(rounds.value) if interval_ranks(int(rounds.value), confidence) is None else None
