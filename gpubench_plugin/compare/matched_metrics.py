"""The metrics of one matched benchmark: series to judge, and verdicts on those that have none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gpubench_plugin.compare.gated import gated, value_of
from gpubench_plugin.compare.limits import Limit
from gpubench_plugin.compare.series import Series
from gpubench_plugin.errors import nearest
from gpubench_plugin.records import Metric
from gpubench_plugin.runs import Result
from gpubench_plugin.verdicts import Verdict, VerdictKind


def metrics_of(
    bases: Sequence[Result], heads: Sequence[Result], *, paired: bool, limits: Mapping[str, str]
) -> Iterator[Series | Verdict]:
    """What there is to judge, or to say, of each gated metric of one benchmark.

    Args:
        bases: its comparable results on the base's side. Where there are none, only the metrics
            that need no base are judged.
        heads: its results on the head's side, one or more, all measured.
        paired: whether the n-th base belongs to the n-th head.
        limits: by metric; they override the heads' own.
    """
    head = heads[-1]
    for name, limit in gated(head, limits).items():
        if name not in head.metrics:
            yield _not_measured(head, name, limit)
        elif bases or limit.kind != "relative":
            yield _series(bases, heads, head.metrics[name], limit, paired)


def removed_metrics(base: Result, head: Result, limits: Mapping[str, str]) -> Iterator[Verdict]:
    """The gated metrics that the base has and the head no longer measures.

    Those with a limit of the head's, or in `limits`, are none: they are not measured.
    """
    for name in gated(base):
        stated = name in head.limits or name in limits
        if name in base.metrics and name not in head.metrics and not stated:
            yield _about(head.id, base.metrics[name], "removed", f"only the base has {name}")


def _series(
    bases: Sequence[Result], heads: Sequence[Result], metric: Metric, limit: Limit, paired: bool
) -> Series | Verdict:
    name = metric.name
    units = {one.metrics[name].unit for one in bases if name in one.metrics}
    if limit.kind == "relative" and units and units != {metric.unit}:
        other = next(iter(units - {metric.unit}))
        reason = f"{name} is in {other or '1'} in base, in {metric.unit or '1'} in head"
        return _about(heads[-1].id, metric, "incomparable", reason, limit)
    pinned = None if paired else sum(one.pinned and name in one.metrics for one in bases) or None
    before = [value_of(one, name) for one in bases]
    now = [value_of(one, name) for one in heads]
    if paired and any(value is not None for value in before):
        both = [pair for pair in zip(before, now, strict=True) if None not in pair]
        before, now = [pair[0] for pair in both], [pair[1] for pair in both]
    base = tuple(value for value in before if value is not None)
    if limit.kind == "relative" and not base:
        return _about(
            heads[-1].id, metric, "no_baseline", f"the base did not measure {name}", limit
        )
    return Series(
        id=heads[-1].id,
        metric=name,
        unit=metric.unit,
        better=metric.better,
        limit=limit,
        base=base,
        head=tuple(value for value in now if value is not None),
        pinned=pinned,
    )


def _not_measured(head: Result, name: str, limit: Limit) -> Verdict:
    reason = f"limit {limit.text} on {name}, which this benchmark does not have"
    return Verdict(
        id=head.id,
        metric=name,
        kind="not_measured",
        limit=limit.text,
        reason=reason + nearest(name, head.metrics),
    )


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
