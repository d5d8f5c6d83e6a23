"""Complete comparisons: runs matched and judged, verdicts in the head's order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from statistics import median
from typing import Final, Unpack

from gpubench_plugin.compare.doubt import settled, with_next_command
from gpubench_plugin.compare.history import judge_history
from gpubench_plugin.compare.launch_values import LaunchValues
from gpubench_plugin.compare.looks import UNCHANGED_FROM
from gpubench_plugin.compare.matching import MatchOptions, MatchResult, match
from gpubench_plugin.compare.pairs import judge_pairs
from gpubench_plugin.compare.places import place_notes, with_place
from gpubench_plugin.compare.step_time import merge_parts
from gpubench_plugin.compare.threshold import LABEL, judge_threshold, simple_verdict, verdict
from gpubench_plugin.core.errors import NothingComparable
from gpubench_plugin.core.records import Run
from gpubench_plugin.core.verdicts import Comparison, Verdict


def compare_runs(base: Run, head: Run, **options: Unpack[MatchOptions]) -> Comparison:
    """Compare two runs by thresholds only.

    Raises:
        NothingComparable: they have no benchmark, or no metric, in common.
        UsageProblem: a limit is invalid.
    """
    matched = match([base], [head], paired=False, **options)
    if error_text := _nothing_in_common(matched, [base], [head]):
        raise NothingComparable(error_text)
    return _comparison([base], [head], matched, judge_threshold(matched.series), (LABEL,))


def compare_threshold(
    earlier_runs: Sequence[Run], head: Run, **options: Unpack[MatchOptions]
) -> Comparison:
    """Compare a run with the median of the pinned earlier runs by thresholds only.

    A note replaces the error of :func:`compare_runs` where they have nothing in common.
    """
    matched = match(earlier_runs, [head], paired=False, **options)
    error_text = _nothing_in_common(matched, earlier_runs, [head]) if earlier_runs else ""
    notes = (LABEL, *filter(None, [error_text]))
    return _comparison(earlier_runs, [head], matched, judge_threshold(matched.series), notes)


def compare_paired(
    bases: Sequence[Run],
    heads: Sequence[Run],
    *,
    unchanged_from: int = UNCHANGED_FROM,
    **options: Unpack[MatchOptions],
) -> Comparison:
    """Compare launches of base and head, paired in order; "unchanged" takes `unchanged_from` pairs.

    Launches that did not alternate, by their time stamps, are not judged as pairs.

    Raises:
        NothingComparable: they have no benchmark, or no metric, in common.
        UsageProblem: the numbers of launches differ; a limit is invalid.
    """
    matched = match(bases, heads, paired=True, **options)
    if error_text := _nothing_in_common(matched, bases, heads):
        raise NothingComparable(error_text)
    if intruder := intruder_text(bases, heads):
        verdicts = judge_unpaired(matched.series, intruder)
    else:
        verdicts = judge_pairs(matched.series, unchanged_from=unchanged_from)
    return _comparison(bases, heads, matched, verdicts, tuple(order_notes(bases, heads)))


def compare_history(
    earlier_runs: Sequence[Run],
    head: Run,
    *,
    repeat_runs: Sequence[Run] = (),
    m: int | None = None,
    **options: Unpack[MatchOptions],
) -> Comparison:
    """Compare a run with earlier ones, oldest first.

    `repeat_runs` are relaunches of its benchmarks, of which the median counts; `m` is the number of
    series of the whole suite where `head` holds only a part of it.
    """
    heads = [head, *repeat_runs]
    matched = match(earlier_runs, heads, paired=False, **options)
    return _comparison(earlier_runs, heads, matched, judge_history(matched.series, m=m))


def _comparison(
    bases: Sequence[Run],
    heads: Sequence[Run],
    matched: MatchResult,
    judged: Sequence[Verdict],
    notes: tuple[str, ...] = (),
) -> Comparison:
    on_series = merge_parts(matched.series, [*map(settled, matched.series, judged)]).values()
    names = dict.fromkeys(name for run in heads for name in run.results)
    order = {name: position for position, name in enumerate(names)}
    verdicts = [with_next_command(v, bases, heads) for v in (*on_series, *matched.verdicts)]
    verdicts = [with_place(verdict, bases, heads) for verdict in verdicts]
    verdicts.sort(key=lambda verdict: order.get(verdict.id, len(order)))
    return Comparison(
        base=_label(bases),
        head=_label(heads),
        verdicts=tuple(verdicts),
        environment_differences=matched.environment_differences,
        notes=(*notes, *matched.notes, *place_notes(bases, heads, verdicts)),
        measured=frozenset().union(*(run.measured for run in bases)),
    )


def _label(runs: Sequence[Run]) -> str:
    if not runs:
        return "nothing"
    first_label, last_label = runs[0].label, runs[-1].label
    return first_label if len(runs) == 1 else f"{len(runs)} runs, {first_label} to {last_label}"


def _nothing_in_common(matched: MatchResult, bases: Sequence[Run], heads: Sequence[Run]) -> str:
    """Error text if the sides share nothing; empty otherwise."""
    one_sided_kinds = {"new", "removed", "no_baseline"}
    if matched.series or any(verdict.kind not in one_sided_kinds for verdict in matched.verdicts):
        return ""
    counts = (
        f"{_label(runs)} has {len({name for run in runs for name in run.results})}"
        for runs in (bases, heads)
    )
    texts = [f"no benchmark or metric in common: {', '.join(counts)}"]
    texts += [f"{old_id}: {hint}" for old_id, hint in matched.renames.items()]
    texts += [f"{v.id}: {v.reason}" for v in matched.verdicts if v.kind == "no_baseline"]
    return "; ".join(texts[:2] + [f"and {len(texts) - 2} more ids"] * (len(texts) > 2))


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
