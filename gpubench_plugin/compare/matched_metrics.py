"""Judged metrics of a matched benchmark, with their limits and a series or verdict each."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from gpubench_plugin.compare.doubt import doubt_text
from gpubench_plugin.compare.launch_values import LaunchValues, Part
from gpubench_plugin.compare.scaling import SCALING, THROUGHPUT
from gpubench_plugin.config.limits import DEFAULT, Limit
from gpubench_plugin.core.errors import UsageProblem, suggest
from gpubench_plugin.core.quality_flags import CONTENDED
from gpubench_plugin.core.records import (
    MEAN,
    MINIMA,
    MINIMUM,
    STEP_TIME,
    Metric,
    Result,
    confidence_bounds_of,
    speed_up_metric,
    variant_rounds,
)
from gpubench_plugin.core.verdicts import Verdict, VerdictKind, VerdictPart

_STEP_TIMES: Final = (MINIMUM, STEP_TIME)
MEMORY: Final = "peak_memory_bytes"
_ROUNDS: Final = "rounds"

# Of the rate on a host clock, the noisiest step time (docs/evidence/paired_gate.md).
HOST_RATE_LIMIT: Final = "5%"

# Ratio of rounds from which on minima are brought to equal numbers: a tenth more lowers the minimum
# of normal values by a twentieth of their standard deviation.
_MORE_ROUNDS: Final = 1.1

_DEVICE_TIMERS: Final = ("cuda_events", "cuda_kernel")


def is_device_timed(timer: str) -> bool:
    """Whether the timer is a device clock rather than a host clock."""
    return timer.startswith(_DEVICE_TIMERS)


def judged_metrics(*launches: Result, limits: Mapping[str, str] = {}) -> dict[str, str]:
    """Metrics to judge with their limit texts, which may be invalid.

    Those gated by default in any of the `launches` of one benchmark, then all others with a limit,
    measured or not. Later launches' limits override earlier ones', `limits` all. A percentage for
    the median or the minimum of the step time counts for both, unless each has its own; an absolute
    bound on one replaces the step time's defaults. Beside an absolute bound on the rate another
    metric is the rate.
    """
    stated_limits: dict[str, str] = {}
    for each in (*(launch.limits for launch in launches), limits):
        stated_limits |= each
    bounded_metrics = {
        name for name, text in stated_limits.items() if text.strip().startswith(("<", ">"))
    }
    default: dict[str, str] = {}
    for launch in launches:
        default |= _by_default(launch, bounded_metrics)
    percentages = [stated_limits[name].strip() for name in _STEP_TIMES if name in stated_limits]
    if bounded_metrics.intersection(_STEP_TIMES):
        default = {name: text for name, text in default.items() if name == MEMORY}
    elif percentages:
        for name, text in default.items():
            if name in _STEP_TIMES:
                default[name] = percentages[0]
            elif name != MEMORY:
                default[name] = max(text, *percentages, key=_allowed_fraction)
    candidates = (*_STEP_TIMES, *THROUGHPUT, MEAN, MEMORY)
    return {**{name: default[name] for name in candidates if name in default}, **stated_limits}


def _allowed_fraction(text: str) -> float:
    """Allowed fraction of a percentage limit; 0 for invalid text, which is reported elsewhere."""
    limit = parsed_limit(text)
    return limit.bound if limit else 0.0


def parsed_limit(text: str) -> Limit | None:
    """The limit; None for invalid text."""
    try:
        return Limit.parse(text, "limit")
    except UsageProblem:
        return None


def _by_default(result: Result, bounded_metrics: Collection[str]) -> dict[str, str]:
    on_device = is_device_timed(result.timer)
    names = (STEP_TIME, MEMORY) if on_device else (*_STEP_TIMES, MEMORY)
    texts = {name: DEFAULT for name in names if name in result.metrics}
    # A rate that only has an absolute bound would let any slowdown pass: another one is judged.
    rate = rate_of(result.metrics.keys() - bounded_metrics)
    return {**texts, rate: DEFAULT if on_device else HOST_RATE_LIMIT} if rate else texts


def rate_of(metrics: Collection[str]) -> str:
    """The throughput metric: work per second, else the mean call; empty if there is none.

    All kinds of work are equivalent, since work per call is the same on both sides.
    """
    return next((name for name in (*THROUGHPUT, MEAN) if name in metrics), "")


def step_time_of(timer: str, metrics: Collection[str]) -> str:
    """The most precise step time of the available `metrics`.

    The median on a device clock; the minimum on a host clock, whose other quantiles move with the
    load of the machine.
    """
    return STEP_TIME if is_device_timed(timer) or MINIMUM not in metrics else MINIMUM


def step_time_of_history(results: Sequence[Result]) -> str:
    """The step time to compare all `results` by, the latest last: minima over equal rounds."""
    name = step_time_of(results[-1].timer, results[-1].metrics)
    by_rounds = sorted(results, key=lambda r: value_of(r, _ROUNDS) or math.inf)
    fewest = by_rounds[len(results) // 10 : len(results) // 10 + 1]
    sides = Sides(bases=results, heads=fewest, measured=results)
    if name != MINIMUM or not _uneven_rounds(sides):
        return name
    return MINIMA.get(_minimum_in_common(sides), STEP_TIME)


def compared_metric(verdict: VerdictPart, metrics: Mapping[str, Metric]) -> str:
    """The one of the head's `metrics` that a verdict is on: its own, or a minimum over fewer."""
    names = (n for n in (MINIMUM, *MINIMA.values()) if verdict.metric == MINIMUM and n in metrics)
    # Not exactly: the verdict has it from its logarithm.
    equal = (n for n in names if math.isclose(metrics[n].value, verdict.head or 0.0))
    return next(equal, verdict.metric)


