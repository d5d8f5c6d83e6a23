"""Whole comparisons: runs matched and judged, verdicts in the order of the head's benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypedDict, Unpack

from gpubench_plugin.compare.doubt import doubted, unchanged_in_doubt
from gpubench_plugin.compare.history import judge_history
from gpubench_plugin.compare.limits import Side
from gpubench_plugin.compare.looks import UNCHANGED_FROM
from gpubench_plugin.compare.matching import Matched, match
from gpubench_plugin.compare.pairs import judge_pairs
from gpubench_plugin.compare.plain import LABEL, judge_threshold
from gpubench_plugin.compare.step_time import whole
from gpubench_plugin.compare.turns import Turns
from gpubench_plugin.errors import NothingComparable
from gpubench_plugin.records import Comparison, Run, Verdict


class Options(TypedDict, total=False):
    """What :func:`gpubench_plugin.compare.matching.match` may be told besides the runs."""

    limits: Mapping[str, str]
    limits_from: Side
    allow_incomparable: bool
    exempt: Sequence[str]
    removed: bool
    is_gone: Callable[[str], bool]


def compare_runs(base: Run, head: Run, **options: Unpack[Options]) -> Comparison:
    """One run against one other by their thresholds alone, and labelled so.

    Raises:
        NothingComparable: they have no benchmark, or no metric, in common.
        UsageProblem: a text is no limit.
    """
    matched = match([base], [head], paired=False, **options)
    _refuse_nothing(matched, [base], [head])
    return _by_threshold([base], head, matched)


def compare_threshold(earlier: Sequence[Run], head: Run, **options: Unpack[Options]) -> Comparison:
    """One run against the median of the pinned earlier ones by thresholds alone, and labelled so.

    Where they have nothing in common, a note says so.

    Raises:
        UsageProblem: a text is no limit.
    """
    matched = match(earlier, [head], paired=False, **options)
    nothing = _nothing_in_common(matched, earlier, [head]) if earlier else ""
    return _by_threshold(earlier, head, matched, *filter(None, [nothing]))


def compare_paired(
    bases: Sequence[Run],
    heads: Sequence[Run],
    *,
    unchanged_from: int = UNCHANGED_FROM,
    **options: Unpack[Options],
) -> Comparison:
    """Launches of the base beside launches of the head, paired in their order.

    Nothing is unchanged by fewer pairs than `unchanged_from`.

    Launches that their time stamps say were not taken in turns are not judged as pairs.

    Raises:
        NothingComparable: they have no benchmark, or no metric, in common.
        UsageProblem: not as many of each; a text is no limit.
    """
    matched = match(bases, heads, paired=True, **options)
    _refuse_nothing(matched, bases, heads)
    turns = Turns.of(bases, heads)
    if turns.broken:
        verdicts = turns.judge_without(matched.series)
    else:
        verdicts = judge_pairs(matched.series, unchanged_from=unchanged_from)
    return _comparison(bases, heads, matched, verdicts, turns.notes)


def compare_history(
    earlier: Sequence[Run],
    head: Run,
    *,
    again: Sequence[Run] = (),
    m: int | None = None,
    **options: Unpack[Options],
) -> Comparison:
    """One run against earlier ones, oldest first. Where there are none, its verdicts say so.

    Args:
        earlier: the runs of the history.
        head: the run that is judged.
        again: what its benchmarks measured when they were launched again; the median counts.
        m: series of the whole suite where `head` holds only a part of it.
        options: see :class:`Options`.

    Raises:
        UsageProblem: a text is no limit.
    """
    heads = [head, *again]
    matched = match(earlier, heads, paired=False, **options)
    return _comparison(earlier, heads, matched, judge_history(matched.series, m=m))


def _by_threshold(bases: Sequence[Run], head: Run, matched: Matched, *notes: str) -> Comparison:
    judged = judge_threshold(matched.series)
    return _comparison(bases, [head], matched, judged, (LABEL, *notes))


def _comparison(
    bases: Sequence[Run],
    heads: Sequence[Run],
    matched: Matched,
    judged: Sequence[Verdict],
    notes: tuple[str, ...] = (),
) -> Comparison:
    on_series = whole(matched.series, judged).values()
    order = {name: i for i, name in enumerate({name: 0 for run in heads for name in run.results})}
    verdicts = [doubted(one, bases, heads) for one in (*on_series, *matched.verdicts)]
    verdicts.sort(key=lambda verdict: order.get(verdict.id, len(order)))
    return Comparison(
        base=_label(bases),
        head=_label(heads),
        verdicts=tuple(verdicts),
        environment_differences=matched.environment_differences,
        notes=(*notes, *matched.notes, *unchanged_in_doubt(verdicts, bases, heads)),
    )


def _label(runs: Sequence[Run]) -> str:
    if not runs:
        return "nothing"
    first, last = runs[0].label, runs[-1].label
    return first if len(runs) == 1 else f"{len(runs)} runs, {first} to {last}"


def _refuse_nothing(matched: Matched, bases: Sequence[Run], heads: Sequence[Run]) -> None:
    if nothing := _nothing_in_common(matched, bases, heads):
        raise NothingComparable(nothing)


def _nothing_in_common(matched: Matched, bases: Sequence[Run], heads: Sequence[Run]) -> str:
    """That both sides share nothing, in words; empty where they share something."""
    lonely = {"new", "removed", "no_baseline"}
    if matched.series or any(verdict.kind not in lonely for verdict in matched.verdicts):
        return ""
    sides = (
        f"{_label(runs)} has {len({name for run in runs for name in run.results})}"
        for runs in (bases, heads)
    )
    renames = [f"{old}: {words}" for old, words in matched.renames.items()]
    more = [f"and {len(renames) - 1} more ids"] if len(renames) > 1 else []
    nothing = f"no benchmark, or no metric, in common: {', '.join(sides)}"
    return "; ".join([nothing, *renames[:1], *more])
