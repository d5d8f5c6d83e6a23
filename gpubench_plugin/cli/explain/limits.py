"""Origin of the limit that a metric was judged by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from gpubench_plugin.core.records import Verdict
from gpubench_plugin.reports.explanation import split_verdict

_STEP_TIMES: Final = ("step_time_min_s", "step_time_s")
_RATES: Final = ("_per_s", "_mean_s")


def origins(
    verdicts: Iterable[Verdict],
    *,
    cli_limits: Mapping[str, str] = {},
    base: Mapping[str, str],
    head: Mapping[str, str],
) -> dict[str, str]:
    """Origin of the limit of each judged metric, see :func:`origin`."""
    return {
        part.metric: origin(part.metric, part.limit, cli_limits=cli_limits, base=base, head=head)
        for verdict in verdicts
        for part in split_verdict(verdict)
        if part.metric and part.limit
    }


def units_of(verdicts: Iterable[Verdict]) -> dict[str, str]:
    """Units of the judged metrics."""
    parts = (part for verdict in verdicts for part in split_verdict(verdict))
    return {part.metric: part.unit for part in parts if part.metric}


def origin(
    metric: str,
    limit: str,
    *,
    cli_limits: Mapping[str, str] = {},
    base: Mapping[str, str],
    head: Mapping[str, str],
) -> str:
    """Describe where the `limit` of `metric` was stated, and what the other side states.

    `cli_limits` are from ``--limit``, by metric; `base` and `head` from the sides' results: their
    marks, configuration or pytest command line.
    """
    if _stated(cli_limits, metric, limit) == limit:
        return "from --limit"
    sides = {"base": base, "head": head}
    texts = {name: _stated(side, metric, limit) for name, side in sides.items()}
    stated_limits = {name: text for name, text in texts.items() if text is not None}
    stating_sides = [name for name, text in stated_limits.items() if text == limit]
    if len(stating_sides) == len(sides):
        return "stated by the benchmark, on both sides"
    clauses = [f"stated on the {stating_sides[0]}" if stating_sides else "the default"]
    others = [name for name in sides if name not in stating_sides and stated_limits]
    clauses += [f"the {name} states {stated_limits.get(name, 'none')}" for name in others]
    return "; ".join(clauses)


def _stated(side: Mapping[str, str], metric: str, limit: str) -> str | None:
    """The side's limit of the metric; that of one step time applies to the other, too.

    Also to the rate, if it is the wider one.
    """
    if metric in side:
        return side[metric].strip()
    texts = [side[name].strip() for name in _STEP_TIMES if name in side]
    is_derived = metric in _STEP_TIMES or (limit in texts and metric.endswith(_RATES))
    return texts[0] if is_derived and texts else None
