"""Agreement of the results of several variants of a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Final, Literal, TypeAlias

from gpubench_plugin.bench.misuse import short_repr
from gpubench_plugin.core.errors import CorrectnessError, Misuse, error_text

ResultCheck: TypeAlias = Callable[[dict[str, Any]], object] | bool | None
"""``None``: the results are equal or close; ``False``: unchecked; else a function of the results by
name, which raises or returns False where they disagree, and else returns None or True."""

Comparison: TypeAlias = Literal["check", "close", "unchecked"]
"""How results that agree were compared: by a ``check``, as ``close``, or not at all."""

# numpy's kinds of types that torch has: bool, integers, floating and complex numbers.
_NUMERIC: Final = "biufc"


def agreement(results: Mapping[str, object], check: ResultCheck) -> Comparison:
    """Compare copies of the `results`, see :func:`copied`, with the first one.

    Numbers and tensors are compared by :func:`torch.testing.assert_close`, with the tolerances of
    their types, of two types the wider ones; all other values must be equal. Where there are none,
    as the variants return None or tensors without elements, nothing is compared.

    Raises:
        CorrectnessError: a variant disagrees, and where and by how much; or no number is finite.
        Misuse: `check` is or returns something else, or there is no telling whether values are
            equal.
    """
    if check is False:
        return "unchecked"
    if callable(check):
        _call(check, dict(results))
        return "check"
    if check is not None:
        raise Misuse(
            f"gpubench.compare(…, check={short_repr(check)}); allowed: None, False, "
            "or a function of the results by name"
        )
    (reference, expected), *others = results.items()
    for name, actual in others:
        _compare(name, dict(_leaves(actual)), reference, dict(_leaves(expected)))
    values = [value for result in results.values() for _, value in _leaves(result)]
    if not any(_has_value(value) for value in values):
        return "unchecked"
    if not any(_tells(value) for value in values):
        raise CorrectnessError(
            f"the results of {_listed(results)} are NaN or infinite everywhere, which does not "
            "show that they agree; check=False leaves them unchecked"
        )
    return "close"


def copied(result: object) -> object:
    """Copy of a nested `result`: arrays become tensors, and containers dictionaries and lists."""
    import numpy as np
    import torch

    if is_dataclass(result) and not isinstance(result, type):
        result = {field.name: getattr(result, field.name) for field in fields(result)}
    match result:
        case torch.Tensor():
            copy: object = result.detach().clone()
        case np.ndarray() if result.dtype.kind in _NUMERIC:
            copy = torch.tensor(result)
        case np.ndarray() | np.generic():
            copy = result.tolist()
        case Mapping():
            copy = {key: copied(value) for key, value in result.items()}
        case list() | tuple():
            copy = [copied(value) for value in result]
        case _:
            copy = result
    return copy


def _call(check: Callable[[dict[str, Any]], object], results: dict[str, Any]) -> None:
    try:
        verdict = check(results)
    except AssertionError as error:
        reason = " ".join(error_text(error).split())
        raise CorrectnessError(
            f"the results of {_listed(results)} disagree: {reason or 'check raised'}"
        ) from error
    if verdict is not None and not _truth(verdict):
        raise CorrectnessError(f"the results of {_listed(results)} disagree: check returned False")


def _truth(verdict: object) -> bool:
    """Value of a bool of Python, numpy or torch.

    Raises:
        Misuse: it is another value, whose truth says nothing, as that of a difference.
    """
    import torch

    value = copied(verdict)  # numpy's become Python's and torch's
    if isinstance(value, torch.Tensor) and value.dtype == torch.bool and not value.ndim:
        value = value.item()
    if not isinstance(value, bool):
        raise Misuse(
            f"gpubench.compare: check returned {short_repr(verdict)}; allowed: True, False, or None"
        )
    return value


def _listed(names: Mapping[str, object]) -> str:
    return ", ".join(map(repr, names))


def _leaves(value: object, place: str = "") -> Iterator[tuple[str, Any]]:
    """Values of a copied result that are no containers, with their places."""
    match value:
        case dict() | list():
            parts = value.items() if isinstance(value, dict) else enumerate(value)
            for key, part in parts:
                yield from _leaves(part, f"{place}[{key!r}]")
        case _:
            yield place, value


def _compare(
    variant: str, actual: Mapping[str, Any], reference: str, expected: Mapping[str, Any]
) -> None:
    """Compare the values of two results by their places."""
    reasons = [(place, "is missing") for place in expected if place not in actual]
    reasons += [(place, "is not in the other") for place in actual if place not in expected]
    for place, value in () if reasons else expected.items():
        if reason := _difference(actual[place], value, f"variant {variant!r}, result{place}"):
            reasons.append((place, reason))
            break
    for place, reason in reasons:
        at = f" at result{place}" if place else ""
        raise CorrectnessError(f"variant {variant!r} disagrees with {reference!r}{at}: {reason}")


def _difference(actual: Any, expected: Any, where: str) -> str:
    """How two values differ, in one line; empty if they agree.

    Raises:
        Misuse: there is no telling.
    """
    if _is_numeric(actual) and _is_numeric(expected):
        from torch.testing import assert_close

        try:
            assert_close(
                _as_tensor(actual),
                _as_tensor(expected),
                equal_nan=True,
                check_device=False,
                check_dtype=False,
                check_layout=False,
            )
        except AssertionError as error:
            lines = (line.strip().rstrip(".!") for line in error_text(error).splitlines())
            return "; ".join(filter(None, lines))
        except RuntimeError as error:  # types that torch cannot compare, as of 8 bits with 32
            raise _cannot_compare(where, f"{actual.dtype} with {expected.dtype}") from error
        return ""
    kinds = type(actual).__name__, type(expected).__name__
    if type(actual) is not type(expected):
        return f"{kinds[0]} instead of {kinds[1]}"
    if actual is expected:
        return ""
    if vars(object)["__eq__"] is type(actual).__eq__:
        raise _cannot_compare(where, f"two objects of {kinds[0]}")
    return "" if actual == expected else "the values differ"


def _cannot_compare(where: str, what: str) -> Misuse:
    return Misuse(
        f"{where}: cannot compare {what}; return tensors or numbers of equal types, or pass "
        "gpubench.compare(…, check=…) a function of the results by name"
    )


def _is_numeric(value: object) -> bool:
    import torch

    return isinstance(value, (torch.Tensor, int, float, complex))


def _as_tensor(value: Any) -> Any:
    """`value` as a tensor, numbers in Python's precision."""
    import torch

    wide = {float: torch.float64, complex: torch.complex128}
    return torch.as_tensor(value, dtype=wide.get(type(value)))


def _has_value(value: Any) -> bool:
    """Whether a value can be compared: a tensor with an element, or anything but None."""
    return bool(_as_tensor(value).numel()) if _is_numeric(value) else value is not None


def _tells(value: Any) -> bool:
    """Whether a value is, or has, anything but None and numbers that are NaN or infinite."""
    import torch

    if not _is_numeric(value):
        return value is not None
    dense = _as_tensor(value).to_dense()
    # torch.isfinite has no types of 8 bits.
    return bool(torch.isfinite(dense.float() if dense.itemsize == 1 else dense).any())
