"""Caveats: flags and too few rounds that put a verdict's numbers in doubt."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from gpubench_plugin.core.format import listed
from gpubench_plugin.core.quality_flags import DOUBTFUL_FLAGS, doubtful_flags
from gpubench_plugin.core.records import CONFIDENCE, Result, Run, Verdict

_CONFIDENCE: Final = "measure.confidence"
_MEMORY: Final = "_bytes"
"""Suffix of metrics that are not timed, so flags of the clock do not concern them."""


def with_doubts(verdict: Verdict, bases: Sequence[Run], heads: Sequence[Run]) -> Verdict:
    """Append the doubts of either side to the verdict's reason."""
    if not _is_judged_by_time(verdict):
        return verdict
    clauses = [verdict.reason, *_clauses(_sides(verdict, bases, heads), _flag_texts)]
    return replace(verdict, reason="; ".join(clauses))


def unchanged_in_doubt(
    verdicts: Iterable[Verdict], bases: Sequence[Run], heads: Sequence[Run]
) -> Iterator[str]:
    """One line per kind of doubt about benchmarks judged unchanged, whose reasons no table shows.

    Of several launches of a side most must be in doubt.
    """
    ids_by_clause: dict[str, dict[str, None]] = {}
    for verdict in verdicts:
        if verdict.kind == "unchanged" and _is_judged_by_time(verdict):
            for clause in _clauses(_sides(verdict, bases, heads), _majority_flag_texts):
                ids_by_clause.setdefault(clause, {})[verdict.id] = None
    for clause, ids in ids_by_clause.items():
        yield f"unchanged, but {clause}: {listed([*ids])}"


_Results: TypeAlias = Mapping[str, Sequence[Result]]


def _clauses(results: _Results, flag_texts: Callable[[_Results], Iterator[str]]) -> Iterator[str]:
    """``in doubt: contended (head)``, and sides with too few rounds for an interval."""
    if flags_text := ", ".join(flag_texts(results)):
        yield f"in doubt: {flags_text}"
    for side, of_side in results.items():
        rounds = [count for r in of_side if (count := _rounds_without_interval(r))]
        if rounds:
            noun = "round is" if min(rounds) == 1 else "rounds are"
            yield f"{min(rounds)} {noun} too few for an interval ({side})"


def _sides(verdict: Verdict, bases: Sequence[Run], heads: Sequence[Run]) -> dict[str, list[Result]]:
    """Results behind a verdict, by side; for an absolute bound the head's only."""
    sides = {"base": () if verdict.method == "absolute" else bases, "head": heads}
    results = {
        side: [run.results[verdict.id] for run in runs if verdict.id in run.results]
        for side, runs in sides.items()
    }
    return {side: [r for r in rs if r.outcome == "measured"] for side, rs in results.items()}


def _is_judged_by_time(verdict: Verdict) -> bool:
    return verdict.method is not None and not verdict.metric.endswith(_MEMORY)


def _counts(results: _Results) -> dict[str, Counter[str]]:
    """Number of results that raised each flag, by side."""
    return {
        side: Counter(name for r in of_side for name in doubtful_flags(r.flags))
        for side, of_side in results.items()
    }


def _majority_flag_texts(results: _Results) -> Iterator[str]:
    """``contended (base, head), drifting (head)``: flags raised by more than half of a side."""
    counts_by_side = _counts(results)
    for name in DOUBTFUL_FLAGS:
        sides = [
            side for side, counts in counts_by_side.items() if counts[name] > len(results[side]) / 2
        ]
        if sides:
            yield f"{name} ({', '.join(sides)})"


def _flag_texts(results: _Results) -> Iterator[str]:
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


def _rounds_without_interval(result: Result) -> int | None:
    """Number of rounds of a single launch without an interval; None for several launches."""
    rounds = result.metrics.get("rounds")
    if rounds is None or not math.isfinite(rounds.value) or len(result.launches) > 1:
        return None
    confidence = result.configuration.get(_CONFIDENCE, result.settings.get(_CONFIDENCE, CONFIDENCE))
    # The smallest and the largest of n rounds cover the median with probability 1 - 2^(1 - n).
    has_interval = rounds.value > 1 and 1 - 2 ** (1 - rounds.value) >= confidence
    return None if has_interval else int(rounds.value)