def value_of(result: Result, metric: str) -> float | None:
    """One run's value of the metric: the median over its launches; None where none has it."""
    values = launches_of(result, metric)
    return median(values) if values else None


def launches_of(result: Result, metric: str) -> tuple[float, ...]:
    """The metric per launch; the run's own value if launches are not recorded."""
    values = tuple(launch[metric] for launch in result.launches if metric in launch)
    if not values and metric in result.metrics:
        values = (result.metrics[metric].value,)
    return values


@dataclass(frozen=True, kw_only=True)
class Sides:
    """Results of one benchmark on both sides.

    `bases` are comparable with the head; without any, only metrics that need no base are judged.
    `heads` are the head's, of `paired` launches the n-th beside the n-th base. `measured` are one
    or more of the head, also without a base: they decide which metrics are judged. With a `cause`
    the bases are not comparable, for that, and only limit the head.
    """

    bases: Sequence[Result]
    heads: Sequence[Result]
    measured: Sequence[Result]
    paired: bool = False
    cause: str = ""

    @property
    def id(self) -> str:
        """Id of the benchmark."""
        return self.measured[-1].id

    @property
    def limit_sources(self) -> Sequence[Result]:
        """Base results whose limits apply: all paired launches, or one of a history."""
        if self.paired:
            return [r for r in self.bases if not r.foreign]
        return limit_source_of(self.bases)


def limit_source_of(earlier_results: Sequence[Result]) -> Sequence[Result]:
    """The result whose limits apply: the latest pinned or accepted one, else the first."""
    own_results = [r for r in earlier_results if not r.foreign]
    pinned_results = [r for r in own_results if r.pinned]
    return pinned_results[-1:] or own_results[:1]


def metrics_of(
    sides: Sides, limits: Mapping[str, str], stated: Collection[str], required: Collection[str]
) -> Iterator[LaunchValues | Verdict]:
    """Series or verdict for each metric in `limits`; an invalid limit affects its own only.

    A limit is `stated`, or a default. The base has what is `required`, and states its limit unless
    the caller does: that limit is checked, or said to be unchecked.
    """
    parts: list[LaunchValues | Verdict] = []
    other_items: list[LaunchValues | Verdict] = []
    for name, text in limits.items():
        try:
            limit = Limit.parse(text, f"gate.limits.{name}")
        except UsageProblem as error:
            other_items.append(Verdict(id=sides.id, metric=name, kind="errored", reason=str(error)))
            continue
        metric = _latest(name, sides.measured)
        if metric is None:
            other_items.append(_not_measured(sides, name, limit))
        elif name in required and (cause := _mismatch(sides, metric, limit)):
            reason = f"limit {limit.text} could not be checked; {cause}"
            other_items.append(_metric_verdict(sides.id, metric, "incomparable", reason, limit))
        elif limit.kind != "relative" or (sides.bases and not sides.cause):
            part = _part(name, limit, stated)
            (parts if part else other_items).append(_series(sides, metric, limit, part))
    yield from (*_step_time(sides, parts), *other_items)


def _part(name: str, limit: Limit, explicit_metrics: Collection[str]) -> Part | None:
    """The part of the step time that the metric is; None for rates with their own limit."""
    if limit.kind != "relative":
        return None
    if name in _STEP_TIMES:
        return "floor" if name == MINIMUM else "median"
    is_rate = name in (*THROUGHPUT, MEAN) and name not in explicit_metrics
    return "rate" if is_rate else None


