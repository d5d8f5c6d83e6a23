"""Origin of the limit that a metric was judged by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from gpubench_plugin.records import Verdict
from gpubench_plugin.reports import split_verdict

_STEP_TIMES: Final = ("step_time_min_s", "step_time_s")
_RATES: Final = ("_per_s", "_mean_s")


def origins(
    verdicts: Iterable[Verdict],
    *,
    given: Mapping[str, str] = {},
    base: Mapping[str, str],
    head: Mapping[str, str],
) -> dict[str, str]:
    """By metric whose limit it is that one of the `verdicts` was judged by, see :func:`origin`."""
    return {
        one.metric: origin(one.metric, one.limit, cli_limits=given, base=base, head=head)
        for verdict in verdicts
        for one in split_verdict(verdict)
        if one.metric and one.limit
    }


def origin(
    metric: str,
    limit: str,
    *,
    cli_limits: Mapping[str, str] = {},
    base: Mapping[str, str],
    head: Mapping[str, str],
) -> str:
    """Describe who stated the `limit` of `metric`, and what the other side states.

    `cli_limits` are limits by metric of the command line, `base` and `head` those that the results
    of the sides state: of the mark, the configuration or pytest's command line.
    """
    if _stated(cli_limits, metric, limit) == limit:
        return "from --limit"
    sides = {"base": base, "head": head}
    texts = {name: _stated(side, metric, limit) for name, side in sides.items()}
    stated_limits = {name: text for name, text in texts.items() if text is not None}
    stating_sides = [name for name, text in stated_limits.items() if text == limit]
    if len(stating_sides) == len(sides):
        return "stated by the benchmark, on both sides"
    other_limits = [name for name in sides if name not in stating_sides and stated_limits]
    return "; ".join(
        [
            f"stated on the {stating_sides[0]}" if stating_sides else "the default",
            *(f"the {name} states {stated_limits.get(name, 'none')}" for name in other_limits),
        ]
    )


def _stated(side: Mapping[str, str], metric: str, limit: str) -> str | None:
    """The side's own limit of the metric; limits on one step time also apply to the other.

    So it does for the rate, where it is the wider one.
    """
    if metric in side:
        return side[metric].strip()
    texts = [side[name].strip() for name in _STEP_TIMES if name in side]
    is_derived = metric in _STEP_TIMES or (limit in texts and metric.endswith(_RATES))
    return texts[0] if is_derived and texts else None
