"""Timed step: its subject and amounts, and validation of its first call."""

from __future__ import annotations

import math
from dataclasses import dataclass
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import TYPE_CHECKING, Final

from gpubench_plugin.bench.misuse import (
    argument_reason,
    as_number,
    as_subject,
    calls_nothing,
    close_coroutines,
    is_function,
    referenced_subjects,
    result_reason,
    short_repr,
    unfinished_reason,
)
from gpubench_plugin.core.errors import CorrectnessError, Misuse
from gpubench_plugin.core.records import Work, is_same_amount

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpubench_plugin.measure.clocks.base import Step
    from gpubench_plugin.measure.protocols import Subject

_LAZY_FUNCTIONS: Final = (iscoroutinefunction, isgeneratorfunction, isasyncgenfunction)


@dataclass(frozen=True, kw_only=True)
class TimedStep:
    """Callable with setup and teardown of every call, and the subject that it advances, if any."""

    call: Step
    subject: Subject | None
    setup: Step | None
    teardown: Step | None

    def run(self) -> object:
        """Call the step once, untimed, with its setup and teardown, and return its result."""
        return self._run(self.call)

    def run_briefly(self) -> None:
        """An equivalent, possibly shorter call: the first steps of a whole training."""
        self._run(getattr(self.subject, "short_step", self.call))

    def _run(self, call: Step) -> object:
        if self.setup is not None:
            self.setup()
        result = call()
        if self.teardown is not None:
            self.teardown()
        return result

    @classmethod
    def of(
        cls,
        target: object,
        *,
        setup: Step | None,
        teardown: Step | None,
        subjects: Sequence[Subject] = (),
    ) -> TimedStep:
        """Resolve the `target` of the bench: a subject, its own step, or any callable.

        `subjects` are the benchmark's, one of which may have returned what was passed.

        Raises:
            Misuse: one is not callable without arguments, or `setup` or `teardown` returns before
                its work.
        """
        call, subject = _call_of(target, subjects)
        for name, function in (("step", call), ("setup", setup), ("teardown", teardown)):
            if reason := argument_reason(function, name):
                raise Misuse(reason)
        for name, function in (("setup", setup), ("teardown", teardown)):
            if any(is_lazy(function) for is_lazy in _LAZY_FUNCTIONS):
                raise Misuse(
                    f"{name} returns before its work is done; pass a "
                    "function that does the work: asyncio.run(…), or a loop over its values"
                )
        return cls(call=call, subject=subject, setup=setup, teardown=teardown)


def _call_of(target: object, subjects: Sequence[Subject]) -> tuple[Step, Subject | None]:
    """Callable of `target`, and the subject whose step it is."""
    if (subject := as_subject(target)) is not None:
        return subject.step, subject
    if isinstance(target, type) and hasattr(target, "flops_step"):
        raise Misuse(f"gpubench({target.__name__}) is a class; pass the object its fixture returns")
    if not callable(target):
        raise Misuse(result_reason(target, subjects))
    owner = as_subject(getattr(target, "__self__", None))
    function = getattr(target, "__func__", None)
    is_own_step = owner is not None and function is getattr(type(owner), "step", None)
    return target, owner if is_own_step else None


