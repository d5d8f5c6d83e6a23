"""Caveats: flags and too few rounds that put a verdict's numbers in doubt."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from gpubench_plugin.core.format import listed
from gpubench_plugin.core.quality_flags import DOUBTFUL_FLAGS, doubtful_flags
from gpubench_plugin.core.records import CONFIDENCE, Result, Run
from gpubench_plugin.core.verdicts import Verdict

_CONFIDENCE: Final = "measure.confidence"

_Sides: TypeAlias = Mapping[str, Sequence[Result]]


def with_caveats(verdict: Verdict, bases: Sequence[Run], heads: Sequence[Run]) -> Verdict:
    """Append the caveats about either side to the verdict's reason."""
    if not _is_judged_by_time(verdict):
        return verdict
    clauses = _clauses(_sides(verdict, bases, heads), counting=True)
    return replace(verdict, reason="; ".join([verdict.reason, *clauses]))


def unchanged_in_doubt(
    verdicts: Iterable[Verdict], bases: Sequence[Run], heads: Sequence[Run]
) -> Iterator[str]:
    """One line per kind of caveat about benchmarks judged unchanged, whose reasons no table shows.

    Of several launches of a side most must be in doubt.
    """
    ids_by_clause: dict[str, dict[str, None]] = {}
    for verdict in verdicts:
        if verdict.kind == "unchanged" and _is_judged_by_time(verdict):
            for clause in _clauses(_sides(verdict, bases, heads), counting=False):
                ids_by_clause.setdefault(clause, {})[verdict.id] = None
    for clause, ids in ids_by_clause.items():
        yield f"unchanged, but {clause}: {listed([*ids])}"


def _is_judged_by_time(verdict: Verdict) -> bool:
    """Whether flags of the clock concern the verdict: those on memory they do not."""
    return verdict.method is not None and not verdict.metric.endswith("_bytes")


def _sides(verdict: Verdict, bases: Sequence[Run], heads: Sequence[Run]) -> _Sides:
    """Results behind a verdict, by side; for an absolute bound the head's only."""
    sides = {"base": () if verdict.method == "absolute" else bases, "head": heads}
    results = {
        side: [run.results[verdict.id] for run in runs if verdict.id in run.results]
        for side, runs in sides.items()
    }
    return {side: [r for r in rs if r.outcome == "measured"] for side, rs in results.items()}


def _clauses(sides: _Sides, *, counting: bool) -> Iterator[str]:
    """``in doubt: contended (base, head)``, and sides with too few rounds for an interval.

    With `counting` a part of a side's launches counts, too: ``drifting (2 of 5 in head)``.
    """
    if flags_text := ", ".join(_flag_texts(sides, counting=counting)):
        yield f"in doubt: {flags_text}"
    for side, results in sides.items():
        rounds = [count for r in results if (count := _rounds_without_interval(r))]
        if rounds:
            noun = "round is" if min(rounds) == 1 else "rounds are"
            yield f"{min(rounds)} {noun} too few for an interval ({side})"


def _flag_texts(sides: _Sides, *, counting: bool) -> Iterator[str]:
    flags = {
        side: Counter(name for r in results for name in doubtful_flags(r.flags))
        for side, results in sides.items()
    }
    for name in DOUBTFUL_FLAGS:
        texts = []
        for side, results in sides.items():
            count, total = flags[side][name], len(results)
            if count and (count == total or (not counting and count > total / 2)):
                texts.append(side)
            elif count and counting:
                texts.append(f"{count} of {total} in {side}")
        if texts:
            yield f"{name} ({', '.join(texts)})"


def _rounds_without_interval(result: Result) -> int | None:
    """Number of rounds of a single launch without an interval; None for several launches."""
    rounds = result.metrics.get("rounds")
    if rounds is None or not math.isfinite(rounds.value) or len(result.launches) > 1:
        return None
    confidence = result.configuration.get(_CONFIDENCE, result.settings.get(_CONFIDENCE, CONFIDENCE))
    # The smallest and the largest of n rounds cover the median with probability 1 - 2^(1 - n).
    has_interval = rounds.value > 1 and 1 - 2 ** (1 - rounds.value) >= confidence
    return None if has_interval else int(rounds.value)
