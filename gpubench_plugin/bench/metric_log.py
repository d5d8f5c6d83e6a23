"""Curves of a user's own: the ``log`` events of ``gpubench.log``."""

from __future__ import annotations

import re
from contextlib import contextmanager, suppress
from numbers import Real
from operator import index
from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin.core.errors import Misuse
from gpubench_plugin.core.events import LogEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from gpubench_plugin.measure.clocks.base import Step

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]{0,99}", re.ASCII)
_MAX_REPR: Final = 60


class MetricLog:
    """Writes points of curves to the journal, except within the timed calls."""

    def __init__(self, write: Callable[[Mapping[str, object]], None]):
        self._write = write
        self._is_timed = False

    def log(self, step: object, metrics: Mapping[str, object]) -> None:
        """Write one point of each of the `metrics`.

        Raises:
            Misuse: within a timed call, or the step, a name or a value is none.
        """
        if self._is_timed:
            raise self._problem(
                "called within the step that is measured, which would be timed with it; log "
                "before or after gpubench(…), or in its setup= or teardown="
            )
        number = self._step(step)
        if not metrics:
            raise self._problem("no metric given; write gpubench.log(step=…, loss=…)")
        values = {name: self._value(name, value) for name, value in metrics.items()}
        self._write(LogEvent(step=number, metrics=values).line())

    @contextmanager
    def refused(self) -> Iterator[None]:
        """Context of the timed calls."""
        self._is_timed = True
        try:
            yield
        finally:
            self._is_timed = False

    def around_calls(self, function: Step | None) -> Step | None:
        """Setup or teardown in which logging is allowed again, since it is not timed."""
        if function is None:
            return None

        def untimed() -> object:
            self._is_timed = False
            try:
                return function()
            finally:
                self._is_timed = True

        return untimed

    def _step(self, step: object) -> int:
        if not isinstance(step, bool):
            try:
                number = index(step)  # type: ignore[arg-type] # tells what is no integer
            except TypeError:
                number = -1
            if number >= 0:
                return number
        raise self._problem(f"step={_short(step)}; allowed: an integer from 0")

    def _value(self, name: str, value: object) -> float:
        if problem := name_problem(name):
            raise self._problem(problem)
        read: Any = getattr(value, "item", None)
        has_no_dimension = getattr(value, "ndim", None) == 0  # of torch or numpy
        number: object = read() if read is not None and has_no_dimension else value
        if not isinstance(number, bool) and isinstance(number, Real):
            with suppress(OverflowError):
                return float(number)
        raise self._problem(
            f"{name}={_short(value)}; allowed: a number, or a tensor with one number and no "
            "dimension"
        )

    def _problem(self, text: str) -> Misuse:
        return Misuse(f"gpubench.log: {text}")


def name_problem(name: object) -> str:
    """Why `name` cannot be that of a metric of a user's own; empty if it can."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return ""
    return (
        f"{_short(name)} is no name of a metric; allowed: up to 100 ASCII letters, digits "
        "and . _ / -, beginning with a letter"
    )


def _short(value: object) -> str:
    """What `value` is, for a message: its shape, or a part of its text."""
    shape = getattr(value, "shape", None)
    if shape is not None and getattr(value, "ndim", None):
        return f"a {type(value).__name__} of shape {tuple(shape)}"
    text = " ".join(ascii(value).split())
    return text if len(text) <= _MAX_REPR else f"{text[:_MAX_REPR]}…"
