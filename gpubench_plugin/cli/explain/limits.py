"""Whose limit it is that a metric was judged by."""

from __future__ import annotations

from collections.abc import Mapping


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
    if given.get(metric) == limit:
        return "given with --limit"
    stated = {
        name: side[metric].strip()
        for name, side in (("base", base), ("head", head))
        if metric in side
    }
    whose = [name for name, text in stated.items() if text == limit]
    others = "; ".join(
        f"the {name} states {stated.get(name, 'none')}"
        for name in ("base", "head")
        if name not in whose and (stated or name in stated)
    )
    if len(whose) == 2:
        return "stated by the benchmark, on both sides"
    return "; ".join(
        filter(None, [f"stated on the {whose[0]}" if whose else "the default", others])
    )
