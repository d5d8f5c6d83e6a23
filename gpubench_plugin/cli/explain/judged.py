"""The common part of explaining a verdict: points, the origin of its limits, cures of its flags."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from gpubench_plugin.compare.matched_metrics import compared_metric, value_of
from gpubench_plugin.core.quality_flags import doubtful_flags, explanation
from gpubench_plugin.core.records import MINIMUM, STEP_TIME, Result
from gpubench_plugin.core.verdicts import Verdict
from gpubench_plugin.reports.explanation import (
    Explanation,
    PlotPoint,
    Recommendation,
    Role,
    split_verdict,
)

# Share of launches with a flag from which on advice about it is worth while.
_MOSTLY: Final = 0.5
_STEP_TIMES: Final = (MINIMUM, STEP_TIME)
_RATES: Final = ("_per_s", "_mean_s")

Measured = tuple[str, Role, Result, int]
"""What measured the benchmark, a run or launch: label, role, result, and number of the pair."""
Limits = Mapping[str, str]
"""Limits by metric."""


def judged_explanation(
    verdicts: Sequence[Verdict],
    measured: Iterable[Measured],
    *,
    stated: Mapping[str, Limits],
    **fields: Any,
) -> Explanation:
    """Explanation of the `verdicts` by what was `measured`, in time order.

    `stated` are the limits that the ``base`` and the ``head`` state and, first, those of
    ``--limit``.
    """
    parts = [part for verdict in verdicts for part in split_verdict(verdict) if part.metric]
    units = {part.metric: part.unit for part in parts}
    measured = [*measured]
    latest = measured[-1][2].metrics if measured else {}
    names = {part.metric: compared_metric(part, latest) for part in parts}
    return Explanation(
        verdicts=tuple(verdicts),
        points=tuple(
            PlotPoint(
                label=label,
                role=role,
                values={m: v for m, n in names.items() if (v := value_of(result, n)) is not None},
                flags=result.flags,
                pair=pair,
            )
            for label, role, result, pair in measured
        ),
        units=units,
        limits={
            part.metric: limit_origin(part.metric, part.limit, **stated)
            for part in parts
            if part.limit
        },
        **fields,
    )


def limit_origin(
    metric: str, limit: str, *, base: Limits, head: Limits, options: Mapping[str, str] = {}
) -> str:
    """Describe where the `limit` of `metric` was stated, and what the other side states.

    `options` are from ``--limit``; `base` and `head` from the sides' results: their marks,
    configuration or pytest command line.
    """
    if _stated(options, metric, limit) == limit:
        return "from --limit"
    texts = {name: _stated(side, metric, limit) for name, side in (("base", base), ("head", head))}
    clauses = [] if limit in texts.values() else ["the default"]
    if any(texts.values()):
        clauses += [f"the {name} states {text or 'none'}" for name, text in texts.items()]
    return "; ".join(clauses)


def _stated(side: Limits, metric: str, limit: str) -> str | None:
    """The side's limit of the metric; that of one step time applies to the other, too.

    Also to the rate, if it is the wider one.
    """
    if metric in side:
        return side[metric].strip()
    texts = [side[name].strip() for name in _STEP_TIMES if name in side]
    is_derived = metric in _STEP_TIMES or (limit in texts and metric.endswith(_RATES))
    return texts[0] if is_derived and texts else None


def cures(points: Sequence[PlotPoint]) -> Iterator[Recommendation]:
    """Advice on each doubtful flag that most of the launches raised."""
    counts = Counter(flag for point in points for flag in doubtful_flags(point.flags))
    flags = {flag for point in points for flag in point.flags}
    for flag, count in counts.items():
        if count > _MOSTLY * len(points):
            raised = f"{flag} ({count} of {len(points)} launches)"
            yield Recommendation(text=f"{raised}: {explanation(flag, flags)}")
