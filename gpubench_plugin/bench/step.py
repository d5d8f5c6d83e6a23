"""The timed step: which subject it belongs to, and validation of its first call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import TYPE_CHECKING, Final

from gpubench_plugin.bench.returned import (
    close_coroutines,
    does_nothing,
    is_function,
    referenced_subjects,
    unfinished_reason,
)
from gpubench_plugin.errors import CorrectnessError, UsageProblem
from gpubench_plugin.measure import Subject
from gpubench_plugin.records import is_same_amount

if TYPE_CHECKING:
    from gpubench_plugin.measure.clocks import Step
    from gpubench_plugin.records import Work

_LAZY_FUNCTIONS: Final = (iscoroutinefunction, isgeneratorfunction, isasyncgenfunction)
_LONGEST: Final = 60


@dataclass(frozen=True, kw_only=True)
class TimedStep:
    """A callable and the subject it advances; None if it advances no subject.

    `setup` and `teardown` run around every call.
    """

    call: Step
    subject: Subject | None
    setup: Step | None
    teardown: Step | None

    def run(self) -> None:
        """Call the step once, untimed, with its setup and teardown."""
        self._run(self.call)

    def run_briefly(self) -> None:
        """An equivalent, possibly shorter call: the first steps of a whole training."""
        self._run(getattr(self.subject, "brief_step", self.call))

    def _run(self, call: Step) -> None:
        if self.setup is not None:
            self.setup()
        call()
        if self.teardown is not None:
            self.teardown()

    @classmethod
    def of(
        cls, target: object, benchmark: str, *, setup: Step | None, teardown: Step | None
    ) -> TimedStep:
        """Resolve what was passed to the bench: a subject, its own step, or any callable.

        Raises:
            UsageProblem: it cannot be called: it may be what a call has returned; or a call of
                `setup` or `teardown` does none of its work.
        """
        call, subject = _call_of(target, benchmark)
        for name, function in (("setup", setup), ("teardown", teardown)):
            if any(is_lazy(function) for is_lazy in _LAZY_FUNCTIONS):
                raise UsageProblem(
                    f"{benchmark}: {name} returns before its work is done; pass a "
                    "function that does the work: asyncio.run(…), or a loop over its values"
                )
        return cls(call=call, subject=subject, setup=setup, teardown=teardown)


def _call_of(given: object, benchmark: str) -> tuple[Step, Subject | None]:
    """What to call, and the subject whose step it is."""
    if (subject := _subject(given)) is not None:
        return subject.step, subject
    if isinstance(given, type) and hasattr(given, "flops_step"):
        raise UsageProblem(
            f"{benchmark}: gpubench({given.__name__}) is a class; pass the object its fixture "
            "returns"
        )
    if not callable(given):
        raise UsageProblem(
            f"{benchmark}: gpubench({_short_repr(given)}) is not callable; pass the step "
            "itself, not the result of calling it: gpubench(trainer), gpubench(lambda: a @ b)"
        )
    owner = _subject(getattr(given, "__self__", None))
    function = getattr(given, "__func__", None)
    own = owner is not None and function is getattr(type(owner), "step", None)
    return given, owner if own else None


class FirstCallValidator:
    """Validates the first call of a `benchmark`'s step against its `subjects`."""

    def __init__(
        self, timed: TimedStep, subjects: Sequence[Subject], benchmark: str, *, stated: Work
    ):
        self._timed = timed
        self._subjects = subjects
        self._stated = stated
        self._calls_before = [subject.calls for subject in subjects]
        self._benchmark = benchmark
        self._calls_at_start = 0
        self.advanced: tuple[Subject, ...] = ()
        """The subjects whose step was called by it."""
        self.wrapped: Subject | None = None
        """The one subject that a foreign step took one step further, as that subject's own does."""

    def validate(self, result: object) -> None:
        """Refuse a call that returned without doing the work to be timed.

        Raises:
            UsageProblem: it returned something that is still to be run, or called; or the amounts
                that were stated are not those of the subject it advanced, or those of one that it
                did not advance.
            CorrectnessError: a subject's step that is no one call of it.
        """
        refuse_unfinished(result, self._timed.call, self._benchmark)
        steps_taken = [
            subject.calls - calls_before
            for subject, calls_before in zip(self._subjects, self._calls_before, strict=True)
        ]
        self.advanced = tuple(
            s for s, calls in zip(self._subjects, steps_taken, strict=True) if calls
        )
        for subject, calls in zip(self._subjects, steps_taken, strict=True):
            if subject is self._timed.subject and calls != 1:
                name = type(subject).__name__
                raise CorrectnessError(
                    f"{self._benchmark}: one call of the step advanced the {name} by {calls} "
                    "steps, so the amounts stated for one step do not apply; measure the "
                    "replacement as gpubench(lambda: …) with its own amounts"
                )
        if self._timed.subject is None:
            self._validate_amounts(result, sum(steps_taken))

    def _validate_amounts(self, result: object, steps: int) -> None:
        """Compare the stated amounts of a foreign step with the subjects it advanced.

        One that takes a single subject one step further is that subject's step, whatever it is
        wrapped in, and has its amounts. One that advances none has amounts of its own, which may
        well be equal: of a forward pass of the same batch, say. They are a subject's, and wrong,
        only where nothing was done that they could be of: the code of the step calls and computes
        nothing, or a function came back that nobody called.
        """
        if self.advanced:
            if steps == 1:
                (self.wrapped,) = self.advanced
                work = self.wrapped.work()
                refuse_contradicting_amounts(self._stated, work, self.wrapped, self._benchmark)
        elif self._stated.known_amounts and (does_nothing(self._timed.call) or is_function(result)):
            for subject in self._subjects:
                _refuse_borrowed_amounts(self._stated, subject, self._benchmark)

    def begin(self) -> None:
        """Reset the counts of the advanced subjects: the timed calls start now."""
        for subject in self.advanced:
            subject.begin()
        if self._timed.subject is not None:
            self._calls_at_start = self._timed.subject.calls

    def end(self, calls: int, result: object) -> None:
        """Refuse timed `calls` that did not advance the subject by one step each.

        Raises:
            UsageProblem: the last one returned something that is still to be run, or called.
            CorrectnessError: the subject took another number of steps.
        """
        refuse_unfinished(result, self._timed.call, self._benchmark)
        subject = self._timed.subject
        if subject is not None and subject.calls - self._calls_at_start != calls:
            raise CorrectnessError(
                f"{self._benchmark}: {calls} timed calls advanced the "
                f"{type(subject).__name__} by {subject.calls - self._calls_at_start} steps, "
                "so the amounts of one step do not apply to one call"
            )


