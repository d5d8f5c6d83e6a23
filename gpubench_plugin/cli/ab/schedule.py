"""The schedule of launches: pairs in turns, A B then B A, and rounds fixed after the first pair.

All later launches time each benchmark in that number of rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from math import inf
from pathlib import Path
from time import monotonic
from typing import Final

from gpubench_plugin.cli.ab.sides import SIDES, SideName
from gpubench_plugin.config import FrozenRounds, to_text
from gpubench_plugin.environment import json_files
from gpubench_plugin.errors import ResultsError
from gpubench_plugin.results import RunDirectory, StoredRun


def frozen(
    base: Mapping[str, FrozenRounds], head: Mapping[str, FrozenRounds]
) -> dict[str, FrozenRounds]:
    """One plan for both sides: the base's, with the larger number of rounds."""
    return {
        node_id: replace(plan, rounds=max(plan.rounds, head[node_id].rounds))
        for node_id, plan in base.items()
        if node_id in head
    }


def freeze(file: Path, base: Path, head: Path) -> None:
    """Write into `file` what the runs in the folders `base` and `head` took.

    Raises:
        ResultsError: a journal cannot be read, or the file not be written.
    """
    try:
        base_rounds, head_rounds = (
            StoredRun(RunDirectory(path=run)).rounds() for run in (base, head)
        )
        plans = frozen(base_rounds, head_rounds)
    except (KeyError, TypeError) as error:
        raise ResultsError(f"{base} or {head} is not as it was written: {error!r}") from error
    json_files.write_text(file, to_text(plans))


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


class Budget:
    """The time that a comparison may take, from now on; without end where `seconds` is None.

    Time that the machine sleeps does not count.
    """

    def __init__(self, seconds: float | None, now: Callable[[], float] = monotonic):
        self._now = now
        self._end = inf if seconds is None else now() + seconds

    @property
    def left_s(self) -> float:
        """Seconds that are left, infinite without an end; below 0 when they are over."""
        return self._end - self._now()
