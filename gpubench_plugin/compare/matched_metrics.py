"""Metrics of a matched benchmark: which are judged, with limits, values and series.

Metrics that have no series get their verdicts here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Final

from gpubench_plugin.compare.scaling import SCALING, THROUGHPUT
from gpubench_plugin.compare.series import Part, Series
from gpubench_plugin.config import DEFAULT, Limit
from gpubench_plugin.errors import UsageProblem, nearest
from gpubench_plugin.records import Better, Metric, Result, Verdict, VerdictKind

STEP_TIME: Final = "step_time_s"
MINIMUM: Final = "step_time_min_s"
MEAN: Final = "step_time_mean_s"
_STEP_TIMES: Final = (MINIMUM, STEP_TIME)
MEMORY: Final = "peak_memory_bytes"
_ROUNDS: Final = "rounds"

HOST_RATE_LIMIT: Final = "5%"
"""Of the total rate on a clock of the host, the noisiest of the three
(``docs/evidence/paired_gate.md``)."""

_MORE_ROUNDS: Final = 1.1
"""A tenth more rounds lowers the minimum of normal ones by a twentieth of their standard deviation;
beyond that minima are not compared."""

_DEVICE_TIMERS: Final = ("cuda_events", "cuda_kernel")


def is_device_timed(timer: str) -> bool:
    """Whether the timer is a device clock rather than a host clock."""
    return timer.startswith(_DEVICE_TIMERS)


def judged_metrics(*launches: Result, limits: Mapping[str, str] = {}) -> dict[str, str]:
    """Metrics to judge with their limit texts, which may be unvalidated.

    Those gated by default in any of the `launches` of one benchmark, then all others with a limit.
    Of the limits that launches state the latest one's counts; `limits` override them. A stated one
    whose metric the benchmark does not have is among them all the same. A percentage for one of the
    step times, the median or the minimum, counts for both, unless each has its own; a fixed bound
    on one stands in the place of all that is judged of the step time by default. Beside a fixed
    bound on the rate another number is the rate.
    """
    stated_limits: dict[str, str] = {}
    for launch in launches:
        stated_limits |= launch.limits
    stated_limits |= limits
    bounded_metrics = {
        name for name, text in stated_limits.items() if text.strip().startswith(("<", ">"))
    }
    default: dict[str, str] = {}
    for launch in launches:
        default |= _by_default(launch, bounded_metrics)
    of_times = [stated_limits[name].strip() for name in _STEP_TIMES if name in stated_limits]
    if bounded_metrics.intersection(_STEP_TIMES):
        default = {name: text for name, text in default.items() if name == MEMORY}
    elif of_times:
        step_times: dict[str, str] = {n: of_times[0] for n in _STEP_TIMES if n in default}
        rates = {name: text for name, text in default.items() if name not in (*_STEP_TIMES, MEMORY)}
        default |= step_times
        default |= {
            name: max(text, *of_times, key=_allowed_fraction) for name, text in rates.items()
        }
    candidates = (*_STEP_TIMES, *THROUGHPUT, MEAN, MEMORY)
    return {**{name: default[name] for name in candidates if name in default}, **stated_limits}


def _allowed_fraction(text: str) -> float:
    """Allowed fraction of a percentage limit; 0 for invalid text, which is reported elsewhere."""
    try:
        return Limit.parse(text, "").bound
    except UsageProblem:
        return 0.0


def _by_default(result: Result, bounded_metrics: Collection[str]) -> dict[str, str]:
    on_device = is_device_timed(result.timer)
    names = (STEP_TIME, MEMORY) if on_device else (*_STEP_TIMES, MEMORY)
    texts = {name: DEFAULT for name in names if name in result.metrics}
    # A rate that only has to keep a fixed bound would let any slowdown pass: another one is judged.
    rate = rate_of(result.metrics.keys() - bounded_metrics)
    return {**texts, rate: DEFAULT if on_device else HOST_RATE_LIMIT} if rate else texts


def rate_of(metrics: Collection[str]) -> str:
    """The throughput metric: work over the length of all blocks, else the mean call.

    Work per call is the same on both sides, so that all kinds of work say the same. Empty where
    there is none.
    """
    return next((name for name in (*THROUGHPUT, MEAN) if name in metrics), "")


def step_time_of(timer: str, metrics: Collection[str]) -> str:
    """The step time metric with the most precise level, given the available `metrics`.

    The median where the device keeps time; the minimum where the host does, whose other quantiles
    move with everything else on the machine.
    """
    return STEP_TIME if is_device_timed(timer) or MINIMUM not in metrics else MINIMUM


def value_of(result: Result, metric: str) -> float | None:
    """One run's value of the metric: the median over its launches.

    None where no launch has it.
    """
    values = launches_of(result, metric)
    return median(values) if values else None


def launches_of(result: Result, metric: str) -> tuple[float, ...]:
    """The metric per launch; the run's own value if launches are not recorded."""
    values = tuple(launch[metric] for launch in result.launches if metric in launch)
    if not values and metric in result.metrics:
        values = (result.metrics[metric].value,)
    return values


