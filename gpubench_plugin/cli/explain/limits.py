"""Whose limit it is that a metric was judged by."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_STEP_TIMES: Final = ("step_time_min_s", "step_time_s")
_RATES: Final = ("_per_s", "_mean_s")


def origin(
    metric: str,
    limit: str,
    *,
    given: Mapping[str, str] = {},
    base: Mapping[str, str],
    head: Mapping[str, str],
) -> str:
    """Who stated the `limit` of `metric`, in words, and what the other side states.

    Args:
        metric: its name.
        limit: its text in the verdict.
        given: limits by metric of the command line.
        base: those that the base's result states: of the mark, the configuration or pytest's
            command line.
        head: those that the head's result states.
    """
    if _stated(given, metric, limit) == limit:
        return "given with --limit"
    sides = {"base": base, "head": head}
    texts = {name: _stated(side, metric, limit) for name, side in sides.items()}
    stated = {name: text for name, text in texts.items() if text is not None}
    whose = [name for name, text in stated.items() if text == limit]
    others = "; ".join(
        f"the {name} states {stated.get(name, 'none')}"
        for name in sides
        if name not in whose and stated
    )
    if len(whose) == len(sides):
        return "stated by the benchmark, on both sides"
    return "; ".join(
        filter(None, [f"stated on the {whose[0]}" if whose else "the default", others])
    )


def _stated(side: Mapping[str, str], metric: str, limit: str) -> str | None:
    """What a side states of the metric: a limit on one step time counts for the other one, too.

    So it does for the rate, where it is the wider one.
    """
    if metric in side:
        return side[metric].strip()
    texts = [side[name].strip() for name in _STEP_TIMES if name in side]
    follows = metric in _STEP_TIMES or (limit in texts and metric.endswith(_RATES))
    return texts[0] if follows and texts else None
