"""What a call may return instead of doing its work: a promise of it, or what was to be called."""

from __future__ import annotations

from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterator,
    Mapping,
)
from concurrent.futures import Future
from functools import cache, partial
from inspect import getclosurevars
from itertools import islice
from types import BuiltinFunctionType, FunctionType, MethodType, MethodWrapperType, ModuleType
from typing import Final

from gpubench_plugin.measure import Subject

_LAZY: Final = (
    (AsyncGenerator, "an async generator", "call asyncio.run on what exhausts it in the step"),
    (AsyncIterator, "an async iterator", "call asyncio.run on what exhausts it in the step"),
    (Generator, "a generator", "exhaust it in the step: list(…), or a loop over it"),
    ((map, filter, zip), "a lazy iterator", "exhaust it in the step: list(…), or a loop over it"),
    (Future, "a future", "wait for it in the step: its result()"),
    (Coroutine, "a coroutine", "run it in the step: asyncio.run(…)"),
    (Awaitable, "an awaitable", "await it in the step: asyncio.run(…)"),
)
"""What does its work later if ever, and what to do then."""

_CONTAINERS: Final = (tuple, list, set, frozenset, dict)
_LOOKED_AT: Final = 100
"""Values of a container: promises come alike, and of a million numbers none has to be looked at."""

_FUNCTIONS: Final = (FunctionType, BuiltinFunctionType, partial, type(cache(lambda: None)))
"""Not every callable: a model is one, and a step may well return the model that it has changed."""

_BOUND: Final = (MethodType, BuiltinFunctionType, MethodWrapperType)


def unfinished(result: object, step: Callable[..., object], measure: str) -> str | None:
    """What is wrong with the `result` of a call of `step`: it is still to be run, or called.

    None: it may be what the step computes. `measure` is the fixture to which the step was given.
    """
    if lazy := _lazy(result):
        name, remedy = lazy
        return f"a call of the step returned {name}, whose work nobody has done; {remedy}"
    for value in _inside(result):
        # Of several that were waited for, the results are in the futures.
        if (lazy := _lazy(value)) and not _is_done(value):
            name, remedy = lazy
            return (
                f"a call of the step returned a {type(result).__name__} with {name} in it, whose "
                f"work nobody has done; {remedy}"
            )
    if what := _uncalled(result, step):
        return (
            f"a call of the step returned {what} instead of calling it; write "
            f"{measure}({what}), not {measure}(lambda: {what})"
        )
    return None


def close(result: object) -> None:
    """Close the coroutines of a `result` that is refused: they warn if nobody ever began them."""
    for value in (result, *_inside(result)):
        if isinstance(value, Coroutine):
            value.close()


def subjects_named_by(step: Callable[..., object]) -> tuple[Subject, ...]:
    """The subjects that `step`, if it is a function, has a name for from outside."""
    return tuple(
        value
        for value in _outside_names(step).values()
        # The class first: attributes of any object that happens to be near might do something.
        if hasattr(type(value), "flops_step") and isinstance(value, Subject)
    )


def _lazy(value: object) -> tuple[str, str] | None:
    """What it is and what to do, of a value that promises its work."""
    for kind, name, remedy in _LAZY:
        if isinstance(value, kind):
            return name, remedy
    return None


def _is_done(value: object) -> bool:
    """Whether it is a future, of whatever library, that has its result."""
    done = getattr(value, "done", None)
    return callable(done) and bool(done())


def _inside(result: object) -> Iterator[object]:
    """The first values in a container of Python's; none in anything else."""
    if not isinstance(result, _CONTAINERS):
        return iter(())
    return islice(result.values() if isinstance(result, dict) else result, _LOOKED_AT)


def _uncalled(result: object, step: Callable[..., object]) -> str | None:
    """What to call where `result` is a step itself, or a function that `step` only names."""
    if isinstance(result, Subject) and not isinstance(result, type):
        return f"{_name(result, step)}.step"
    if isinstance(result, _FUNCTIONS) and (name := _named(result, step)):
        return name
    if not isinstance(result, _BOUND):
        return None
    owner: object = result.__self__
    # Functions of C have their module for an owner, or None: they are looked up by name alone.
    if owner is None or isinstance(owner, ModuleType):
        return None
    return f"{_name(owner, step)}.{result.__name__}"


def _name(owner: object, step: Callable[..., object]) -> str:
    """What `step` calls the `owner` of a method; of one that it does not name, its class."""
    if isinstance(owner, type):
        return owner.__name__
    return _named(owner, step) or type(owner).__name__.lower()


def _named(wanted: object, step: Callable[..., object]) -> str | None:
    """The name that `step` has for this object from outside: ``work``, ``torch.relu``."""
    names = dict(_outside_names(step))
    for attribute in step.__code__.co_names if isinstance(step, FunctionType) else ():
        for owner, module in list(names.items()):
            if isinstance(module, ModuleType) and attribute in vars(module):
                names.setdefault(f"{owner}.{attribute}", vars(module)[attribute])
    return next((name for name, value in names.items() if value is wanted), None)


def _outside_names(step: Callable[..., object]) -> Mapping[str, object]:
    """What `step` finds outside of itself, by name; nothing of what is no function."""
    if not isinstance(step, FunctionType):
        return {}
    try:
        known = getclosurevars(step)
    except ValueError:  # one of its names has been deleted
        return {}
    return {**known.builtins, **known.globals, **known.nonlocals}
