"""Comparability of two measurements: which facts of machine, settings and clock differ."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from gpubench_plugin.compare.matched_metrics import device_timed
from gpubench_plugin.config import comparable_part
from gpubench_plugin.environment import ABSENT, differences, listed, recorded_lately
from gpubench_plugin.flags import INSTRUMENTED
from gpubench_plugin.measure import FIRST_METHOD
from gpubench_plugin.records import Difference, Result, Run, is_same_amount

_WALL: Final = frozenset({"perf_counter", "monotonic", "time", "default_timer"})
_WAITING: Final = re.compile(r"(cuda|xpu|mps)_synchronised(_|$)")
_MODULE: Final = re.compile(r"(time|timeit)\.")


def alike(one: str, other: str) -> bool:
    """Whether two clocks take the same kind of time, whatever they are called.

    They do if both take the device's, if both take wall time of the host, or else if they have the
    same name. Processor time is of another kind than wall time, and a process's of another than a
    thread's. A clock that waits for the device before it is read is of the kind that it reads.
    """
    return _kind(one) == _kind(other)


def _kind(timer: str) -> str:
    if device_timed(timer):
        return "the device's"
    name = _MODULE.sub("", _WAITING.sub("", timer, count=1), count=1).removesuffix("_ns")
    return "wall time" if name in _WALL or not name else name


_TO_TARGET: Final = "steps_to_target"
_METHOD: Final = "gpubench.measuring_method"

_LONGEST = 40
_MOST_NAMED = 4


def machine_differences(base: Run, head: Run, exempt: Sequence[str]) -> tuple[Difference, ...]:
    """The facts of the machines that differ, without those whose dot key begins as one of `exempt`.

    A fact that is absent on one side differs, unless one of the runs is foreign, or of an earlier
    version that did not record it.
    """
    partly = base.foreign or head.foreign
    return _differences(_machine(base), _machine(head), exempt, partly=partly)


def told_differences(base: Run, head: Run) -> tuple[Difference, ...]:
    """All facts of both runs that differ, those that only are worth saying included."""
    partly = base.foreign or head.foreign
    return (
        *machine_differences(base, head, ()),
        *_differences(base.environment, head.environment, (), partly=partly),
    )


def _machine(run: Run) -> Mapping[str, Any]:
    """Its facts; a record of ours that names no measuring method is of the first one."""
    return run.machine if run.foreign else {_METHOD: FIRST_METHOD, **run.machine}


def settings_differences(
    base: Result, head: Result, exempt: Sequence[str], *, partly: bool
) -> tuple[Difference, ...]:
    """The settings and the clock of a benchmark that differ on both sides.

    A key that one side's settings leave out stands for its default there, which the whole
    configuration knows; where both know it and the values differ, a default that has changed
    between two versions is a difference too. `partly`: a setting one side lacks is none.
    """
    timers: tuple[Difference, ...] = ()
    if not (_same_clock(base.timer, head.timer, partly) or "timer".startswith(tuple(exempt))):
        timers = (Difference(key="timer", base=base.timer, head=head.timer),)
    if base.settings == head.settings and base.configuration == head.configuration:
        return timers
    before, now = _stated(base, head), _stated(head, base)
    return timers + _differences(before, now, exempt, partly=partly)


def work_differences(base: Result, head: Result, exempt: Sequence[str]) -> tuple[Difference, ...]:
    """The amounts of work in a call that differ: of twice the samples no time tells anything.

    Where one side recorded none at all, as earlier versions did, there is no difference. Nor are
    the amounts of a training to a target one, which are what it took.
    """
    if _TO_TARGET in base.metrics and _TO_TARGET in head.metrics:
        return ()
    before, now = base.work or {}, head.work or {}
    return tuple(
        Difference(key=f"work.{name}", base=before.get(name), head=now.get(name))
        for name in differing_amounts(base.work, head.work)
        if not f"work.{name}".startswith(tuple(exempt))
    )


def differing_amounts(
    one: Mapping[str, float] | None, other: Mapping[str, float] | None
) -> tuple[str, ...]:
    """The names of the amounts that differ; none where one side is unknown."""
    if one is None or other is None:
        return ()
    names = dict.fromkeys((*one, *other))
    return tuple(name for name in names if not is_same_amount(one.get(name), other.get(name)))


def fixed_work(result: Result) -> Mapping[str, float] | None:
    """The amounts of work that were asked for; None where nobody knows.

    Nor does anybody of a training to a target, whose amounts are what it took.
    """
    return None if _TO_TARGET in result.metrics else result.work


class Likeness:
    """Whether results may be compared, decided once for each pair of machines.

    `exempt`: beginnings of dot keys of facts or settings that the comparison is about. `allow`:
    call everything comparable, and keep notes of what is not.
    """

    def __init__(self, *, exempt: Sequence[str], allow: bool):
        self._exempt = exempt
        self._allow = allow
        self._machines: dict[tuple[int, int], tuple[Difference, ...]] = {}
        self._notes: dict[str, list[str]] = {}

    def differences(self, base_run: Run, base: Result, head_run: Run, head: Result) -> str:
        """What makes the two incomparable, in words; empty where nothing does or all is allowed."""
        which = id(base_run), id(head_run)
        if which not in self._machines:
            self._machines[which] = machine_differences(base_run, head_run, self._exempt)
        partly = any(one.foreign for one in (base_run, base, head_run, head))
        found = (
            *self._machines[which],
            *settings_differences(base, head, self._exempt, partly=partly),
            *work_differences(base, head, self._exempt),
            *(() if partly else _instrumentation(base, head, self._exempt)),
        )
        if not found:
            return ""
        why = in_words(found)
        if not self._allow:
            return why
        names = self._notes.setdefault(why, [])
        if head.id not in names:
            names.append(head.id)
        return ""

    @property
    def notes(self) -> tuple[str, ...]:
        """One line for each kind of difference that was allowed."""
        return tuple(
            f"compared although they are incomparable ({several(names)}): {why}"
            for why, names in self._notes.items()
        )


def in_words(found: Iterable[Difference]) -> str:
    """The differing keys with both values, shortened: ``gpu.driver 550 in base, 560 in head``."""
    texts = [f"{one.key} {_short(one.base)} in base, {_short(one.head)} in head" for one in found]
    return listed(texts, _MOST_NAMED, separator="; ")


def _instrumentation(base: Result, head: Result, exempt: Sequence[str]) -> Iterator[Difference]:
    """That one side alone was: the facts of the machine do not know what began after them."""
    sides = [INSTRUMENTED in one.flags or None for one in (base, head)]
    if sides[0] != sides[1] and not INSTRUMENTED.startswith(tuple(exempt)):
        yield Difference(key=INSTRUMENTED, base=sides[0], head=sides[1])


def _stated(one: Result, other: Result) -> dict[str, Any]:
    """The comparable keys of `one`: its settings, and what both whole configurations know."""
    known = one.configuration
    keys = {key: known[key] for key in other.configuration if key in known}
    keys |= {key: known[key] for key in other.settings if key in known}
    return comparable_part({**keys, **one.settings})


def _differences(
    base: Mapping[str, Any], head: Mapping[str, Any], exempt: Sequence[str], *, partly: bool
) -> tuple[Difference, ...]:
    return tuple(
        Difference(
            key=key,
            base=None if before is ABSENT else before,
            head=None if now is ABSENT else now,
        )
        for key, (before, now) in differences(base, head).items()
        if not key.startswith(tuple(exempt))
        and not (ABSENT in (before, now) and (partly or recorded_lately(key)))
    )


def _same_clock(base: str, head: str, partly: bool) -> bool:
    """Clocks of foreign files have names of their own: there the kind of time counts."""
    if not base or not head or base == head:
        return True
    return partly and alike(base, head)


def _short(value: object) -> str:
    text = "absent" if value is None else " ".join(str(value).split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def several(names: Sequence[str]) -> str:
    """The only one of `names`, or how many benchmarks they are."""
    return names[0] if len(names) == 1 else f"{len(names)} benchmarks"
