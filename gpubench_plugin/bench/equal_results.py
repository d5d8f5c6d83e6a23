"""Whether the variants of a step have equal results."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, Final, TypeGuard

import numpy as np

from gpubench_plugin.bench.step import Comparison, ResultCheck, short_repr
from gpubench_plugin.core.errors import CorrectnessError, Misuse, error_text

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_TEXTS: Final = (str, bytes, bytearray, memoryview, range)
"""Sequences that are compared as a whole."""

_SEEDED: Final = ("cuda", "xpu")
"""Device types whose generators torch saves by device; MPS has a single one."""

_USUAL: Final = (1e-7, 1e-7)
_TOLERANCES: Final[dict[object, tuple[float, float]]] = {
    **dict.fromkeys("biu", (0.0, 0.0)),
    np.dtype(np.float32): (1.3e-6, 1e-5),
    np.dtype(np.complex64): (1.3e-6, 1e-5),
    np.dtype(np.float16): (1e-3, 1e-5),
}
"""Relative and absolute tolerance by type or kind of array, as of torch.testing.assert_close."""


@contextmanager
def random_state_kept(device: torch.device) -> Iterator[None]:
    """Put torch's random states back afterwards, so that the next variant starts from the same."""
    if (torch := sys.modules.get("torch")) is None:
        yield
        return
    devices = [device] if device.type in _SEEDED else []
    with torch.random.fork_rng(devices=devices, device_type=device.type if devices else "cuda"):
        yield


def agreement(results: Mapping[str, object], check: ResultCheck) -> Comparison:
    """Compare copies of the `results`, see :func:`copied`, with the first one.

    Numbers, arrays and tensors must be close by the tolerances of their types, of two types the
    wider ones, as by :func:`torch.testing.assert_close`; all other values must be equal. Where
    there are none, as the variants return None or tensors without elements, nothing is compared.

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
    leaves = {name: dict(_leaves(result)) for name, result in results.items()}
    (reference, expected), *others = leaves.items()
    for name, actual in others:
        _compare(name, actual, reference, expected)
    values = [value for of_variant in leaves.values() for value in of_variant.values()]
    values = [v for v in values if v is not None and 0 not in getattr(v, "shape", ())]
    if not values:
        return "unchecked"
    if not any(_tells(value) for value in values):
        raise CorrectnessError(
            f"the results of {_listed(results)} are NaN or infinite everywhere, which does not "
            "show that they agree; check=False leaves them unchecked"
        )
    return "close"


def copied(result: object) -> object:
    """Copy of a nested `result`: numbers become arrays, containers dicts and lists."""
    if is_dataclass(result) and not isinstance(result, type):
        result = {field.name: getattr(result, field.name) for field in fields(result)}
    if _is_tensor(result):
        return result.detach().clone()
    match result:
        case np.ndarray() | np.generic() | int() | float() | complex():
            array = np.array(result)
            if array.dtype.kind in "biufc":
                return array
            return copied(result.tolist()) if isinstance(result, np.ndarray) else result
        case Mapping():
            return {key: copied(value) for key, value in result.items()}
        case Sequence() if not isinstance(result, _TEXTS):
            return [copied(value) for value in result]
    return result


def _is_tensor(value: object) -> TypeGuard[Tensor]:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _call(check: Callable[[dict[str, Any]], object], results: dict[str, Any]) -> None:
    try:
        verdict = check(results)
    except AssertionError as error:
        reason = " ".join(error_text(error).split())
        raise CorrectnessError(
            f"the results of {_listed(results)} disagree: {reason or 'check raised'}"
        ) from error
    if verdict is None:
        return
    value = verdict.cpu().numpy() if _is_tensor(verdict) else copied(verdict)
    if not isinstance(value, np.ndarray) or value.dtype != np.bool_ or value.ndim:
        raise Misuse(  # its truth says nothing, as that of a difference
            f"gpubench.compare: check returned {short_repr(verdict)}; allowed: True, False, or None"
        )
    if not value:
        raise CorrectnessError(f"the results of {_listed(results)} disagree: check returned False")


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
    reasons = {place: "is missing" for place in expected if place not in actual}
    reasons |= {place: "is not in the other" for place in actual if place not in expected}
    for place, value in () if reasons else expected.items():
        if reason := _difference(actual[place], value, f"variant {variant!r}, result{place}"):
            reasons[place] = reason
            break
    for place, reason in reasons.items():
        at = f" at result{place}" if place else ""
        raise CorrectnessError(f"variant {variant!r} disagrees with {reference!r}{at}: {reason}")


def _difference(actual: Any, expected: Any, where: str) -> str:
    """How two values differ, in one line; empty if they agree.

    Raises:
        Misuse: there is no telling.
    """
    kinds = type(actual).__name__, type(expected).__name__
    if isinstance(actual, np.ndarray) and isinstance(expected, np.ndarray):
        return _difference_of_arrays(actual, expected)
    if all(_is_tensor(value) or isinstance(value, np.ndarray) for value in (actual, expected)):
        return _difference_of_tensors(actual, expected, where)
    if type(actual) is not type(expected):
        return f"{kinds[0]} instead of {kinds[1]}"
    if actual is expected:
        return ""
    if vars(object)["__eq__"] is not type(actual).__eq__:
        with suppress(Exception):  # whatever an object's own comparison raises, or returns
            return "" if actual == expected else "the values differ"
    raise _cannot_compare(where, f"two objects of {kinds[0]}")


def _difference_of_arrays(actual: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> str:
    if actual.shape != expected.shape:
        return f"the shape {actual.shape} instead of {expected.shape}"
    stated = [
        _TOLERANCES.get(array.dtype, _TOLERANCES.get(array.dtype.kind, _USUAL))
        for array in (actual, expected)
    ]
    relative, absolute = map(max, zip(*stated, strict=True))
    shows_values = actual.size == 1
    try:
        if relative:
            np.testing.assert_allclose(
                actual, expected, rtol=relative, atol=absolute, verbose=shows_values
            )
        else:
            np.testing.assert_array_equal(actual, expected, verbose=shows_values)
    except AssertionError as error:
        return _in_one_line(error)
    return ""


def _difference_of_tensors(actual: Any, expected: Any, where: str) -> str:
    import torch
    from torch.testing import assert_close

    actual, expected = torch.as_tensor(actual), torch.as_tensor(expected)
    if actual.is_meta or expected.is_meta:
        raise _cannot_compare(where, "meta tensors, which have no data")
    try:
        assert_close(
            actual,
            expected,
            equal_nan=True,
            check_device=False,
            check_dtype=False,
            check_layout=False,
        )
    except AssertionError as error:
        return _in_one_line(error)
    except RuntimeError as error:  # types that torch cannot compare, as of 8 bits with 32
        raise _cannot_compare(where, f"{actual.dtype} with {expected.dtype}") from error
    return ""


def _in_one_line(error: AssertionError) -> str:
    lines = (line.strip().rstrip(".!") for line in error_text(error).splitlines())
    return "; ".join(filter(None, lines))


def _cannot_compare(where: str, what: str) -> Misuse:
    return Misuse(
        f"{where}: cannot compare {what}; return tensors or numbers of equal types, or pass "
        "gpubench.compare(…, check=…) a function of the results by name"
    )


def _tells(value: Any) -> bool:
    """Whether a value is, or has, anything but numbers that are NaN or infinite."""
    if _is_tensor(value):
        import torch

        from gpubench_plugin.precision._nested import values_of

        return bool(torch.isfinite(values_of(value)).any())
    return not isinstance(value, np.ndarray) or bool(np.isfinite(value).any())
