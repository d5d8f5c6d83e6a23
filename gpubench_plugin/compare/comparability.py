"""Comparability of two measurements: which facts of machine, settings and clock differ."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from gpubench_plugin.compare.matched_metrics import is_device_timed
from gpubench_plugin.config.case import comparable_part
from gpubench_plugin.core.format import listed
from gpubench_plugin.core.quality_flags import INSTRUMENTED
from gpubench_plugin.core.records import Result, Run, is_same_amount
from gpubench_plugin.core.verdicts import FactDifference
from gpubench_plugin.environment.fingerprints import ABSENT, differences, tolerates_unknown

_WALL_CLOCKS: Final = frozenset({"perf_counter", "monotonic", "time", "default_timer"})
_SYNCHRONISED: Final = re.compile(r"(cuda|xpu|mps)_synchronised(_|$)")
_MODULE: Final = re.compile(r"(time|timeit)\.")


def kind_of_time(timer: str) -> str:
    """The kind of time that a clock measures, whatever its name.

    That is device time, wall time of the host, or else its own: processor time is another kind than
    wall time, and a process's another than a thread's. Synchronising with the device before a clock
    is read does not change its kind.
    """
    if is_device_timed(timer):
        return "device time"
    name = _MODULE.sub("", _SYNCHRONISED.sub("", timer, count=1), count=1).removesuffix("_ns")
    return "wall time" if name in _WALL_CLOCKS or not name else name


_TO_TARGET: Final = "steps_to_target"

# To fit into a few lines of a table.
_LONGEST_VALUE: Final = 40
_MOST_NAMED: Final = 4


def is_same_machine(base: Run, head: Run) -> bool:
    """Whether what all benchmarks of a run share is equal; a foreign run may lack facts."""
    return not _differences(base.machine, head.machine, is_partial=base.foreign or head.foreign)


def machine_differences(
    base_run: Run, base: Result, head_run: Run, head: Result
) -> tuple[FactDifference, ...]:
    """Facts that differ of what measured a benchmark.

    One that a side lacks does not, if its run is foreign or did not measure the benchmark.
    """
    machines = base_run.machine_of(base), head_run.machine_of(head)
    is_measured = {base.outcome, head.outcome} == {"measured"}
    is_partial = base_run.foreign or head_run.foreign or not is_measured
    return _differences(*machines, is_partial=is_partial)


def reported_differences(base: Run, head: Run) -> Iterator[FactDifference]:
    """All facts that differ for any benchmark of both runs, then merely informative ones.

    A run without any, since no benchmark was selected, differs in none.
    """
    for name, result in head.results.items():
        if name in base.results:
            yield from machine_differences(base, base.results[name], head, result)
    is_partial = base.foreign or head.foreign or not (base.environment and head.environment)
    yield from _differences(base.environment, head.environment, is_partial=is_partial)


def settings_differences(
    base: Result, head: Result, *, is_partial: bool
) -> tuple[FactDifference, ...]:
    """Settings and clocks of a benchmark that differ between the sides.

    A key missing from one side's settings has its default there, from the whole configuration; a
    default that changed between two versions differs, too. `is_partial`: a missing setting does
    not differ.
    """
    differences: tuple[FactDifference, ...] = ()
    kind_of = kind_of_time if is_partial else str  # the names of foreign timers differ
    if "" not in {base.timer, head.timer} and kind_of(base.timer) != kind_of(head.timer):
        differences = (FactDifference(key="timer", base=base.timer, head=head.timer),)
    if (base.settings, base.configuration) != (head.settings, head.configuration):
        settings = _comparable_settings(base, head), _comparable_settings(head, base)
        differences += _differences(*settings, is_partial=is_partial)
    return differences


def work_differences(base: Result, head: Result) -> tuple[FactDifference, ...]:
    """Differences in the amounts of work per call, which make times incomparable.

    None where a side has no amounts, as foreign files, or both trained to a target: then the
    amounts are part of the result.
    """
    if _TO_TARGET in base.metrics and _TO_TARGET in head.metrics:
        return ()
    base_work, head_work = base.work or {}, head.work or {}
    return tuple(
        FactDifference(key=f"work.{name}", base=base_work.get(name), head=head_work.get(name))
        for name in differing_amounts(base.work, head.work)
    )


def differing_amounts(
    first: Mapping[str, float] | None, second: Mapping[str, float] | None
) -> tuple[str, ...]:
    """Names of the amounts that differ; none if one side is unknown.

    FLOPs may be uncounted: those of a model that needs values, as one that has come to read the
    device.
    """
    if first is None or second is None:
        return ()
    names = dict.fromkeys((*first, *second))
    if "flops" not in first or "flops" not in second:
        names.pop("flops", None)
    return tuple(name for name in names if not is_same_amount(first.get(name), second.get(name)))


def requested_work(result: Result) -> Mapping[str, float] | None:
    """Requested amounts of work; None if unknown, or of a training to a target."""
    return None if _TO_TARGET in result.metrics else result.work


class Comparability:
    """Comparability of results.

    `exempt` are prefixes of dot keys of facts or settings under comparison. `allow` turns
    differences into notes.
    """

    def __init__(self, *, exempt: Sequence[str], allow: bool):
        self._exempt_prefixes = tuple(exempt)
        self._allow = allow
        self._notes: dict[str, dict[str, None]] = {}

    def differences(self, base_run: Run, base: Result, head_run: Run, head: Result) -> str:
        """Describe what makes the two incomparable; empty if nothing, or if allowed."""
        is_partial = any(side.foreign for side in (base_run, base, head_run, head))
        all_differences = (
            *machine_differences(base_run, base, head_run, head),
            *settings_differences(base, head, is_partial=is_partial),
            *work_differences(base, head),
            *(() if is_partial else _instrumentation_differences(base, head)),
        )
        prefixes = self._exempt_prefixes
        text = differences_text(d for d in all_differences if not d.key.startswith(prefixes))
        if text and self._allow:
            self._notes.setdefault(text, {})[head.id] = None
            return ""
        return text

    @property
    def notes(self) -> tuple[str, ...]:
        """One line per kind of allowed difference."""
        return tuple(
            f"compared although incomparable ({names_or_count([*names])}): {text}"
            for text, names in self._notes.items()
        )


def differences_text(all_differences: Iterable[FactDifference]) -> str:
    """Differing keys with both values, shortened: ``gpu.driver 550 in base, 560 in head``."""
    texts = [
        f"{difference.key} {_short(difference.base)} in base, {_short(difference.head)} in head"
        for difference in all_differences
    ]
    return listed(texts, _MOST_NAMED, separator="; ")


def _instrumentation_differences(base: Result, head: Result) -> Iterator[FactDifference]:
    """Instrumentation of one side only, which may begin after the machine facts are recorded."""
    sides = [INSTRUMENTED in r.flags or None for r in (base, head)]
    if sides[0] != sides[1]:
        yield FactDifference(key=INSTRUMENTED, base=sides[0], head=sides[1])


def _comparable_settings(r: Result, counterpart: Result) -> dict[str, Any]:
    """Comparable keys of `r`: its settings, and what both full configurations define."""
    keys = (*counterpart.configuration, *counterpart.settings)
    defaults = {key: r.configuration[key] for key in keys if key in r.configuration}
    return comparable_part({**defaults, **r.settings})


def _differences(
    base: Mapping[str, Any], head: Mapping[str, Any], *, is_partial: bool
) -> tuple[FactDifference, ...]:
    return tuple(
        FactDifference(
            key=key,
            base=None if base_value is ABSENT else base_value,
            head=None if head_value is ABSENT else head_value,
        )
        for key, (base_value, head_value) in differences(base, head).items()
        if not (ABSENT in (base_value, head_value) and (is_partial or tolerates_unknown(key)))
    )


def _short(value: object) -> str:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = "absent" if value is None else " ".join(str(value).split())
    return text if len(text) <= _LONGEST_VALUE else f"{text[: _LONGEST_VALUE - 1]}…"


def names_or_count(names: Sequence[str]) -> str:
    """The only name, or the number of benchmarks."""
    return names[0] if len(names) == 1 else f"{len(names)} benchmarks"