_PREFERRED: Mapping[Better, str] = {"lower": "less", "higher": "more", "none": "neither"}


@dataclass(frozen=True, kw_only=True)
class Sides:
    """Results of one benchmark on both sides.

    `bases` are the comparable ones of the base's side; where there are none, only the metrics that
    need no base are judged. `heads` are those of the head's side, where launches are `paired` the
    n-th beside the n-th base. `measured` are all that the head's side has, one or more, also those
    beside which there is no base: which metrics count, and by which limits, is theirs to say.
    """

    bases: Sequence[Result]
    heads: Sequence[Result]
    measured: Sequence[Result]
    paired: bool

    @property
    def id(self) -> str:
        """The benchmark."""
        return self.measured[-1].id

    @property
    def limit_sources(self) -> Sequence[Result]:
        """Base results whose limits apply; none if no limits were recorded.

        They are all launches that are paired, else what :func:`limit_source_of` a history is.
        """
        if self.paired:
            return [r for r in self.bases if not r.foreign]
        return limit_source_of(self.bases)


def limit_source_of(earlier_results: Sequence[Result]) -> Sequence[Result]:
    """The `earlier_results` result whose limits apply to a later one; empty if none.

    It is the latest pinned or accepted one, or the first where none is.
    """
    own_results = [r for r in earlier_results if not r.foreign]
    pinned_results = [r for r in own_results if r.pinned]
    return pinned_results[-1:] or own_results[:1]


def metrics_of(
    sides: Sides, limits: Mapping[str, str], explicit_metrics: Collection[str]
) -> Iterator[Series | Verdict]:
    """Series or verdict for each metric in `limits`; an invalid limit affects its own only.

    `explicit_metrics` are the metrics whose limits somebody states, as opposed to the defaults.
    """
    parts: list[Series | Verdict] = []
    other_items: list[Series | Verdict] = []
    for name, text in limits.items():
        try:
            limit = Limit.parse(text, f"gate.limits.{name}")
        except UsageProblem as error:
            other_items.append(Verdict(id=sides.id, metric=name, kind="errored", reason=str(error)))
            continue
        metric = _latest(name, sides.measured)
        if metric is None:
            other_items.append(_not_measured(sides, name, limit))
        elif sides.bases or limit.kind != "relative":
            part = _part(name, limit, explicit_metrics)
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


def _step_time(sides: Sides, parts: Sequence[Series | Verdict]) -> Iterator[Series | Verdict]:
    """Step time parts that both sides have, with a remark on omitted ones.

    Where one contradicts its other side, none can be believed.
    """
    missing = [item for item in parts if isinstance(item, Verdict)]
    contradicting = [item for item in missing if item.kind != "no_baseline"]
    series = [] if contradicting else [item for item in parts if isinstance(item, Series)]
    reasons = [item.reason for item in missing]
    if len(series) > 1 and (uneven_remark := _uneven_rounds(sides)):
        series = [item for item in series if item.part != "floor"]
        reasons.append(uneven_remark)
    if not series:
        yield from (contradicting or missing)[:1]
    for number, item in enumerate(series):
        yield replace(item, remark="; ".join(reasons)) if reasons and not number else item


