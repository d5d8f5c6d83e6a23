"""Numbers that decide nothing: those in doubt, and those too wide for the limit.

Which doubt touches which number was simulated and measured (``docs/evidence/doubts.md``). The
launches of a pair are disturbed alike: they are judged in spite of doubts, which the reason names.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, Literal, TypeAlias

from gpubench_plugin.compare.launch_values import LaunchValues, effect_text
from gpubench_plugin.compare.threshold import fraction, log_ratio
from gpubench_plugin.core.format import quantity, short_commit
from gpubench_plugin.core.quality_flags import (
    CONTENDED,
    DEPENDENT,
    DOUBTFUL_FLAGS,
    DRIFTING,
    EXPLANATIONS,
    NOT_CONVERGED,
    SUSPENDED,
    THROTTLED,
    UNSTEADY,
    doubtful_flags,
)
from gpubench_plugin.core.records import Metric, Result, Run
from gpubench_plugin.core.verdicts import COMPARED, Verdict

TOO_WIDE: Final = "too wide"

Quantity: TypeAlias = Literal["minimum", "median", "time", "other"]

_OF_CLOCK: Final = (CONTENDED, THROTTLED, UNSTEADY, DRIFTING, DEPENDENT, SUSPENDED)
_UNTOUCHED_BY: Final[Mapping[Quantity, tuple[str, ...]]] = {
    "minimum": (CONTENDED, SUSPENDED),
    "median": (SUSPENDED,),
    "time": (),
    "other": _OF_CLOCK,
}
"""Doubts that leave a quantity right; any other doubt touches it."""

# A call as short as this fits into a time slice of Linux, 3 ms or more, so that the fastest ones
# never waited. Beside six processes on two processors the fastest call of 4 ms is still right, one
# of 8 ms four times as long (docs/evidence/doubts.md).
_FITS_SLICE_S: Final = 0.002

_TIME_UNITS: Final = ("s", "ms", "us", "µs", "ns")
_OF_TIME: Final = ("mfu", "speed_up", "scaling_", "pipeline_")
"""Beginnings of the metrics without a unit that times are in."""


def quantity_of(metric: Metric) -> Quantity:
    """What kind of number the metric is."""
    if metric.name in _STEP_TIMES:
        return _STEP_TIMES[metric.name]
    is_time = metric.unit in _TIME_UNITS or metric.unit.endswith("/s")
    return "time" if is_time or metric.name.startswith(_OF_TIME) else "other"


_STEP_TIMES: Final[Mapping[str, Quantity]] = {
    "step_time_min_s": "minimum",
    "step_time_s": "median",
}


def touching(result: Result, metric: Metric) -> tuple[str, ...]:
    """Doubts of the result that touch the metric."""
    kind = quantity_of(metric)
    untouched = _UNTOUCHED_BY[kind]
    if kind == "minimum" and result.metrics[metric.name].value > _FITS_SLICE_S:
        untouched = (SUSPENDED,)
    return tuple(
        flag for flag in doubtful_flags(result.flags) if flag not in (*untouched, NOT_CONVERGED)
    )


def doubt_text(sides: Mapping[str, Sequence[Result]], metric: Metric) -> str:
    """``contended (base, head)``: doubts of most results of a side that touch the metric."""
    flags = {
        side: [touching(r, metric) for r in results if metric.name in r.metrics]
        for side, results in sides.items()
    }
    return flags_text(flags)


def flags_text(flags: Mapping[str, Sequence[Sequence[str]]], *, counting: bool = False) -> str:
    """``drifting (base)``: the flags that most results of a side have, by side and result.

    With `counting` a part of a side's results counts, too: ``drifting (2 of 5 in head)``.
    """
    texts = []
    for name in DOUBTFUL_FLAGS:
        sides = []
        for side, results in flags.items():
            count, total = sum(name in of_result for of_result in results), len(results)
            if count and (count == total or (not counting and count > total / 2)):
                sides.append(side)
            elif count and counting:
                sides.append(f"{count} of {total} in {side}")
        if sides:
            texts.append(f"{name} ({', '.join(sides)})")
    return ", ".join(texts)


def settled(series: LaunchValues, verdict: Verdict) -> Verdict:
    """The verdict on unpaired runs, inconclusive where its numbers are in doubt or too wide."""
    if verdict.kind not in COMPARED:
        return verdict
    verdict = replace(verdict, doubts=series.doubt)
    if series.is_trusted:
        return verdict
    if series.doubt:
        cause = f"in doubt: {series.doubt}"
    elif verdict.method == "absolute":
        cause = _open_bound(series)
    else:
        ends = _effect_interval(series, verdict)
        if ends is None or verdict.kind == "inconclusive":
            return verdict
        low, high = ends
        if verdict.kind == "improved" and -series.limit.bound < high < series.limit.bound:
            return replace(verdict, kind="unchanged")
        is_clear = low >= series.limit.bound or high < series.limit.bound
        texts = (effect_text(series, end) for end in ends)
        cause = "" if is_clear else f"{TOO_WIDE}: {' to '.join(texts)}"
    if not cause:
        return verdict
    return replace(verdict, kind="inconclusive", reason=f"{cause}; {verdict.reason}")


def _open_bound(series: LaunchValues) -> str:
    low, high = series.head_interval or (math.nan, math.nan)
    if not low <= series.limit.bound <= high:
        return ""
    ends = " .. ".join(quantity(end, series.unit) for end in (low, high))
    return f"{TOO_WIDE}: its interval, {ends}, includes the bound"


def _effect_interval(series: LaunchValues, verdict: Verdict) -> tuple[float, float] | None:
    """Interval of the effect from those of both sides; None if neither is known.

    The distances of the ends add up as those of independent values (G. Zou and A. Donner,
    "Construction of confidence limits about effect measures", 2008). The interval of a history has
    the noise between runs, too, and needs no other.
    """
    base, head = verdict.base, verdict.head
    if verdict.method != "threshold" or base is None or head is None:
        return None
    of_base, of_head = series.base_interval or (base, base), series.head_interval or (head, head)
    is_known = series.base_interval or series.head_interval
    if not is_known or min(*of_base, *of_head, base, head) <= 0:
        return None
    down = math.hypot(math.log(head / of_head[0]), math.log(of_base[1] / base))
    up = math.hypot(math.log(of_head[1] / head), math.log(base / of_base[0]))
    if series.better == "higher":
        down, up = up, down
    ratio = log_ratio(base, head, series.better)
    return fraction(ratio - down, series.better), fraction(ratio + up, series.better)


# Doubts that alternating launches of both sides do not have, or share.
_PAIRS_HELP: Final = (CONTENDED, THROTTLED, DEPENDENT, SUSPENDED)


def with_next_command(verdict: Verdict, bases: Sequence[Run], heads: Sequence[Run]) -> Verdict:
    """Append to an undecided verdict of a threshold what is cheapest to decide it."""
    if verdict.kind != "inconclusive" or verdict.method not in {"threshold", "absolute"}:
        return verdict
    base, head = (*heads, *bases)[-1], heads[-1]
    flags = [flag for flag in DOUBTFUL_FLAGS if flag in verdict.doubts]
    cures = [EXPLANATIONS[flag].rpartition("; ")[2] for flag in flags if flag not in _PAIRS_HELP]
    if cures:
        advice = cures[0]
    elif base.commit and (base.commit != head.commit or head.dirty):
        name = shlex.quote(verdict.id)
        advice = f"`gpubench ab --base {short_commit(base.commit)} -- {name}` decides"
    else:
        advice = "repeat both on an idle machine" if flags else "measure both longer"
    return replace(verdict, reason=f"{verdict.reason}; {advice}")
