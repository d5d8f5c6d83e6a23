"""Numbers that decide nothing: those in doubt, and those too wide for the limit.

Which doubt touches which number was simulated and measured (``docs/evidence/doubts.md``). The
launches of a pair are disturbed alike: they are judged in spite of doubts, which the reason names.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

from gpubench_plugin.compare.launch_values import LaunchValues, effect_text
from gpubench_plugin.compare.threshold import fraction, log_ratio
from gpubench_plugin.core.format import quantity, short_commit
from gpubench_plugin.core.quality_flags import (
    CHANGED_WORK,
    CONTENDED,
    DEPENDENT,
    INSTRUMENTED,
    SUSPENDED,
    doubtful_flags,
)
from gpubench_plugin.core.records import MEAN, MINIMA, MINIMUM, STEP_TIME, Metric, Result, Run
from gpubench_plugin.core.verdicts import COMPARED, Verdict

_UNTOUCHED_BY: Final = {MINIMUM: (CONTENDED, SUSPENDED), STEP_TIME: (SUSPENDED,)}
"""Doubts that leave a number right; any other doubt touches it."""
_OF_MORE_THAN_TIME: Final = (INSTRUMENTED, CHANGED_WORK)
"""Doubts that touch what is no time, too: memory, accuracy."""

# A call as short as this fits into a time slice of Linux, 3 ms or more, so that the fastest ones
# never waited.
_FITS_SLICE_S: Final = 0.002

# Of one round nothing is known but its time: a guess, so that what takes far longer is found.
_ONE_ROUND: Final = 0.1

_TIMES: Final = ("s", "ms", "us", "µs", "ns", "J", "J/sample")  # energy, too
_OF_TIMES: Final = ("mfu", "speed_up", "scaling_", "pipeline_")
"""Beginnings of the metrics that times are in, though not in their unit."""


def touching(result: Result, metric: Metric) -> tuple[str, ...]:
    """Doubts of the result that touch the metric."""
    name, unit = MINIMUM if metric.name in MINIMA.values() else metric.name, metric.unit
    is_of_time = unit in _TIMES or unit.endswith("/s") or name.startswith(_OF_TIMES)
    flags = doubtful_flags(result.flags)
    if not is_of_time:
        return tuple(flag for flag in flags if flag in _OF_MORE_THAN_TIME)
    calls = result.settings.get("pytest_benchmark.iterations", 1)  # of an adopted round
    is_long = name == MINIMUM and calls * result.metrics.get(name, metric).value > _FITS_SLICE_S
    untouched = (SUSPENDED,) if is_long else _UNTOUCHED_BY.get(name, ())
    if CONTENDED in untouched and CONTENDED in flags:
        untouched = (*untouched, DEPENDENT)  # of calls that waited and calls that did not
    return tuple(flag for flag in flags if flag not in untouched)


def doubt_text(sides: Mapping[str, Sequence[Result]], metric: Metric) -> str:
    """``contended (base, head)``: doubts of sides of which most results have one, or most pins."""
    by_flag: dict[str, list[str]] = {}
    for side, results in sides.items():
        flags = [touching(result, metric) for result in results]
        pinned = [f for f, result in zip(flags, results, strict=True) if result.pinned]
        if any(sum(map(bool, group)) > len(group) / 2 for group in (flags, pinned)):
            for flag in doubtful_flags(chain(*flags)):
                by_flag.setdefault(flag, []).append(side)
    return ", ".join(f"{flag} ({', '.join(names)})" for flag, names in by_flag.items())


def settled(series: LaunchValues, verdict: Verdict) -> Verdict:
    """The verdict on unpaired runs, inconclusive where its numbers are in doubt or too wide."""
    if verdict.kind not in COMPARED or series.is_trusted:
        return verdict
    bound, ends = series.limit.bound, _interval(series, verdict)
    is_mean_of_history = verdict.method == "history" and series.metric == MEAN
    if is_mean_of_history and series.part and verdict.kind == "regressed":
        cause = "a mean alone, which other load of the machine moves, decides nothing"
    elif series.doubt:
        cause = f"in doubt: {series.doubt}"
    elif ends and ends[0] < bound <= ends[1]:
        is_value = verdict.method == "absolute"
        texts = (quantity(e, series.unit) if is_value else effect_text(series, e) for e in ends)
        cause = f"too wide: {' to '.join(texts) if math.isfinite(ends[1]) else 'nothing is known'}"
    elif ends and verdict.kind == "improved" and ends[1] > -bound:
        return replace(verdict, kind="unchanged")
    else:
        return verdict
    return replace(verdict, kind="inconclusive", reason=f"{cause}; {verdict.reason}")


def _interval(series: LaunchValues, verdict: Verdict) -> tuple[float, float] | None:
    """Interval of what is compared with the limit, a value or an effect; None if unknown.

    The distances of the ends of both sides add up as those of independent values (G. Zou and A.
    Donner, "Construction of confidence limits about effect measures", 2008). The test of a history
    knows the noise between runs; that of the rounds of a disturbed head may be larger.
    """
    base, head, better = verdict.base, verdict.head, series.better
    if verdict.method == "absolute":
        return series.head_interval and _ends(series.head_interval, head or 0.0, 0.0)
    is_history = verdict.method == "history"
    if not base or not head or (is_history and verdict.kind in {"unchanged", "inconclusive"}):
        return None
    spread = 0.0 if is_history else _ONE_ROUND
    base_low, base_high = _ends(None if is_history else series.base_interval, base, spread)
    head_low, head_high = _ends(series.head_interval, head, spread)
    if (base_low, head_low) == (base_high, head_high):
        return None
    if min(base_low, head_low) <= 0:
        return None if is_history else (-math.inf, math.inf)
    down = math.hypot(math.log(head / head_low), math.log(base_high / base))
    up = math.hypot(math.log(head_high / head), math.log(base / base_low))
    if better == "higher":
        down, up = up, down
    ratio = log_ratio(base, head, better)
    return fraction(ratio - down, better), fraction(ratio + up, better)


def _ends(interval: tuple[float, float] | None, value: float, spread: float) -> tuple[float, float]:
    """Ends of a `value`, which where they are unknown is right to that `spread`."""
    low, high = interval or (value, value)
    return (low, high) if high < math.inf else (value * (1 - spread), value * (1 + spread))


def with_next_command(verdict: Verdict, bases: Sequence[Run], heads: Sequence[Run]) -> Verdict:
    """Append to an undecided verdict of a threshold what is cheapest to decide it.

    Pairs, where the code of the base is known: both sides are disturbed, and drift, alike.
    """
    if verdict.kind != "inconclusive" or verdict.method not in {"threshold", "absolute"}:
        return verdict
    base, head = (*heads, *bases)[-1], heads[-1]
    advice = "repeat both on an idle machine, or for longer"
    is_known = base.commit and not base.dirty and not head.foreign
    if is_known and (base.commit != head.commit or head.dirty):
        is_adopted = "pytest_benchmark.disable_gc" in head.results[verdict.id].configuration
        selection = "--adopt " * is_adopted + shlex.quote(verdict.id)
        command = f"gpubench ab --base {short_commit(base.commit)} -- {selection}"
        advice = f"`{command}` decides"
    return replace(verdict, reason=f"{verdict.reason}; {advice}")
