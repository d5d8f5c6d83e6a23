"""The metrics of one matched benchmark: which are judged, their limits, values and series.

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


def device_timed(timer: str) -> bool:
    """Whether the device itself took the time, not a clock of the host."""
    return timer.startswith(_DEVICE_TIMERS)


def gated(*launches: Result, limits: Mapping[str, str] = {}) -> dict[str, str]:
    """The metrics to judge with the texts of their limits, which nobody may have checked.

    Those gated by default in any of the `launches` of one benchmark, then all others with a limit.
    Of the limits that launches state the latest one's counts; `limits` override them. A stated one
    whose metric the benchmark does not have is among them all the same. A percentage for one of the
    step times, the median or the minimum, counts for both, unless each has its own; a fixed bound
    on one stands in the place of all that is judged of the step time by default. Beside a fixed
    bound on the rate another number is the rate.
    """
    stated: dict[str, str] = {}
    for one in launches:
        stated |= one.limits
    stated |= limits
    bounded = {name for name, text in stated.items() if text.strip().startswith(("<", ">"))}
    default: dict[str, str] = {}
    for one in launches:
        default |= _by_default(one, bounded)
    of_times = [stated[name].strip() for name in _STEP_TIMES if name in stated]
    if bounded.intersection(_STEP_TIMES):
        default = {name: text for name, text in default.items() if name == MEMORY}
    elif of_times:
        step_times: dict[str, str] = {n: of_times[0] for n in _STEP_TIMES if n in default}
        rates = {name: text for name, text in default.items() if name not in (*_STEP_TIMES, MEMORY)}
        default |= step_times
        default |= {name: max(text, *of_times, key=_bound) for name, text in rates.items()}
    ordered = (*_STEP_TIMES, *THROUGHPUT, MEAN, MEMORY)
    return {**{name: default[name] for name in ordered if name in default}, **stated}


def _bound(text: str) -> float:
    """How much a percentage allows; nothing where it is no limit, which is told elsewhere."""
    try:
        return Limit.parse(text, "").bound
    except UsageProblem:
        return 0.0


def _by_default(result: Result, bounded: Collection[str]) -> dict[str, str]:
    on_device = device_timed(result.timer)
    names = (STEP_TIME, MEMORY) if on_device else (*_STEP_TIMES, MEMORY)
    texts = {name: DEFAULT for name in names if name in result.metrics}
    # A rate that only has to keep a fixed bound would let any slowdown pass: another one is judged.
    rate = rate_of(result.metrics.keys() - bounded)
    return {**texts, rate: DEFAULT if on_device else HOST_RATE_LIMIT} if rate else texts


def rate_of(metrics: Collection[str]) -> str:
    """The metric that is the total rate: work over the length of all blocks, else their mean call.

    Work per call is the same on both sides, so that all kinds of work say the same. Empty where
    there is none.
    """
    return next((name for name in (*THROUGHPUT, MEAN) if name in metrics), "")


def step_time_of(timer: str, metrics: Collection[str]) -> str:
    """The step time that shows the level of a benchmark with these `metrics` most exactly.

    The median where the device keeps time; the minimum where the host does, whose other quantiles
    move with everything else on the machine.
    """
    return STEP_TIME if device_timed(timer) or MINIMUM not in metrics else MINIMUM


def value_of(result: Result, metric: str) -> float | None:
    """The number that stands for one run: the median of the metric over its launches.

    None where no launch has it.
    """
    values = launches_of(result, metric)
    return median(values) if values else None


def launches_of(result: Result, metric: str) -> tuple[float, ...]:
    """The metric in each launch that has it; the run's own number where no launch is told apart."""
    values = tuple(launch[metric] for launch in result.launches if metric in launch)
    if not values and metric in result.metrics:
        values = (result.metrics[metric].value,)
    return values


_PREFERRED: Mapping[Better, str] = {"lower": "less", "higher": "more", "none": "neither"}


