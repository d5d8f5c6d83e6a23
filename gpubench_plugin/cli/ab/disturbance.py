"""Disturbed launches: which pair is measured again, by the machine's flags and nothing else.

Nothing here knows a time that was measured, so that no value is chosen. What a launch raised stays
in the count when its pair is replaced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from gpubench_plugin.cli.ab.sides import SIDES, SideName
from gpubench_plugin.flags import (
    CONTENDED,
    DESCHEDULED,
    DISTURBANCES,
    SUSPENDED,
    THROTTLED,
    disturbances,
)
from gpubench_plugin.records import Run

_ONE_IN: Final = 3
"""At most one pair in so many is measured again."""

Cause = Literal["machine", "base", "head", "always"]
"""What disturbs launches: the ``machine`` now and then, the code of one side, or the machine
``always``, in most pairs, so that another pair would hardly be quieter."""


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One try of a pair: whether the launch of either side was disturbed."""

    pair: int
    base: bool
    head: bool


def is_disturbed(run: Run, ids: Collection[str]) -> bool:
    """Whether at least half of the benchmarks `ids` raised a flag of the machine in that launch."""
    raised = sum(bool(disturbances(run.results[i].flags)) for i in ids if i in run.results)
    return raised > 0 and 2 * raised >= len(ids)


def cause(attempts: Sequence[Attempt]) -> Cause | None:
    """What disturbs the launches of these `attempts`; None where nothing does.

    What the machine does meets both sides alike. So one side's code is taken for it where that side
    was disturbed twice to none, four times to one, six to two, and so on.
    """
    counts: dict[SideName, int] = {
        "base": sum(one.base for one in attempts),
        "head": sum(one.head for one in attempts),
    }
    more, less = sorted(SIDES, key=lambda side: -counts[side])
    if not counts[more]:
        return None
    if counts[more] > 2 * counts[less] + 1:
        return more
    disturbed = sum(one.base or one.head for one in attempts)
    return "always" if 2 * disturbed > len(attempts) else "machine"


def to_repeat(attempts: Sequence[Attempt], *, looked: int) -> int | None:
    """The pair that is measured again before the next look, or None.

    Of each pair the last of all `attempts`, which are in order, counts; pairs up to `looked` were
    judged by a look, and stay as they are.
    """
    pairs = {one.pair: one for one in attempts}
    replaced = len(attempts) - len(pairs)
    if replaced >= len(pairs) // _ONE_IN or cause(attempts) != "machine":
        return None
    disturbed = (one.pair for one in pairs.values() if one.base or one.head)
    return next((pair for pair in disturbed if pair > looked), None)


def may_hide(attempts: Sequence[Attempt]) -> bool:
    """Whether a pair was replaced though only the head was ever disturbed.

    What was replaced may then be one of the slow launches of a head that is slow in a few.
    """
    replaced = len(attempts) > len({one.pair for one in attempts})
    return replaced and not any(one.base for one in attempts)


def disturbance_notes(
    launches: Mapping[SideName, Sequence[Run]], attempts: Sequence[Attempt]
) -> Iterator[str]:
    """How many of `launches` were disturbed, by what, what was measured again, and what to do.

    Those of pairs that were replaced are among them.
    """
    disturbed = {
        side: [run for run in runs if is_disturbed(run, run.results)]
        for side, runs in launches.items()
    }
    counts = Counter(
        name
        for runs in disturbed.values()
        for run in runs
        for name in raised_flags(run, run.results)
    )
    if not counts:
        return
    sides = ", ".join(f"{len(disturbed[s])} of {len(launches[s])} of the {s}" for s in SIDES)
    flags = ", ".join(f"{name} {counts[name]}" for name in DISTURBANCES if counts[name])
    yield f"disturbed launches: {sides} ({flags}); {_repeats(attempts)}"
    remedies = dict.fromkeys(_REMEDIES[name] for name in DISTURBANCES if counts[name])
    yield f"quiet the machine: {'; '.join(remedies)}"


_REMEDIES: Final[Mapping[str, str]] = {
    CONTENDED: "close what else runs, or measure with fewer threads (OMP_NUM_THREADS)",
    THROTTLED: "lock the GPU's clocks (nvidia-smi --lock-gpu-clocks)",
    DESCHEDULED: "close what else runs, or measure with fewer threads (OMP_NUM_THREADS)",
    SUSPENDED: "let nothing stop the launches, nor put the machine to sleep",
}


def raised_flags(run: Run, ids: Collection[str]) -> list[str]:
    """The machine's flags of those benchmarks in a launch, each once."""
    raised = {name for i in ids if i in run.results for name in disturbances(run.results[i].flags)}
    return [name for name in DISTURBANCES if name in raised]


def _repeats(attempts: Sequence[Attempt]) -> str:
    """How many pairs were measured again, and why no more."""
    replaced = len(attempts) - len({one.pair for one in attempts})
    words = f"pairs measured again: {replaced or 'none'}"
    why = cause(attempts)
    if why == "always":
        return f"{words}, since in most pairs a launch was disturbed: others would be, too"
    if why in SIDES:
        return f"{words}, since it was the {why} more than twice as often: it may be its code"
    return words
