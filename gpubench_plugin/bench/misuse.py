"""Explanations of what was passed to ``gpubench`` in place of a step."""

from __future__ import annotations

from inspect import Parameter, signature
from numbers import Number
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubench_plugin.measure.protocols import Subject

_MAX_REPR: Final = 60
"""Characters of a value in a message: enough to recognize it in one line."""


def result_reason(value: object, subjects: Sequence[Subject]) -> str:
    """Explain that `value` is no step, but maybe the result of one of the `subjects`."""
    name = next((type(s).__name__.lower() for s in subjects if s.calls), "")
    if name:
        return (
            f"you passed the result of {name}.step() ({_kind(value)}) instead of the step; write "
            f"gpubench({name}) or gpubench({name}.step)"
        )
    return (
        f"you passed {_kind(value)}, which is not callable; pass the step itself, not the result "
        "of calling it: gpubench(lambda: a @ b), gpubench(trainer)"
    )


def argument_reason(function: Any, name: str) -> str:
    """Explain that `function`, the step, setup or teardown called `name`, needs an argument.

    Empty if it needs none, or if that cannot be known.
    """
    is_module = hasattr(function, "forward")  # of torch, whose call takes anything
    required = _required_argument(function.forward if is_module else function)
    if not required:
        return ""
    target = "model" if is_module else str(getattr(function, "__name__", ""))
    call = f"lambda: {target if target.isidentifier() else 'function'}"
    call += "(batch)" if is_module else "(…)"
    remedy = f"gpubench({call})" if name == "step" else f"{name}={call}"
    return f"the {name} is called without arguments, but it needs {required!r}; write {remedy}"


def short_repr(value: object) -> str:
    """`value` as Python shows it, on one line, cut after as much as tells what it is."""
    text = " ".join(repr(value).split())
    return text if len(text) <= _MAX_REPR else f"{text[:_MAX_REPR]}…"


def _kind(value: object) -> str:
    if value is None:
        return "None"
    kind = f"a {type(value).__name__}"
    if shape := getattr(value, "shape", None):
        return f"{kind} of shape {tuple(shape)}"
    return f"{kind}, {short_repr(value)}" if isinstance(value, Number | str) else kind


def _required_argument(function: Any) -> str:
    if function is None or hasattr(function, "__signature__"):
        return ""
    try:
        # A decorator may provide the arguments of the function that it wraps.
        parameters = signature(function, follow_wrapped=False).parameters.values()
    except (TypeError, ValueError):  # written in C
        return ""
    optional = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    required = (p.name for p in parameters if p.default is p.empty and p.kind not in optional)
    return next(required, "")
