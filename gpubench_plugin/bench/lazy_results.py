"""Detection of steps that return a promise or a callable instead of doing their work."""

from __future__ import annotations

import itertools
import sys
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
from dis import get_instructions
from functools import cache, partial
from inspect import getclosurevars
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MethodType,
    MethodWrapperType,
    ModuleType,
)
from typing import Any, Final

from gpubench_plugin.measure.protocols import Subject

_ITERATORS: Final = (
    *(map, filter, zip, enumerate),
    *(kind for kind in vars(itertools).values() if isinstance(kind, type)),
)

_RUN_IN_COROUTINE: Final = "iterate it in a coroutine and run that in the step: asyncio.run(…)"
_EXHAUST: Final = "exhaust it in the step: list(…), or a loop over it"
_LAZY: Final = (
    (AsyncGenerator, "an async generator", _RUN_IN_COROUTINE),
    (AsyncIterator, "an async iterator", _RUN_IN_COROUTINE),
    (Generator, "a generator", _EXHAUST),
    (_ITERATORS, "a lazy iterator", _EXHAUST),
    (Future, "a future", "wait for it in the step: its result()"),
    (Coroutine, "a coroutine", "run it in the step: asyncio.run(…)"),
    (Awaitable, "an awaitable", "await it in the step: asyncio.run(…)"),
)
"""Types that do their work later if ever, with a name and a remedy."""

_LAZY_ELSEWHERE: Final = (
    ("torch._C", "Future", "a future", "wait for it in the step: its wait()"),
    ("torch.distributed", "Work", "a collective's handle", "wait for it in the step: its wait()"),
    ("multiprocessing.pool", "AsyncResult", "a future", "wait for it in the step: its get()"),
    ("multiprocessing.pool", "IMapIterator", "a lazy iterator", "exhaust it in the step: list(…)"),
)
"""The same for types of modules that may not be imported."""

_DONE: Final = ("done", "ready", "is_completed")
"""Methods of those libraries' futures that tell whether the result is there."""

_CONTAINERS: Final = (tuple, list, set, frozenset, dict)
_MAX_INSPECTED: Final = 100
"""Values inspected in a container: its values are alike, and there may be millions."""

_FUNCTIONS: Final = (FunctionType, BuiltinFunctionType, partial, type(cache(lambda: None)))
"""Not every callable: a model is one, which a step may change and return."""

_BOUND: Final = (MethodType, BuiltinFunctionType, MethodWrapperType)

_LOOK_UP_PREFIXES: Final = ("LOAD_", "STORE_FAST", "BUILD_", "RETURN_")
_ATTRIBUTES: Final = frozenset({"LOAD_ATTR", "LOAD_METHOD", "LOAD_SUPER_ATTR"})
_LOOK_UPS: Final = frozenset(
    {"RESUME", "NOP", "CACHE", "POP_TOP", "PUSH_NULL", "COPY_FREE_VARS", "MAKE_CELL", "LIST_EXTEND"}
)
"""Instructions of CPython, by name or prefix, of a function that does nothing."""


def unfinished_reason(result: object, step: Callable[..., object], measure: str) -> str | None:
    """Explain why the `result` of a call of `step` is unfinished; None if it may be computed.

    `measure` is the name of the fixture that measures the step.
    """
    if lazy := _lazy_kind(result):
        name, remedy = lazy
        return f"a call of the step returned {name}, whose work was never done; {remedy}"
    for value in _contained_values(result):
        # Futures that were waited for are results.
        if (lazy := _lazy_kind(value)) and not _is_done(value):
            name, remedy = lazy
            return (
                f"a call of the step returned a {type(result).__name__} containing {name}, "
                f"whose work was never done; {remedy}"
            )
    if uncalled := _find_uncalled(result, step):
        name, suggestion = uncalled
        return (
            f"a call of the step returned {name} instead of calling it; write "
            f"{measure}({suggestion}), not {measure}(lambda: {name})"
        )
    # Functions and models may be results of a step that does something.
    is_idle = _looks_up_only(step)
    for value in _contained_values(result):
        if (is_idle or _is_own_step(value)) and (uncalled := _find_uncalled(value, step)):
            name, suggestion = uncalled
            return (
                f"a call of the step returned a {type(result).__name__} containing {name} "
                f"instead of calling it; write {measure}({suggestion})"
            )
    return None


def is_function(result: object) -> bool:
    """Whether `result` is a callable: a function, method or partial."""
    return isinstance(result, (*_FUNCTIONS, *_BOUND))


def does_nothing(step: Callable[..., object]) -> bool:
    """Whether `step` is a Python function that certainly calls and computes nothing.

    Its code only loads names and constants, and attributes if it names a subject: a property of
    anything else may compute.
    """
    reads_attributes = bool(_instructions(step) & _ATTRIBUTES)
    return _looks_up_only(step) and (not reads_attributes or bool(referenced_subjects(step)))


