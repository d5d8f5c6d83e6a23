"""Whether the variants of a step have equal results."""

from __future__ import annotations

from cmath import isfinite
from collections import UserString
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any, Final, TypeGuard

import numpy as np

from gpubench_plugin.bench.step import Comparison, ResultCheck, short_repr
from gpubench_plugin.core.errors import CorrectnessError, Misuse, error_text
from gpubench_plugin.environment.torch_use import imported_torch

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_TEXTS: Final = (str, UserString, bytes, bytearray, range)
"""Sequences that are compared as a whole."""

_NUMBERS: Final = (int, float, complex)
_PLAIN: Final = {*_NUMBERS, bool, str, bytes, type(None)}
"""Types of values that are their own copies, of which a list may have millions."""

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
    if (torch := imported_torch()) is None:
        yield
        return
    devices = [device] if device.type in _SEEDED else []
    with torch.random.fork_rng(devices=devices, device_type=device.type if devices else "cuda"):
        yield


def agreement(results: Mapping[str, object], check: ResultCheck) -> Comparison:
    """Compare copies of the `results`, see :func:`copied`, with the first one.

    Numbers, arrays and tensors must be close by the tolerances of their types, of two types the
    wider ones, as by :func:`torch.testing.assert_close`; all other values must be equal. Where
    there are none, as the variants return None, tensors without elements, or an object that is
    equal to itself alone, nothing is compared.

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
        for place, reason in _differences(actual, expected, ""):
            at = f" at result{place}" if place else ""
            raise CorrectnessError(f"variant {name!r} disagrees with {reference!r}{at}: {reason}")
    values = [value for result in results.values() for value in _leaves(result)]
    values = [v for v in values if _has_equality(v) and 0 not in getattr(v, "shape", ())]
    if not values:
        return "unchecked"
    if not any(_tells(value) for value in values):
        raise CorrectnessError(
            f"the results of {_listed(results)} are NaN or infinite everywhere, which does not "
            "show that they agree; check=False leaves them unchecked"
        )
    return "close"


def copied(result: object) -> object:
    """Copy of a nested `result`: numbers of numpy become arrays, containers dicts and lists.

    Raises:
        Misuse: it is nested too deeply, or holds itself.
    """
    try:
        return _copied(result)
    except RecursionError:
        what = f"{type(result).__name__}, which is nested too deeply or holds itself"
        raise _cannot_compare(what) from None


def _copied(result: Any) -> object:
    if is_dataclass(result) and not isinstance(result, type):
        result = {field.name: getattr(result, field.name) for field in fields(result)}
    if _is_tensor(result):
        return result.detach().clone()
    if isinstance(result, np.ndarray | np.generic | memoryview):
        return _copied_array(result)
    if isinstance(result, Mapping):
        return {key: _copied(value) for key, value in result.items()}
    if isinstance(result, Sequence) and not isinstance(result, _TEXTS):
        is_plain = _PLAIN.issuperset(map(type, result))
        return [*result] if is_plain else [_copied(value) for value in result]
    if type(result).__hash__ is None:  # as sets and arrays of bytes, it holds what may change
        with suppress(Exception):  # whatever its own way of copying raises
            return deepcopy(result)
    return result


def _copied_array(result: np.ndarray[Any, Any] | np.generic | memoryview) -> object:
    if isinstance(result, np.ma.MaskedArray):
        return {"mask": np.ma.getmaskarray(result), "data": _copied(result.filled(0))}
    array = np.array(result)
    if array.dtype.kind in "biufc":
        return array
    return _copied(result.tolist()) if isinstance(result, np.ndarray | np.void) else result


def _is_tensor(value: object) -> TypeGuard[Tensor]:
    torch = imported_torch()
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
    value = np.asarray(verdict.cpu() if _is_tensor(verdict) else copied(verdict))
    if value.dtype != np.bool_ or value.ndim:
        raise Misuse(  # its truth says nothing, as that of a difference
            f"gpubench.compare: check returned {short_repr(verdict)}; allowed: True, False, or None"
        )
    if not value:
        raise CorrectnessError(f"the results of {_listed(results)} disagree: check returned False")


def _listed(names: Mapping[str, object]) -> str:
    return ", ".join(map(repr, names))


def _leaves(value: object) -> Iterator[Any]:
    """Values of a copied result that are no containers."""
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _leaves(part)
    else:
        yield value


def _differences(actual: Any, expected: Any, place: str) -> Iterator[tuple[str, str]]:
    """Places in which two copied results differ, and how, in one line.

    Raises:
        Misuse: there is no telling.
    """
    if isinstance(actual, list) and isinstance(expected, list):
        actual, expected = dict(enumerate(actual)), dict(enumerate(expected))
    if not (isinstance(actual, dict) and isinstance(expected, dict)):
        if reason := _difference(actual, expected, place):
            yield place, reason
        return
    for one, other, what in (expected, actual, "missing"), (actual, expected, "not in the other"):
        yield from ((f"{place}[{key!r}]", f"is {what}") for key in one if key not in other)
    for key, value in expected.items():
        yield from _differences(actual[key], value, f"{place}[{key!r}]")


def _difference(actual: Any, expected: Any, place: str) -> str:
    """How two values differ; empty if they agree."""
    if isinstance(actual, _NUMBERS) and isinstance(expected, _NUMBERS):
        return _difference_of_numbers(actual, expected)
    kinds = type(actual).__name__, type(expected).__name__
    pair = _as_array(actual), _as_array(expected)
    if all(isinstance(value, np.ndarray) for value in pair):
        return _difference_of_arrays(*pair)
    if all(_is_tensor(value) or isinstance(value, np.ndarray) for value in pair):
        return _difference_of_tensors(*pair, place)
    if type(actual) is not type(expected):
        return f"{kinds[0]} instead of {kinds[1]}"
    if actual is expected:
        if type(actual).__hash__ is None:
            raise _cannot_compare(f"the {kinds[0]} that both return, which cannot be copied", place)
        return ""
    if _has_equality(actual):
        with suppress(Exception):  # whatever an object's own comparison raises, or returns
            return "" if actual == expected else "the values differ"
    raise _cannot_compare(f"two objects of {kinds[0]}", place)


def _as_array(value: Any) -> Any:
    """An array of a number, but of an integer that fits into none."""
    array = np.asarray(value) if isinstance(value, _NUMBERS) else value
    fits = not (isinstance(array, np.ndarray) and array.dtype.hasobject)
    return array if fits else value


def _has_equality(value: object) -> bool:
    """Whether it can be equal to another; None, which is no result, cannot."""
    return value is not None and type(value).__eq__ is not vars(object)["__eq__"]


def _difference_of_numbers(actual: complex, expected: complex) -> str:
    relative, absolute = (0, 0) if isinstance(actual, int) and isinstance(expected, int) else _USUAL
    if actual == expected or (actual != actual and expected != expected):  # noqa: PLR0124 # NaN
        return ""
    with suppress(OverflowError):  # of an integer that no float can be close to
        if abs(actual - expected) <= absolute + relative * abs(expected) < float("inf"):
            return ""
    return f"{actual!r} instead of {expected!r}"


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


def _difference_of_tensors(actual: Any, expected: Any, place: str) -> str:
    import torch
    from torch.testing import assert_close

    actual, expected = torch.as_tensor(actual), torch.as_tensor(expected)
    if actual.is_meta or expected.is_meta:
        raise _cannot_compare("meta tensors, which have no data", place)
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
        raise _cannot_compare(f"{actual.dtype} with {expected.dtype}", place) from error
    return ""


def _in_one_line(error: AssertionError) -> str:
    lines = (line.strip().rstrip(".!") for line in error_text(error).splitlines())
    return "; ".join(filter(None, lines))


def _cannot_compare(what: str, place: str = "") -> Misuse:
    return Misuse(
        f"result{place}: cannot compare {what}; return tensors or numbers of equal types, or pass "
        "gpubench.compare(…, check=…) a function of the results by name"
    )


def _tells(value: Any) -> bool:
    """Whether a value is, or has, anything but numbers that are NaN or infinite."""
    if _is_tensor(value):
        import torch

        from gpubench_plugin.precision._nested import values_of

        return bool(torch.isfinite(values_of(value)).any())
    if isinstance(value, float | complex):
        return isfinite(value)
    return not isinstance(value, np.ndarray) or bool(np.isfinite(value).any())