def _step_time(
    sides: Sides, parts: Sequence[LaunchValues | Verdict]
) -> Iterator[LaunchValues | Verdict]:
    """Step time parts that both sides have, with a remark on omitted ones.

    None where one of them contradicts its other side.
    """
    missing = [item for item in parts if isinstance(item, Verdict)]
    contradicting = [item for item in missing if item.kind != "no_baseline"]
    series = [] if contradicting else [item for item in parts if isinstance(item, LaunchValues)]
    reasons = [item.reason for item in missing]
    if len(series) > 1 and (uneven := _uneven_rounds(sides)):
        if rounds := _minimum_in_common(sides):
            reasons.append(f"minima of {rounds} rounds: {uneven}")
        else:
            series = [item for item in series if item.part != "floor"]
            reasons.append(f"minima are not compared: {uneven}")
    if not series:
        yield from (contradicting or missing)[:1]
    for number, item in enumerate(series):
        yield replace(item, remark="; ".join(reasons)) if reasons and not number else item


def _minimum_in_common(sides: Sides) -> int:
    """The most rounds of which all have a typical minimum; 0 if there are none.

    One earlier run of ten may lack it, as for :func:`_uneven_rounds`.
    """
    tolerated = 0 if sides.paired else len(sides.bases) // 10
    for rounds, name in sorted(MINIMA.items(), reverse=True):
        lacking = sum(name not in r.metrics for r in sides.bases)
        if lacking <= tolerated and all(name in r.metrics for r in sides.measured):
            return rounds
    return 0


