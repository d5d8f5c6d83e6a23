"""Timed step: its subject and amounts, and the mistakes that can be in them.

What a call of the step returned is judged by its type. A future may be finished, and a function or
a model may be a result: they are refused where the step cannot have computed them.
"""

from __future__ import annotations

import inspect
import math
import types
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import suppress
from dataclasses import dataclass
from dis import get_instructions
from functools import cached_property, partial
from itertools import islice
from numbers import Real
from typing import Any, Final, Literal, TypeAlias

from gpubench_plugin.core.errors import CorrectnessError, Misuse
from gpubench_plugin.core.records import Work, is_same_amount
from gpubench_plugin.measure.clocks.base import Step, Task
from gpubench_plugin.measure.protocols import Subject

ResultCheck: TypeAlias = Callable[[dict[str, Any]], object] | bool | None
"""``None``: the results are equal or close; ``False``: unchecked; else a function of the results by
name, which raises or returns False where they disagree, and else returns None or True."""

Comparison: TypeAlias = Literal["check", "close", "unchecked"]
"""How results that agree were compared: by a ``check``, as ``close``, or not at all."""

# Enough characters of a value to recognize it in one line.
_MAX_REPR: Final = 60

_ITERATOR_MODULES: Final = ("builtins", "itertools", "multiprocessing.pool")
# Values of a container are alike, and there may be millions.
_MAX_INSPECTED: Final = 100
# Methods of the futures of Python, torch and multiprocessing.
_DONE: Final = ("done", "ready", "is_completed")

_PROPERTIES: Final = (property, cached_property, types.GetSetDescriptorType)
_METHODS: Final = (types.MethodType, types.BuiltinFunctionType, types.MethodWrapperType)
_FUNCTIONS: Final = (types.FunctionType, partial, *_METHODS)
# Beginnings of CPython's instructions that call, compute or make something.
_WORK: Final = (
    *("CALL", "BINARY", "UNARY", "COMPARE", "CONTAINS", "FOR", "IMPORT", "MAKE", "YIELD"),
    *("STORE_SUBSCR", "STORE_SLICE", "STORE_ATTR", "STORE_GLOBAL"),
)


def as_subject(value: object) -> Subject | None:
    """Return `value` if it is a subject, no class of subjects; else None."""
    return value if isinstance(value, Subject) and not isinstance(value, type) else None


def argument_reason(function: Any, name: str) -> str:
    """Explain that `function`, the step, setup or teardown called `name`, needs an argument.

    Empty if it needs none, or if that cannot be known.
    """
    # A module's own call takes anything.
    required = required_argument(getattr(function, "forward", function))
    problem = f"the {name} is called without arguments, but it needs {required!r}"
    return f"{problem}; pass what calls it: lambda: function(…)" if required else ""


def unfinished_reason(result: object, step: Callable[..., object], measure: str) -> str | None:
    """Explain why the `result` of a call of `step` is unfinished; None if it may be computed.

    `measure` is the name of the fixture that measures the step.
    """
    returned = "a call of the step returned"
    if remedy := _remedy(result):
        return f"{returned} a {type(result).__name__}, whose work was never done; {remedy}"
    is_idle = calls_nothing(step)
    for value in (result, *_contained_values(result)):
        where = "" if value is result else f"a {type(result).__name__} containing "
        if (remedy := _remedy(value)) and not _is_done(value):
            kind = type(value).__name__
            return f"{returned} {where}a {kind}, whose work was never done; {remedy}"
        # A model or function is no result of a step that calls nothing, nor is a method that the
        # step returns alone; in a container it may belong to a result.
        is_alone = value is result and isinstance(value, _METHODS)
        if (callable(value) and (is_idle or is_alone)) or _is_own_step(value):
            return (
                f"{returned} {where}{short_repr(value)} instead of calling it; pass that itself to "
                f"{measure}(…), or call it with its arguments"
            )
    return None


def calls_nothing(step: Callable[..., object]) -> bool:
    """Whether `step` is a Python function whose code calls, computes and makes nothing.

    Nor does it read a property, which may.
    """
    method = _unwrap_partial(step)
    function = getattr(method, "__func__", method)
    code = getattr(function, "__code__", None)
    if code is None:
        return False
    owners = (getattr(method, "__self__", None), *_referenced_values(function))
    attributes = (
        inspect.getattr_static(type(o), name, None) for o in owners for name in code.co_names
    )
    return not any(isinstance(attribute, _PROPERTIES) for attribute in attributes) and not any(
        instruction.opname.startswith(_WORK) for instruction in get_instructions(code)
    )


def _referenced_values(function: object) -> tuple[object, ...]:
    """What a Python function references through closures or globals."""
    if not isinstance(function, types.FunctionType):
        return ()
    with suppress(ValueError):  # a name was deleted
        closure = inspect.getclosurevars(function)
        return (*closure.globals.values(), *closure.nonlocals.values())
    return ()