def close_coroutines(result: object) -> None:
    """Close coroutines in a refused `result`, which would otherwise warn "never awaited"."""
    for value in (result, *_contained_values(result)):
        if isinstance(value, Coroutine):
            value.close()


def referenced_subjects(step: Callable[..., object]) -> tuple[Subject, ...]:
    """Subjects that the function `step` references through closures or globals."""
    return tuple(
        value
        for value in _free_variables(step).values()
        # The class first: attributes of arbitrary objects may compute.
        if hasattr(type(value), "flops_step") and isinstance(value, Subject)
    )


def _lazy_kind(value: object) -> tuple[str, str] | None:
    """Description and remedy for a lazy `value`, or None."""
    for kind, name, remedy in _LAZY:
        if isinstance(value, kind):
            return name, remedy
    for module, type_name, name, remedy in _LAZY_ELSEWHERE:
        candidate = getattr(sys.modules.get(module), type_name, None)
        if candidate is not None and isinstance(value, candidate):
            return name, remedy
    return None


def _is_done(value: object) -> bool:
    """Whether it is a completed future of any library."""
    methods = (getattr(value, name, None) for name in _DONE)
    return any(callable(is_done) and bool(is_done()) for is_done in methods)


def _contained_values(result: object) -> Iterator[object]:
    """Leading values of a Python container; empty for anything else."""
    if not isinstance(result, _CONTAINERS):
        return iter(())
    return itertools.islice(result.values() if isinstance(result, dict) else result, _MAX_INSPECTED)


def _find_uncalled(result: object, step: Callable[..., object]) -> tuple[str, str] | None:
    """Name of an uncalled step or function in `result`, and the argument to measure instead."""
    if _is_subject(result):
        name = f"{_owner_name(result, step)}.step"
        return name, name
    if isinstance(result, partial) and _is_own_step(result):
        name = f"{_owner_name(_unwrap_partial(result).__self__, step)}.step"
        return f"partial({name})", name
    if function := _function_name(result, step):
        return function, function
    # Any other callable, such as a model, may be a result of the step.
    if callable(result) and _looks_up_only(step) and (callee := _referenced_name(result, step)):
        return callee, f"lambda: {callee}(…)"
    return None


def _looks_up_only(step: Callable[..., object]) -> bool:
    """Whether the code of `step` only loads names, attributes and constants."""
    names = _instructions(step)
    return bool(names) and all(n in _LOOK_UPS or n.startswith(_LOOK_UP_PREFIXES) for n in names)


def _instructions(step: Callable[..., object]) -> set[str]:
    """Opcode names of `step`; empty for anything but a Python function."""
    function = _unwrap_partial(step)
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if not isinstance(code, CodeType):
        return set()
    return {instruction.opname for instruction in get_instructions(code)}


def _function_name(result: object, step: Callable[..., object]) -> str | None:
    """Name of `result`, if it is a method or a function that `step` references."""
    if isinstance(result, _FUNCTIONS) and (name := _referenced_name(result, step)):
        return name
    if not isinstance(result, _BOUND):
        return None
    owner: object = result.__self__
    # C functions have their module or None as owner: only their name counts.
    if owner is None or isinstance(owner, ModuleType):
        return None
    return f"{_owner_name(owner, step)}.{result.__name__}"


def _is_subject(value: object) -> bool:
    return isinstance(value, Subject) and not isinstance(value, type)


def _is_own_step(value: object) -> bool:
    """Whether it is a subject's step or a partial of one, hence never a result."""
    method = _unwrap_partial(value)
    return (
        isinstance(method, MethodType)
        and getattr(method, "__name__", None) == "step"
        and _is_subject(method.__self__)
    )


def _unwrap_partial(value: object) -> Any:
    """Unwrap nested partials."""
    while isinstance(value, partial):
        value = value.func
    return value


def _owner_name(owner: object, step: Callable[..., object]) -> str:
    """Name by which `step` references the `owner` of a method, else its class name."""
    if isinstance(owner, type):
        return owner.__name__
    return _referenced_name(owner, step) or type(owner).__name__.lower()


def _referenced_name(target: object, step: Callable[..., object]) -> str | None:
    """Dotted name by which `step` references `target`: ``work``, ``torch.relu``."""
    names = dict(_free_variables(step))
    for attribute in step.__code__.co_names if isinstance(step, FunctionType) else ():
        for owner, module in list(names.items()):
            if isinstance(module, ModuleType) and attribute in vars(module):
                names.setdefault(f"{owner}.{attribute}", vars(module)[attribute])
    return next((name for name, value in names.items() if value is target), None)


def _free_variables(step: Callable[..., object]) -> Mapping[str, object]:
    """Closure and global variables of `step`, by name; empty if it is no function."""
    if not isinstance(step, FunctionType):
        return {}
    try:
        closure = getclosurevars(step)
    except ValueError:  # a name was deleted
        return {}
    return {**closure.builtins, **closure.globals, **closure.nonlocals}
