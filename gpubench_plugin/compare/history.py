"""The judge of one run against a history of earlier ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
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
from gpubench_plugin.environment import counted
from gpubench_plugin.records import Verdict

if TYPE_CHECKING:
    from gpubench_plugin.compare.tested import Tested


ADVICE: Final = "`gpubench ab` is the way to know"


def judge_history(series: Sequence[Series], *, m: int | None = None) -> list[Verdict]:
    """One verdict per series, in order: the prediction t of its head beside the pinned level.

    It asks whether the head is one of the earlier runs: weak by nature, and the verdicts say so.

    Args:
        series: `base` holds one value per earlier run, `head` one per run that is judged: usually
            one, of which the median counts where it was launched again.
        m: series of the whole suite, see :func:`judge_pairs`.
    """
    plain = {number: verdict for number, one in enumerate(series) if (verdict := _plain(one))}
    tested = [number for number in range(len(series)) if number not in plain]
    if not tested:
        return [plain[number] for number in range(len(series))]
    from gpubench_plugin.compare.prediction import prediction_sample
    from gpubench_plugin.compare.tested import look

    samples = [prediction_sample(series[i], Samples.of(series[i])) for i in tested]
    looked = look(samples, max(m or 0, family(series)))
    verdicts = plain | dict(zip(tested, map(_verdict_of, looked), strict=True))
    return [verdicts[number] for number in range(len(series))]


def _plain(series: Series) -> Verdict | None:
    if verdict := at_once(series):
        return verdict
    samples = Samples.of(series)
    if len(series.base) >= FEWEST and (without_variance(series) or not samples.level):
        return exact(series, launches=len(series.base))
    if not (samples.level_tells or samples.steps_tell):
        return _bounded(series, samples) or _too_few(series, samples)
    problems = (unusable(series, median(samples.level), head) for head in series.head)
    return next(filter(None, problems), None)


def _bounded(series: Series, samples: Samples) -> Verdict | None:
    """What launches within the few runs can say; None where each is of one launch."""
    if all(len(one) < 2 for one in (*series.base_launches, *series.head_launches)):
        return None
    from gpubench_plugin.compare.prediction import bound_sample
    from gpubench_plugin.compare.tested import look

    sample = bound_sample(series, samples) if min(series.head) > 0 else None
    if sample is None or not sample.spread:
        return None
    (tested,) = look([sample], 1)
    why = f"{tested.finding}: a bound from {_whose(series, samples)}, not a history"
    why = f"{why}, limit {series.limit.text}; {_missing(samples)}; {ADVICE}"
    verdict = replace(tested, kind="inconclusive").verdict("history", why)
    return replace(verdict, runs_needed=samples.missing)


def _whose(series: Series, samples: Samples) -> str:
    """Whose launches tell the noise: ``its own 3 launches``, those of the earlier runs."""
    own = sum(len(one) for one in samples.launches if len(one) > 1)
    heads = sum(len(one) for one in series.head_launches if len(one) > 1)
    words = [f"its own {counted(own, 'launch')}"] if own else []
    words += [f"the head's {heads}"] if heads else []
    return " and ".join(words)


def _too_few(series: Series, samples: Samples) -> Verdict:
    unfit = len(series.base) - samples.count
    left_out = f" ({unfit} more had no positive value)" if unfit else ""
    why = f"{_missing(samples, left_out)}; {ADVICE}"
    return undecided(series, "history", why, launches=samples.count, runs_needed=samples.missing)


def _missing(samples: Samples, left_out: str = "") -> str:
    least = f"at least {FEWEST} are needed"
    if samples.later:
        least = f"{FEWEST} pinned ones are needed, or {FEWEST - 1} later ones"
    return f"{samples.words}{left_out}: {least}"


def _verdict_of(tested: Tested) -> Verdict:
    series, noise = tested.sample.series, percent(tested.sample.noise)
    samples = Samples.of(series)
    rest = f"{tested.finding}, {samples.words}, limit {series.limit.text}{_fewer(series, samples)}"
    more = "" if samples.level_tells else " and with ten pinned less"
    sight = f"≥ {percent(tested.visible)}{more}, {ADVICE}"
    if tested.kind == "inconclusive":
        return tested.verdict(
            "history", f"noise between runs {noise}: could only see {sight} ({rest})"
        )
    return tested.verdict("history", f"{rest}; history sees {sight}")


def _fewer(series: Series, samples: Samples) -> str:
    """That the head has fewer launches than most earlier runs, and so more noise."""
    usual = int(median(max(1, len(one)) for one in samples.launches))
    if series.fewest_launches >= usual:
        return ""
    now = counted(series.fewest_launches, "launch")
    return f", {now} beside runs of {usual}, whose noise is added"
