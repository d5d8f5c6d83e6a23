"""Suites of which some launches are disturbed, and which of their pairs are measured again.

A disturbed launch flags all benchmarks and takes longer in each, as beside a busy process. What may
be repeated is decided by the code that does so in ``gpubench ab``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from gpubench_plugin.cli.ab.disturbance import Attempt, may_hide_slow_launches, pair_to_remeasure
from gpubench_plugin.compare.looks import LOOK, PAIRS, UNCHANGED_FROM
from gpubench_plugin.compare.statistics import Bools, Floats
from tests.support.simulation import BENCHMARKS, LIMIT, Kinds, sequential, slower

NOISE: Final = 0.005
_MOST: Final = PAIRS + PAIRS // 3
"""Pairs that a suite can have with those that are measured again."""


@dataclass(frozen=True, kw_only=True)
class Disturbed:
    """A machine, and a head.

    Attributes:
        share: of the launches that the machine disturbs.
        burst: launches in a row that are, on average.
        slowdown: of a disturbed launch, on average; that of each benchmark varies by half of it.
        effect: how much slower the first benchmark of the head is.
        flagged: share of the head's launches that raise a flag by themselves.
        flagged_effect: how much slower the first benchmark is in these.
    """

    share: float = 0.0
    burst: float = 1.0
    slowdown: float = 0.3
    effect: float = 0.0
    flagged: float = 0.0
    flagged_effect: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The verdicts of suites, and how many pairs of each were measured again."""

    kinds: Kinds
    repeats: Floats


def judged(case: Disturbed, suites: int, seed: int, *, repeating: bool) -> Outcome:
    """What the paired gate makes of so many suites; equal seeds give the same launches."""
    generator = np.random.default_rng(seed)
    launches = _disturbed(case, generator, suites)  # (suites, pairs, sides)
    flags = launches.copy()
    values = NOISE * generator.standard_normal((2, suites, BENCHMARKS, _MOST))
    extra = np.abs(generator.normal(case.slowdown, case.slowdown / 2, values.shape))
    values += np.log1p(extra) * launches.transpose(2, 0, 1)[:, :, None, :]
    own = generator.random((suites, _MOST)) < case.flagged
    flags[..., 1] |= own
    base, head = values[0], slower(values[1], case.effect)
    head[:, 0] += np.log1p(case.flagged_effect) * own
    tries = [_tries(suite, repeating=repeating) for suite in flags]
    counting = np.array([_counting(one) for one in tries])
    differences = np.take_along_axis(head - base, counting[:, None], axis=-1)
    soon, late = (
        sequential(differences, LIMIT, unchanged_from).kinds
        for unchanged_from in (UNCHANGED_FROM, UNCHANGED_FROM + LOOK)
    )
    waits = np.array([may_hide_slow_launches(one) for one in tries])
    return Outcome(
        kinds=np.where(waits[:, None], late, soon),
        repeats=np.array([len(one) - PAIRS for one in tries]),
    )


def _disturbed(case: Disturbed, generator: np.random.Generator, suites: int) -> Bools:
    """Which launches the machine disturbs, in the order of time, shaped (suites, pairs, sides)."""
    draws = generator.random((2 * _MOST, suites))
    stays = 1 - 1 / case.burst
    begins = case.share * (1 - stays) / (1 - case.share) if case.burst > 1 else case.share
    state = draws[0] < case.share
    states = [state]
    for draw in draws[1:]:
        state = draw < np.where(state, stays if case.burst > 1 else case.share, begins)
        states.append(state)
    return np.stack(states, axis=1).reshape(suites, _MOST, 2)


def _tries(flags: Bools, *, repeating: bool) -> list[Attempt]:
    """All pairs that were measured, in the order of time."""
    tries: list[Attempt] = []
    for looked in range(0, PAIRS, LOOK):
        for pair in range(looked + 1, looked + LOOK + 1):
            tries.append(_attempt(pair, flags[len(tries)]))
        while repeating and (again := pair_to_remeasure(tries, judged_up_to=looked)):
            tries.append(_attempt(again.pair, flags[len(tries)]))
    return tries


def _counting(tries: list[Attempt]) -> list[int]:
    """Which of the tries counts for each pair that is judged."""
    last = {one.pair: number for number, one in enumerate(tries)}
    return [last[pair] for pair in range(1, PAIRS + 1)]


def _attempt(pair: int, flags: Bools) -> Attempt:
    base, head = (("contended",) * bool(flag) for flag in flags)
    return Attempt(pair=pair, flags={"base": base, "head": head})
