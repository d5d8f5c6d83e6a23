"""The metrics of one matched benchmark: which are judged, their limits, values and series.

Metrics that have no series get their verdicts here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from gpubench_plugin.compare.scaling import SCALING, THROUGHPUT
from gpubench_plugin.compare.series import Series
from gpubench_plugin.config import DEFAULT, Limit
from gpubench_plugin.errors import UsageProblem, nearest
from gpubench_plugin.records import Better, Metric, Result, Verdict, VerdictKind

STEP_TIME: Final = "step_time_s"
MINIMUM: Final = "step_time_min_s"
_STEP_TIMES: Final = (STEP_TIME, MINIMUM)
MEMORY: Final = "peak_memory_bytes"

_DEVICE_TIMERS: Final = ("cuda_events", "cuda_kernel")


def device_timed(timer: str) -> bool:
    """Whether the device itself took the time, not a clock of the host."""
    return timer.startswith(_DEVICE_TIMERS)


def gated(*launches: Result, limits: Mapping[str, str] = {}) -> dict[str, str]:
    """The metrics to judge with the texts of their limits, which nobody may have checked.

    Those gated by default in any of the `launches` of one benchmark, then all others with a limit.
    Of the limits that launches state the latest one's counts; `limits` override them. A stated one
    whose metric the benchmark does not have is among them all the same. A limit on a step time,
    the median or the minimum, stands in the place of the default one.
    """
    stated: dict[str, str] = {}
    for one in launches:
        stated |= one.limits
    stated |= limits
    default = {name for one in launches for name in _by_default(one)}
    if not stated.keys().isdisjoint(_STEP_TIMES):
        default.difference_update(_STEP_TIMES)
    texts: dict[str, str] = {
        name: DEFAULT for name in (*_STEP_TIMES, *THROUGHPUT, MEMORY) if name in default
    }
    return {**texts, **stated}


def _by_default(result: Result) -> list[str]:
    names = (
        step_time_of(result.timer, result.metrics),
        # Totals by the wall clock vary 20 to 144 % between launches on a CPU.
        *(THROUGHPUT if device_timed(result.timer) else ()),
        MEMORY,
    )
    return [name for name in names if name in result.metrics]


def step_time_of(timer: str, metrics: Collection[str]) -> str:
    """The step time by which a benchmark with these `metrics` is judged unless a limit says more.

    The median where the device keeps time; the minimum where the host does, whose other quantiles
    move with everything else on the machine.
    """
    return STEP_TIME if device_timed(timer) or MINIMUM not in metrics else MINIMUM


def value_of(result: Result, metric: str) -> float | None:
    """The number that stands for one run: the median of the metric over its launches.

    None where no launch has it.
    """
    values = [launch[metric] for launch in result.launches if metric in launch]
    if not values and metric in result.metrics:
        values = [result.metrics[metric].value]
    return median(values) if values else None


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

        They are all launches that are paired, else the latest pinned or accepted one, or the first
        where none is.
        """
        recorded = [one for one in self.bases if not one.foreign]
        pinned = [one for one in recorded if one.pinned]
        return recorded if self.paired else pinned[-1:] or recorded[:1]


def metrics_of(sides: Sides, limits: Mapping[str, str]) -> Iterator[Series | Verdict]:
    """What there is to judge, or to say, of each metric in `limits`; a bad limit costs its own."""
    for name, text in limits.items():
        try:
            limit = Limit.parse(text, f"gate.limits.{name}")
        except UsageProblem as error:
            yield Verdict(id=sides.id, metric=name, kind="errored", reason=str(error))
            continue
        metric = _latest(name, sides.measured)
        if metric is None:
            yield _not_measured(sides, name, limit)
        elif sides.bases or limit.kind != "relative":
            yield _series(sides, metric, limit)


def removed_metrics(sides: Sides, limits: Mapping[str, str]) -> Iterator[Verdict]:
    """The gated metrics that a base has and no launch of the head measures any more.

    Those with a limit of a head's, or in `limits`, the caller's, are none: they are not measured.
    """
    stated = limits.keys() | {name for one in sides.measured for name in one.limits}
    for name in gated(*sides.bases):
        metric = _latest(name, sides.bases)
        if metric and name not in stated and not _latest(name, sides.measured):
            yield _about(sides.id, metric, "removed", f"only the base has {name}")


def _latest(name: str, results: Sequence[Result]) -> Metric | None:
    return next((one.metrics[name] for one in reversed(results) if name in one.metrics), None)


def _series(sides: Sides, metric: Metric, limit: Limit) -> Series | Verdict:
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