def as_number(value: object) -> float | None:
    """`value` as a float; None if it is no real number, or above all floats."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    with suppress(OverflowError):
        return float(value)
    return None


def short_repr(value: object) -> str:
    """`value` as Python shows it, on one line, cut after as much as tells what it is."""
    text = " ".join(ascii(value).split())
    return text if len(text) <= _MAX_REPR else f"{text[:_MAX_REPR]}…"


_RUN: Final = "asyncio.run(…), in a test that is not async itself"


def _remedy(value: object) -> str:
    """What to do with a `value` that does its work later if ever; empty for any other."""
    kind = type(value)
    if isinstance(value, AsyncIterator):
        return f"iterate it in a coroutine and run that in the step: {_RUN}"
    if isinstance(value, Awaitable):
        return f"await it in the step: {_RUN}"
    if isinstance(value, Iterator) and kind.__module__ in _ITERATOR_MODULES:
        return "exhaust it in the step: list(…), or a loop over it"
    waits = [name for name in ("get", "wait", "result") if callable(getattr(kind, name, None))]
    if waits and any(callable(getattr(kind, name, None)) for name in _DONE):
        return f"wait for it in the step: its {waits[0]}()"
    return ""


def _is_done(value: object) -> bool:
    """Whether it is a completed future of any library."""
    methods = (getattr(value, name, None) for name in _DONE)
    return any(callable(is_done) and bool(is_done()) for is_done in methods)


def _contained_values(result: object) -> Iterator[object]:
    """Leading values of a Python container; empty for anything else."""
    if not isinstance(result, (tuple, list, set, frozenset, dict)):
        return iter(())
    return islice(result.values() if isinstance(result, dict) else result, _MAX_INSPECTED)


def _is_own_step(value: object) -> bool:
    """Whether it is a subject, its step or a partial of that, hence never a result."""
    method = _unwrap_partial(value)
    owner = getattr(method, "__self__", None) if isinstance(method, types.MethodType) else value
    is_step = owner is value or getattr(method, "__name__", "") == "step"
    return is_step and as_subject(owner) is not None


def _unwrap_partial(value: object) -> Any:
    while isinstance(value, partial):
        value = value.func
    return value


def required_argument(function: Any, *, follow_wrapped: bool = False) -> str:
    """The first parameter of `function` without a default; empty if none, or none is known.

    A decorator may provide the arguments of the function that it wraps.
    """
    if function is None or (hasattr(function, "__signature__") and not follow_wrapped):
        return ""
    try:
        parameters = inspect.signature(function, follow_wrapped=follow_wrapped).parameters
    except (TypeError, ValueError):  # written in C
        return ""
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    required = (
        p.name for p in parameters.values() if p.default is p.empty and p.kind not in optional
    )
    return next(required, "")


_LAZY_FUNCTIONS: Final = (
    inspect.iscoroutinefunction,
    inspect.isgeneratorfunction,
    inspect.isasyncgenfunction,
)


@dataclass(frozen=True, kw_only=True)
class TimedStep(Task):
    """Step with setup and teardown of every call, and the subject that it advances, if any."""

    subject: Subject | None = None

    def run(self) -> object:
        """Call the step once, untimed, with its setup and teardown, and return its result."""
        return self._run(self.step)

    def run_briefly(self) -> None:
        """An equivalent, possibly shorter call: the first steps of a whole training."""
        self._run(getattr(self.subject, "short_step", self.step))

    def _run(self, step: Step) -> object:
        self.run_setup()
        result = step()
        self.run_teardown()
        return result

    @classmethod
    def of(
        cls,
        target: object,
        *arguments: object,
        setup: Step | None,
        teardown: Step | None,
    ) -> TimedStep:
        """Resolve the `target` of the bench: a subject, its own step, or a callable of `arguments`.

        Raises:
            Misuse: one needs other arguments, or `setup` or `teardown` returns before
                its work.
        """
        call, subject = call_of(target)
        if arguments:
            if subject is not None:
                name = type(subject).__name__.lower()
                raise Misuse(f"the step of the {name} has its arguments; write gpubench({name})")
            call = partial(call, *arguments)
        for name, function in (("step", call), ("setup", setup), ("teardown", teardown)):
            if reason := argument_reason(function, name):
                raise Misuse(reason)
            if name != "step" and any(is_lazy(function) for is_lazy in _LAZY_FUNCTIONS):
                raise Misuse(
                    f"{name} returns before its work is done; pass a "
                    "function that does the work: asyncio.run(…), or a loop over its values"
                )
        return cls(step=call, subject=subject, setup=setup, teardown=teardown)


def call_of(target: object) -> tuple[Callable[..., object], Subject | None]:
    """Callable of `target`, and the subject whose step it is."""
    if (subject := as_subject(target)) is not None:
        return subject.step, subject
    if isinstance(target, type) and hasattr(target, "flops_step"):
        raise Misuse(f"gpubench({target.__name__}) is a class; pass the object its fixture returns")
    if not callable(target):
        raise Misuse(
            f"{short_repr(target)} is not callable; pass the step itself, not the result of "
            "calling it: gpubench(lambda: a @ b), gpubench(trainer)"
        )
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
        refuse_unfinished(result, self._timed.step)
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
        elif isinstance(result, _FUNCTIONS) or calls_nothing(self._timed.step):
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
        refuse_unfinished(result, self._timed.step)
        subject = self._timed.subject
        if subject is not None and (steps := subject.calls - self._calls_at_start) != calls:
            raise CorrectnessError(
                f"{calls} timed calls advanced the {type(subject).__name__} by "
                f"{steps} steps, so the amounts of one step do not apply to one call"
            )


def has_been_used(timed: TimedStep) -> bool:
    """Whether the step's subject, or one it references, has compiled and allocated already."""
    subjects = map(as_subject, (timed.subject, *_referenced_values(timed.step)))
    return any(subject is not None and subject.calls for subject in subjects)


def refuse_unfinished(result: object, step: Step, label: str = "") -> None:
    """Refuse a `result` that is still to be awaited, iterated or called."""
    if reason := unfinished_reason(result, step, "gpubench"):
        for value in (result, *_contained_values(result)):
            if isinstance(value, Coroutine):
                value.close()  # else it would warn "never awaited"
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
