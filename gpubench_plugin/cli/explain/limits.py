"""Whose limit it is that a metric was judged by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from gpubench_plugin.records import Verdict
from gpubench_plugin.reports import numbers_of

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
        one.metric: origin(one.metric, one.limit, given=given, base=base, head=head)
        for verdict in verdicts
        for one in numbers_of(verdict)
        if one.metric and one.limit
    }


def origin(
    metric: str,
    limit: str,
    *,
    given: Mapping[str, str] = {},
    base: Mapping[str, str],
    head: Mapping[str, str],
) -> str:
    """Who stated the `limit` of `metric`, in words, and what the other side states.

    `given` are limits by metric of the command line, `base` and `head` those that the results of
    the sides state: of the mark, the configuration or pytest's command line.
    """
    if _stated(given, metric, limit) == limit:
        return "given with --limit"
    sides = {"base": base, "head": head}
    texts = {name: _stated(side, metric, limit) for name, side in sides.items()}
    stated = {name: text for name, text in texts.items() if text is not None}
    whose = [name for name, text in stated.items() if text == limit]
    if len(whose) == len(sides):
        return "stated by the benchmark, on both sides"
    others = [name for name in sides if name not in whose and stated]
    return "; ".join(
        [
            f"stated on the {whose[0]}" if whose else "the default",
            *(f"the {name} states {stated.get(name, 'none')}" for name in others),
        ]
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
