"""Which launch comes when: pairs in turns, A B then B A, and the pairs after which one looks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from gpubench_plugin.cli.ab.sides import SIDES, SideName

REHEARSAL: Final = 0
"""The number of the pair that is not judged; the judged ones count from 1."""


def order(pair: int, seed: int) -> tuple[SideName, SideName]:
    """Which side goes first in that pair: each in turn, the seed says which begins.

    So what drifts slowly, the machine's temperature for example, meets both sides alike.
    """
    first, second = SIDES
    return (first, second) if (pair + seed) % 2 == 0 else (second, first)


def longest_left(
    *, pairs_left: int, seconds: Mapping[SideName, Iterable[float]], running: Iterable[SideName]
) -> float | None:
    """Seconds until the last pair has ended, if every later launch lasts as the latest ones did.

    Args:
        pairs_left: whole pairs that have not begun.
        seconds: durations of each side's launches so far, in order.
        running: sides of the pair at hand that have not ended.

    Returns:
        None before both sides were launched once.
    """
    latest: dict[SideName, float] = {}
    for side, durations in seconds.items():
        recent = list(durations)[-2:]
        if recent:
            latest[side] = sum(recent) / len(recent)
    if len(latest) < len(SIDES):
        return None
    return pairs_left * sum(latest.values()) + sum(latest[side] for side in running)
