"""Events of a measurement in the journal: its progress, and what ``gpubench.log`` is given."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from time import monotonic
from typing import Any, Final

from gpubench_plugin.bench.step import as_number, short_repr
from gpubench_plugin.core.errors import Misuse
from gpubench_plugin.core.events import LogEvent, PhaseEvent, ProgressEvent
from gpubench_plugin.core.records import Work
from gpubench_plugin.measure.clocks.base import Step
from gpubench_plugin.measure.protocols import Log
from gpubench_plugin.measure.stopping import Progress

# Between two events of progress: they are for eyes, and none costs more than 0.1 ms.
INTERVAL_S: Final = 1.0

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]{0,99}", re.ASCII)


class ProgressLog:
    """Logs the begin of a measurement, and its progress at most once a second.

    `work` is that of a call on this rank; of `world_size` ranks each is taken to do as much.
    """

    def __init__(self, log: Log, work: Work, world_size: int):
        self._log = log
        self._amounts = {
            name: amount * world_size
            for name, amount in work.known_amounts.items()
            if name in ("samples", "tokens")
        }
        self._due_s = 0.0

    def begin(self) -> None:
        """The timed calls begin now."""
        self._log(PhaseEvent(phase="measure").line())
        self._due_s = monotonic() + INTERVAL_S

    def block_ended(self, progress: Progress) -> None:
        """Log the `progress` after a block, if it is time."""
        now_s = monotonic()
        if now_s < self._due_s:
            return
        self._due_s = now_s + INTERVAL_S
        step_s, half_width = progress.step_s, progress.recording.half_width
        event = ProgressEvent(
            rounds=progress.recording.rounds,
            calls=progress.recording.calls,
            half_width=half_width if half_width < math.inf else None,
            step_s=step_s,
            elapsed_s=progress.elapsed_s,
            remaining_s=progress.remaining_s,
            **{f"{name}_per_s": amount / step_s for name, amount in self._amounts.items()},
        )
        self._log(event.line())


class MetricLog:
    """Writes points of curves to the journal, except within the timed calls."""

    def __init__(self, write: Log):
        self._write = write
        self._is_timed = False

    def log(self, step: object, metrics: Mapping[str, object]) -> None:
        """Write one point of each of the `metrics`.

        Raises:
            Misuse: within a timed call, or the step, a name or a value is none.
        """
        if self._is_timed:
            raise Misuse(
                "gpubench.log: called within the step that is measured, which would be timed with "
                "it; log before or after gpubench(…), or in its setup= or teardown="
            )
        number = _number(step)
        if number is None or number < 0 or not number.is_integer():
            raise Misuse(f"gpubench.log: step={short_repr(step)}; allowed: an integer from 0")
        if not metrics:
            raise Misuse("gpubench.log: no metric given; write gpubench.log(step=…, loss=…)")
        values = {name: self._value(name, value) for name, value in metrics.items()}
        self._write(LogEvent(step=int(number), metrics=values).line())

    @contextmanager
    def refused(self, *, is_timed: bool = True) -> Iterator[None]:
        """Context of the timed calls; within it, of one that is not timed."""
        self._is_timed = is_timed
        try:
            yield
        finally:
            self._is_timed = not is_timed

    def around_calls(self, function: Step | None) -> Step | None:
        """Setup or teardown in which logging is allowed again, since it is not timed."""
        if function is None:
            return None

        def untimed() -> object:
            with self.refused(is_timed=False):
                return function()

        return untimed

    def _value(self, name: str, value: object) -> float:
        if problem := name_problem(name):
            raise Misuse(f"gpubench.log: {problem}")
        number = _number(value)
        if number is None:
            raise Misuse(
                f"gpubench.log: {name}={short_repr(value)}; allowed: a number, or a tensor with "
                "one number and no dimension"
            )
        return number


def _number(value: Any) -> float | None:
    """`value`, which may be a tensor of torch or numpy, as a float; None if it is no number."""
    has_no_dimension = getattr(value, "ndim", None) == 0
    return as_number(value.item() if has_no_dimension and hasattr(value, "item") else value)


def name_problem(name: object) -> str:
    """Why `name` cannot be that of a metric of a user's own; empty if it can."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return ""
    return (
        f"{short_repr(name)} is no name of a metric; allowed: up to 100 ASCII letters, digits "
        "and . _ / -, beginning with a letter"
    )