def has_been_used(timed: TimedStep) -> bool:
    """Whether the step's subject, or one it references, has taken steps already.

    A call of it then is not the first one, which compiles and allocates.
    """
    referenced = referenced_subjects(timed.call)
    subjects = referenced if timed.subject is None else (timed.subject, *referenced)
    return any(subject.calls for subject in subjects)


def refuse_unfinished(result: object, step: Step, benchmark: str) -> None:
    """Refuse a `result` that is still to be awaited, iterated or called.

    Raises:
        UsageProblem: naming what it is, and what to write.
    """
    if reason := unfinished_reason(result, step, "gpubench"):
        close_coroutines(result)
        raise UsageProblem(f"{benchmark}: {reason}")


def refuse_contradicting_amounts(
    stated: Work, subject_work: Work, subject: Subject, benchmark: str
) -> None:
    """Refuse a `stated` amount that contradicts the subject's `subject_work`.

    Raises:
        UsageProblem: naming both.
    """
    for name, amount in stated.known_amounts.items():
        if is_same_amount(amount, subject_work.known_amounts.get(name, amount)):
            continue
        raise UsageProblem(
            f"{benchmark}: {name}={amount:g}, but a step of the {type(subject).__name__} has "
            f"{name}={subject_work.known_amounts[name]:g}; leave it out, or measure another step "
            "with amounts of "
            "its own"
        )


def _refuse_borrowed_amounts(stated: Work, subject: Subject, benchmark: str) -> None:
    """Refuse amounts that equal the `subject`'s for a step that did nothing."""
    known_work = subject.work().known_amounts
    for name, amount in stated.known_amounts.items():
        if name in known_work and is_same_amount(amount, known_work[name]):
            kind = type(subject).__name__
            raise UsageProblem(
                f"{benchmark}: {name}={amount:g} is the amount of one step of the {kind}, "
                "but the measured call took no step and did nothing else; write "
                f"gpubench({kind.lower()}), or call its step: gpubench(lambda: "
                f"{kind.lower()}.step())"
            )


def _subject(value: object) -> Subject | None:
    """Return `value` if it is a subject instance, else None."""
    return value if isinstance(value, Subject) and not isinstance(value, type) else None


def _short_repr(value: object) -> str:
    text = " ".join(repr(value).split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
