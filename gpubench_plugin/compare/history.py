"""The judge of one run against a history of earlier ones."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, Final

from gpubench_plugin.compare.plain import (
    at_once,
    exact,
    family,
    undecided,
    unusable,
    without_variance,
)
from gpubench_plugin.compare.series import FEWEST, Samples, Series, percent
from gpubench_plugin.records import Verdict

if TYPE_CHECKING:
    from gpubench_plugin.compare.tested import Tested


ADVICE: Final = "`gpubench ab` is the way to know"


def judge_history(series: Sequence[Series], *, m: int | None = None) -> list[Verdict]:
    """One verdict per series, in order: the prediction t of its head beside the pinned level.

    It asks whether the head is one of the earlier runs: weak by nature, and the verdicts say so.

    Args:
        series: `base` holds one value per earlier run, `head` one per run that is judged.
        m: series of the whole suite, see :func:`judge_pairs`.
    """
    found = {number: plain for number, one in enumerate(series) if (plain := _plain_history(one))}
    tested = [number for number in range(len(series)) if number not in found]
    if tested:
        from gpubench_plugin.compare.tested import look, prediction_sample

        samples = [prediction_sample(series[i], Samples.of(series[i])) for i in tested]
        looked = look(samples, max(m or 0, family(series)))
        found |= zip(tested, map(_verdict_of_history, looked), strict=True)
    return [found[number] for number in range(len(series))]


def _plain_history(series: Series) -> Verdict | None:
    if found := at_once(series):
        return found
    samples = Samples.of(series)
    if len(series.base) >= FEWEST and (without_variance(series) or not samples.level):
        return exact(series, launches=len(series.base))
    if not (samples.level_tells or samples.steps_tell):
        return _too_few(series, samples)
    problems = (unusable(series, median(samples.level), head) for head in series.head)
    return next(filter(None, problems), None)


def _too_few(series: Series, samples: Samples) -> Verdict:
    unfit = len(series.base) - samples.count
    left_out = f" ({unfit} more had no positive value)" if unfit else ""
    least = f"at least {FEWEST} are needed"
    if samples.later:
        least = f"{FEWEST} pinned ones are needed, or {FEWEST - 1} later ones"
    why = f"{samples.words}{left_out}: {least}; {ADVICE}"
    return undecided(series, "history", why, launches=samples.count)


def _verdict_of_history(tested: Tested) -> Verdict:
    sample = tested.sample
    samples = Samples.of(sample.series)
    rest = f"{tested.finding}, {samples.words}, limit {sample.series.limit.text}"
    more = "" if samples.level_tells else " and with ten pinned less"
    sight = f"≥ {percent(tested.visible)}{more}, {ADVICE}"
    if tested.kind == "inconclusive":
        why = f"noise between runs {percent(sample.noise)}: could only see {sight} ({rest})"
        return tested.verdict("history", why)
    return tested.verdict("history", f"{rest}; history sees {sight}")