def _uneven_rounds(sides: Sides) -> str:
    """Remark that minima are over different numbers of rounds; empty if equal.

    One earlier run of ten may differ, as one of ten may be out: neither moves level nor noise.
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
    return (
        f"minima are not compared: over {base_rounds:.0f} rounds in base{share_text}, "
        f"{head_rounds:.0f} in head"
    )


def removed_metrics(sides: Sides, limits: Mapping[str, str]) -> Iterator[Verdict]:
    """Verdicts on gated metrics that a base has and no head launch measures any more.

    Those with a limit of a head's, or in `limits`, are none: they are not measured. Nor
    is a number of the step time that no base states a limit of, while the head has another.
    """
    present = limits.keys() | {name for r in sides.measured for name in r.limits}
    if any(_latest(name, sides.measured) for name in _STEP_TIMES):
        explicit = {name for r in sides.bases for name in r.limits}
        present |= {*_STEP_TIMES, *THROUGHPUT, MEAN} - explicit
    for name in judged_metrics(*sides.bases):
        metric = _latest(name, sides.bases)
        if metric and name not in present and not _latest(name, sides.measured):
            yield _metric_verdict(sides.id, metric, "removed", f"only the base has {name}")


def _latest(name: str, results: Sequence[Result]) -> Metric | None:
    return next((r.metrics[name] for r in reversed(results) if name in r.metrics), None)


def _series(sides: Sides, metric: Metric, limit: Limit, part: Part | None) -> Series | Verdict:
    name, relative = metric.name, limit.kind == "relative"
    if relative and (cause := _unit_mismatch(sides, metric)):
        return _metric_verdict(sides.id, metric, "incomparable", cause, limit)
    base_values = [value_of(r, name) for r in sides.bases]
    # A fixed bound needs no base beside it: all launches of the head must keep it.
    head_values = [value_of(r, name) for r in (sides.heads if relative else sides.measured)]
    if sides.paired and relative:
        complete_pairs = [
            pair for pair in zip(base_values, head_values, strict=True) if None not in pair
        ]
        if not complete_pairs and _latest(name, sides.bases):
            cause = f"no pair has {name} on both sides"
            return _metric_verdict(sides.id, metric, "no_baseline", cause, limit)
        base_values, head_values = (
            [pair[0] for pair in complete_pairs],
            [pair[1] for pair in complete_pairs],
        )
    base = tuple(value for value in base_values if value is not None)
    if relative and not base:
        cause = f"the base did not measure {name}"
        return _metric_verdict(sides.id, metric, "no_baseline", cause, limit)
    return Series(
        id=sides.id,
        metric=name,
        unit=metric.unit,
        better=metric.better,
        limit=limit,
        base=base,
        head=tuple(value for value in head_values if value is not None),
        pinned=None if sides.paired else _pinned(sides.bases, base_values),
        part=part,
        is_lenient=part == "rate" and not is_device_timed(sides.measured[-1].timer),
        base_launches=tuple(filter(None, (launches_of(r, name) for r in sides.bases))),
        head_launches=tuple(filter(None, (launches_of(r, name) for r in sides.measured))),
    )


def _pinned(bases: Sequence[Result], values: Sequence[float | None]) -> int:
    return sum(base.pinned and value is not None for base, value in zip(bases, values, strict=True))


def _unit_mismatch(sides: Sides, metric: Metric) -> str:
    """Describe a launch with another unit or direction; empty if all agree."""
    name = metric.name
    launches = [("base", r) for r in sides.bases]
    launches += [("an earlier head", r) for r in sides.measured]
    for origin, r in launches:
        counterpart = r.metrics.get(name, metric)
        if counterpart.unit != metric.unit:
            return (
                f"unit of {name} is {counterpart.unit or '1'} in {origin} but "
                f"{metric.unit or '1'} in head"
            )
        if counterpart.better != metric.better:
            old_direction, new_direction = _PREFERRED[counterpart.better], _PREFERRED[metric.better]
            return f"{name} of {old_direction} is better in {origin}, but {new_direction} in head"
    return ""


def _not_measured(sides: Sides, name: str, limit: Limit) -> Verdict:
    measured_metrics = {metric for r in sides.measured for metric in r.metrics}
    reason = f"limit {limit.text} on {name}, which this benchmark does not measure"
    requirement = _REQUIREMENTS.get(name)
    return Verdict(
        id=sides.id,
        metric=name,
        kind="not_measured",
        limit=limit.text,
        reason=reason
        + (nearest(name, measured_metrics) if requirement is None else f": requires {requirement}"),
    )


_REQUIREMENTS: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        SCALING,
        "the same benchmark on fewer ranks in the same run, without doubtful flags on either",
    ),
    "step_time_p95_s": "20 durations; raise measure.min_rounds or measure.min_time_s",
    "step_time_p99_s": "100 durations; raise measure.min_rounds or measure.min_time_s",
}
"""What metrics need that not every benchmark has."""


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