def _uneven_rounds(sides: Sides) -> str:
    """Different numbers of rounds that minima are over; empty if equal.

    One earlier run of ten may differ: an outlier moves neither level nor noise.
    """
    heads = sides.heads if sides.paired else [*sides.heads[-1:]] * len(sides.bases)
    uneven = [
        (base_rounds, head_rounds)
        for base, head in zip(sides.bases, heads, strict=True)
        if (base_rounds := value_of(base, _ROUNDS))
        and (head_rounds := value_of(head, _ROUNDS))
        and max(base_rounds, head_rounds) > _MORE_ROUNDS * min(base_rounds, head_rounds)
    ]
    if len(uneven) <= (0 if sides.paired else len(sides.bases) // 10):
        return ""
    base_rounds, head_rounds = uneven[0]
    share_text = f" ({len(uneven)} of {len(sides.bases)})" if len(sides.bases) > len(uneven) else ""
    return f"over {base_rounds:.0f} rounds in base{share_text}, {head_rounds:.0f} in head"


def removed_metrics(sides: Sides, limited: Collection[str]) -> Iterator[Verdict]:
    """Verdicts on gated metrics that a base has and no head launch measures any more.

    Those `limited` are "not measured" instead. No step time is reported while the head has another
    one.
    """
    present = {*limited}
    if any(_latest(name, sides.measured) for name in _STEP_TIMES):
        present |= {*_STEP_TIMES, *THROUGHPUT, MEAN}
    for name in judged_metrics(*sides.bases):
        metric = _latest(name, sides.bases)
        if metric and name not in present and not _latest(name, sides.measured):
            yield _metric_verdict(sides.id, metric, "removed", f"only the base has {name}")


def _latest(name: str, results: Sequence[Result]) -> Metric | None:
    return next((r.metrics[name] for r in reversed(results) if name in r.metrics), None)


def _series(
    sides: Sides, metric: Metric, limit: Limit, part: Part | None
) -> LaunchValues | Verdict:
    name, relative = metric.name, limit.kind == "relative"
    if relative and (cause := _mismatch(sides, metric, limit)):
        return _metric_verdict(sides.id, metric, "incomparable", cause)
    if part == "floor" and _uneven_rounds(sides):
        name = MINIMA.get(_minimum_in_common(sides), name)
    launches = [(r, launches_of(r, name)) for r in sides.bases if not sides.cause]
    base_values = [median(values) if values else None for _, values in launches]
    # An absolute bound needs no base: it holds for all launches of the head.
    head_values = [value_of(r, name) for r in (sides.heads if relative else sides.measured)]
    if sides.paired and relative:
        pairs = [pair for pair in zip(base_values, head_values, strict=True) if None not in pair]
        base_values, head_values = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    base = tuple(value for value in base_values if value is not None)
    if relative and not base:
        cause = f"the base did not measure {name}"
        if _latest(name, sides.bases):
            cause = f"no pair has {name} on both sides"
        return _metric_verdict(sides.id, metric, "no_baseline", cause, limit)
    return LaunchValues(
        id=sides.id,
        metric=metric.name,
        unit=metric.unit,
        better=metric.better,
        limit=limit,
        base=base,
        head=tuple(value for value in head_values if value is not None),
        pinned=None if sides.paired else sum(r.pinned and bool(values) for r, values in launches),
        part=part,
        is_lenient=part == "rate" and not is_device_timed(sides.measured[-1].timer),
        doubt=doubt_text({"base": sides.bases if relative else (), "head": sides.measured}, metric),
        base_interval=_interval(sides.bases, name),
        head_interval=_interval(sides.measured, name),
        base_launches=tuple(values for _, values in launches if values),
        head_launches=tuple(filter(None, (launches_of(r, name) for r in sides.measured))),
    )


def _interval(results: Sequence[Result], name: str) -> tuple[float, float] | None:
    """Interval of a side's metric: the median ends of its runs; None where none is known."""
    ends = [ends for r in results if (ends := _interval_of(r, name))]
    return (median(low for low, _ in ends), median(high for _, high in ends)) if ends else None


def _interval_of(result: Result, name: str) -> tuple[float, float] | None:
    """Confidence interval; of a median of too few rounds their range.

    A minimum is as uncertain as three times what it fell when the number of rounds was last doubled
    (docs/evidence/doubts.md), of few rounds as the median is above it, and beside other processes
    more. Of one round nothing is known.
    """
    values = {each: metric.value for each, metric in result.metrics.items()}
    rounds = values.get(_ROUNDS, math.inf)
    if rounds == 1 and name in (*_STEP_TIMES, *THROUGHPUT, MEAN) and len(result.launches) < 2:
        return 0.0, math.inf
    if name in values.keys() & {MINIMUM, *MINIMA.values()}:
        above = sorted(v for n, v in values.items() if n in MINIMA.values() and v >= values[name])
        fall = 3 * (above[1] - above[0]) if len(above) > 1 else 0.0
        if rounds < _FEWEST_WITH_INTERVAL:
            fall = max(fall, values.get(STEP_TIME, 0.0) - values[name])
        width = max(fall, values[name] * _BESIDE_OTHERS * (CONTENDED in result.flags))
        return (values[name] - width, values[name] + width) if width > 0 else None
    low, high = confidence_bounds_of(name)
    if name == STEP_TIME and rounds < _FEWEST_WITH_INTERVAL:
        low, high = MINIMUM, "step_time_max_s"
    return (values[low], values[high]) if {low, high} <= values.keys() else None


# How far minima of short calls vary from run to run beside six busy processes on two processors,
# though within each run they agree to 0.3%.
_BESIDE_OTHERS: Final = 0.05
# Rounds whose extremes enclose the median with a probability of 95%.
_FEWEST_WITH_INTERVAL: Final = 6


def _mismatch(sides: Sides, metric: Metric, limit: Limit) -> str:
    """Why the limit cannot compare the sides; a fixed bound only needs the unit of the base."""
    if sides.cause and limit.kind == "relative":
        return sides.cause
    for origin, results in (("base", sides.bases), ("an earlier head", sides.measured)):
        for r in results:
            other = r.metrics.get(metric.name, metric)
            is_turned = limit.kind == "relative" and other.better != metric.better
            if other.unit != metric.unit or is_turned:
                theirs, ours = (f"{m.unit or '1'}, better: {m.better}" for m in (other, metric))
                return f"{metric.name} ({theirs}) in {origin} but ({ours}) in head"
    return ""


def _not_measured(sides: Sides, name: str, limit: Limit) -> Verdict:
    names = {metric for r in sides.measured for metric in r.metrics}
    variants = [match[1] for match in map(_VARIANT_ROUNDS.fullmatch, names) if match]
    if requirement := _REQUIREMENTS.get(name):
        hint = f": requires {requirement}"
    elif name in {speed_up_metric(variant, len(variants)) for variant in variants}:
        hint = ": no conclusion, since slow calls disturbed the turns of the variants; repeat"
    else:
        hint = suggest(name, names)
    reason = f"limit {limit.text} on {name}, which this benchmark does not measure{hint}"
    return Verdict(id=sides.id, metric=name, kind="not_measured", limit=limit.text, reason=reason)


_VARIANT_ROUNDS: Final = re.compile(variant_rounds("(.+)"))
# Of metrics that not every benchmark has.
_REQUIREMENTS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        SCALING,
        "the same benchmark on fewer ranks in the same run, without doubtful flags on either",
    ),
    "step_time_p95_s": "20 durations; raise measure.min_rounds or measure.min_time_s",
    "step_time_p99_s": "100 durations; raise measure.min_rounds or measure.min_time_s",
}


def _metric_verdict(
    id_: str, metric: Metric, kind: VerdictKind, reason: str, limit: Limit | None = None
) -> Verdict:
    return Verdict(
        id=id_,
        metric=metric.name,
        unit=metric.unit,
        better=metric.better,
        kind=kind,
        limit=limit.text if limit else "",
        reason=reason,
    )