@dataclass(frozen=True, kw_only=True)
class Sides:
    """The results of one benchmark that are held against each other.

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
    def limiting(self) -> Sequence[Result]:
        """Those of the base by whose limits it judges; none where nobody recorded limits.

        They are all launches that are paired, else what :func:`limiting_of` a history is.
        """
        if self.paired:
            return [one for one in self.bases if not one.foreign]
        return limiting_of(self.bases)


def limiting_of(earlier: Sequence[Result]) -> Sequence[Result]:
    """Of `earlier` results the one by whose limits a later one is judged; none of none.

    It is the latest pinned or accepted one, or the first where none is.
    """
    recorded = [one for one in earlier if not one.foreign]
    pinned = [one for one in recorded if one.pinned]
    return pinned[-1:] or recorded[:1]


def metrics_of(
    sides: Sides, limits: Mapping[str, str], stated: Collection[str]
) -> Iterator[Series | Verdict]:
    """What there is to judge, or to say, of each metric in `limits`; a bad limit costs its own.

    `stated` are the metrics whose limits somebody states, as opposed to the defaults.
    """
    parts: list[Series | Verdict] = []
    others: list[Series | Verdict] = []
    for name, text in limits.items():
        try:
            limit = Limit.parse(text, f"gate.limits.{name}")
        except UsageProblem as error:
            others.append(Verdict(id=sides.id, metric=name, kind="errored", reason=str(error)))
            continue
        metric = _latest(name, sides.measured)
        if metric is None:
            others.append(_not_measured(sides, name, limit))
        elif sides.bases or limit.kind != "relative":
            part = _part(name, limit, stated)
            (parts if part else others).append(_series(sides, metric, limit, part))
    yield from (*_step_time(sides, parts), *others)


def _part(name: str, limit: Limit, stated: Collection[str]) -> Part | None:
    """What of the step time the metric is; a rate with a limit of its own is a metric by itself."""
    if limit.kind != "relative":
        return None
    if name in _STEP_TIMES:
        return "floor" if name == MINIMUM else "median"
    is_rate = name in (*THROUGHPUT, MEAN) and name not in stated
    return "rate" if is_rate else None


def _step_time(sides: Sides, parts: Sequence[Series | Verdict]) -> Iterator[Series | Verdict]:
    """The parts of the step time that both sides have, with a word about those that are left out.

    Where one contradicts its other side, none can be believed.
    """
    lacking = [one for one in parts if isinstance(one, Verdict)]
    contradicting = [one for one in lacking if one.kind != "no_baseline"]
    series = [] if contradicting else [one for one in parts if isinstance(one, Series)]
    remarks = [one.reason for one in lacking]
    if len(series) > 1 and (uneven := _uneven_rounds(sides)):
        series = [one for one in series if one.part != "floor"]
        remarks.append(uneven)
    if not series:
        yield from (contradicting or lacking)[:1]
    for number, one in enumerate(series):
        yield replace(one, remark="; ".join(remarks)) if remarks and not number else one


def _uneven_rounds(sides: Sides) -> str:
    """That minima are of different numbers of rounds on both sides; empty where they are not.

    One earlier run of ten may differ, as one of ten may be out: neither moves level nor noise.
    """
    heads = sides.heads if sides.paired else [*sides.heads[-1:]] * len(sides.bases)
    uneven = [
        (before, now)
        for base, head in zip(sides.bases, heads, strict=True)
        if (before := value_of(base, _ROUNDS))
        and (now := value_of(head, _ROUNDS))
        and max(before, now) > _MORE_ROUNDS * min(before, now)
    ]
    if len(uneven) <= (0 if sides.paired else len(sides.bases) // 10):
        return ""
    before, now = uneven[0]
    of = f" ({len(uneven)} of {len(sides.bases)})" if len(sides.bases) > len(uneven) else ""
    return f"minima are not compared: of {before:.0f} rounds in base{of}, {now:.0f} in head"


def removed_metrics(sides: Sides, limits: Mapping[str, str]) -> Iterator[Verdict]:
    """The gated metrics that a base has and no launch of the head measures any more.

    Those with a limit of a head's, or in `limits`, are none: they are not measured. Nor
    is a number of the step time that no base states a limit of, while the head has another.
    """
    kept = limits.keys() | {name for one in sides.measured for name in one.limits}
    if any(_latest(name, sides.measured) for name in _STEP_TIMES):
        stated = {name for one in sides.bases for name in one.limits}
        kept |= {*_STEP_TIMES, *THROUGHPUT, MEAN} - stated
    for name in gated(*sides.bases):
        metric = _latest(name, sides.bases)
        if metric and name not in kept and not _latest(name, sides.measured):
            yield _about(sides.id, metric, "removed", f"only the base has {name}")


def _latest(name: str, results: Sequence[Result]) -> Metric | None:
    return next((one.metrics[name] for one in reversed(results) if name in one.metrics), None)


def _series(sides: Sides, metric: Metric, limit: Limit, part: Part | None) -> Series | Verdict:
    name, relative = metric.name, limit.kind == "relative"
    if relative and (why := _contradiction(sides, metric)):
        return _about(sides.id, metric, "incomparable", why, limit)
    before = [value_of(one, name) for one in sides.bases]
    # A fixed bound needs no base beside it: all launches of the head must keep it.
    now = [value_of(one, name) for one in (sides.heads if relative else sides.measured)]
    if sides.paired and relative:
        whole = [pair for pair in zip(before, now, strict=True) if None not in pair]
        if not whole and _latest(name, sides.bases):
            why = f"no pair has {name} on both sides"
            return _about(sides.id, metric, "no_baseline", why, limit)
        before, now = [pair[0] for pair in whole], [pair[1] for pair in whole]
    base = tuple(value for value in before if value is not None)
    if relative and not base:
        why = f"the base did not measure {name}"
        return _about(sides.id, metric, "no_baseline", why, limit)
    return Series(
        id=sides.id,
        metric=name,
        unit=metric.unit,
        better=metric.better,
        limit=limit,
        base=base,
        head=tuple(value for value in now if value is not None),
        pinned=None if sides.paired else _pinned(sides.bases, before),
        part=part,
        loose=part == "rate" and not device_timed(sides.measured[-1].timer),
        base_launches=tuple(filter(None, (launches_of(one, name) for one in sides.bases))),
        head_launches=tuple(filter(None, (launches_of(one, name) for one in sides.measured))),
    )


def _pinned(bases: Sequence[Result], values: Sequence[float | None]) -> int:
    return sum(base.pinned and value is not None for base, value in zip(bases, values, strict=True))


def _contradiction(sides: Sides, metric: Metric) -> str:
    """Which unit or direction another launch has, with both; empty where all agree."""
    name = metric.name
    launches = [("base", one) for one in sides.bases]
    launches += [("an earlier head", one) for one in sides.measured]
    for where, one in launches:
        other = one.metrics.get(name, metric)
        if other.unit != metric.unit:
            return f"{name} is in {other.unit or '1'} in {where}, in {metric.unit or '1'} in head"
        if other.better != metric.better:
            then, now = _PREFERRED[other.better], _PREFERRED[metric.better]
            return f"of {name} {then} is better in {where}, {now} in head"
    return ""


def _not_measured(sides: Sides, name: str, limit: Limit) -> Verdict:
    known = {metric for one in sides.measured for metric in one.metrics}
    reason = f"limit {limit.text} on {name}, which this benchmark does not have"
    why = _NEEDED.get(name)
    return Verdict(
        id=sides.id,
        metric=name,
        kind="not_measured",
        limit=limit.text,
        reason=reason + (nearest(name, known) if why is None else f": it needs {why}"),
    )


_NEEDED: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        SCALING, "the same on fewer ranks in the same run, and neither of them in doubt"
    ),
    "step_time_p95_s": "20 durations; raise measure.min_rounds or measure.min_time_s",
    "step_time_p99_s": "100 durations; raise measure.min_rounds or measure.min_time_s",
}
"""What metrics need that not every benchmark has."""


def _about(
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