class FirstCallValidator:
    """Validates the first call of a step against its `subjects`."""

    def __init__(self, timed: TimedStep, subjects: Sequence[Subject], *, stated: Work):
        self._timed = timed
        self._stated = stated
        self._calls_before = [(subject, subject.calls) for subject in subjects]
        self._calls_at_start = 0
        self.advanced: tuple[Subject, ...] = ()
        """Subjects that the call advanced."""
        self.wrapped: Subject | None = None
        """The only subject advanced by a foreign step, and by one step."""

    def validate(self, result: object) -> None:
        """Refuse a call that returned without doing the work to be timed.

        Raises:
            Misuse: the result is still to be run or called; or the stated amounts differ from
                those of the advanced subject, or equal those of one that was not advanced.
            CorrectnessError: the subject's own step did not advance it by one step.
        """
        refuse_unfinished(result, self._timed.call)
        steps = [(subject, subject.calls - calls) for subject, calls in self._calls_before]
        self.advanced = tuple(subject for subject, count in steps if count)
        for subject, count in steps:
            if subject is self._timed.subject and count != 1:
                name = type(subject).__name__
                raise CorrectnessError(
                    f"one call of the step advanced the {name} by {count} "
                    "steps, so the amounts stated for one step do not apply; measure the "
                    "replacement as gpubench(lambda: …) with its own amounts"
                )
        if self._timed.subject is None:
            self._validate_amounts(result, sum(count for _, count in steps))

    def _validate_amounts(self, result: object, steps: int) -> None:
        """Compare the stated amounts of a foreign step with the subjects it advanced.

        One that advances a single subject by one step wraps that subject's step, and has its
        amounts. One that advances none has amounts of its own, which may be equal, as of a forward
        pass of the same batch, unless it computes nothing or returns an uncalled function.
        """
        if self.advanced:
            if steps == 1:
                (self.wrapped,) = self.advanced
                work = self.wrapped.work()
                refuse_contradicting_amounts(self._stated, work, self.wrapped)
        elif is_function(result) or (result is None and calls_nothing(self._timed.call)):
            for subject, _ in self._calls_before:
                _refuse_borrowed_amounts(self._stated, subject)

    def begin(self) -> None:
        """Reset the counts of the advanced subjects: the timed calls start now."""
        for subject in self.advanced:
            subject.begin()
        if self._timed.subject is not None:
            self._calls_at_start = self._timed.subject.calls

    def end(self, calls: int, result: object) -> None:
        """Refuse timed `calls` that did not advance the subject by one step each.

        Raises:
            Misuse: the last result is still to be run or called.
            CorrectnessError: the subject took another number of steps.
        """
        refuse_unfinished(result, self._timed.call)
        subject = self._timed.subject
        if subject is not None and (steps := subject.calls - self._calls_at_start) != calls:
            raise CorrectnessError(
                f"{calls} timed calls advanced the {type(subject).__name__} by "
                f"{steps} steps, so the amounts of one step do not apply to one call"
            )


def has_been_used(timed: TimedStep) -> bool:
    """Whether the step's subject, or one it references, has compiled and allocated already."""
    referenced = referenced_subjects(timed.call)
    subjects = referenced if timed.subject is None else (timed.subject, *referenced)
    return any(subject.calls for subject in subjects)


def refuse_unfinished(result: object, step: Step, label: str = "") -> None:
    """Refuse a `result` that is still to be awaited, iterated or called."""
    if reason := unfinished_reason(result, step, "gpubench"):
        close_coroutines(result)
        raise Misuse(f"{label}{reason}")


def stated_work(amounts: Mapping[str, object]) -> Work:
    """Work of the `amounts` stated in a benchmark, None for those left out.

    Raises:
        Misuse: an amount is not a positive number.
    """
    stated = {}
    for name, amount in amounts.items():
        if amount is None:
            continue
        number = as_number(amount)
        if number is None or not 0 < number < math.inf:
            raise Misuse(f"{name}={short_repr(amount)}; allowed: a number above 0")
        stated[name] = number
    return Work(**stated)


def refuse_contradicting_amounts(stated: Work, subject_work: Work, subject: Subject) -> None:
    """Refuse a `stated` amount that contradicts the subject's `subject_work`."""
    for name, amount in stated.known_amounts.items():
        actual = subject_work.known_amounts.get(name, amount)
        if not is_same_amount(amount, actual):
            raise Misuse(
                f"{name}={amount:g}, but a step of the {type(subject).__name__} has "
                f"{name}={actual:g}; leave it out, or measure another step with its own amounts"
            )


def _refuse_borrowed_amounts(stated: Work, subject: Subject) -> None:
    """Refuse amounts that equal the `subject`'s for a step that did nothing."""
    known_work, kind = subject.work().known_amounts, type(subject).__name__
    for name, amount in stated.known_amounts.items():
        if name in known_work and is_same_amount(amount, known_work[name]):
            raise Misuse(
                f"{name}={amount:g} is the amount of one step of the {kind}, "
                "but the measured call took no step and did nothing else; write "
                f"gpubench({kind.lower()}), or call its step: gpubench(lambda: "
                f"{kind.lower()}.step())"
            )
