"""Agreement of the results of several variants of a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from numbers import Number
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from gpubench_plugin.bench.misuse import short_repr
from gpubench_plugin.errors import CorrectnessError, Misuse, error_text
from gpubench_plugin.quality_flags import UNCHECKED

if TYPE_CHECKING:
    from collections.abc import Iterator

ResultCheck: TypeAlias = Callable[[dict[str, Any]], object] | bool | None
"""``None``: the results are equal or close; ``False``: unchecked; else a function of the results by
name, which raises or returns False where they disagree."""


_NUMERIC: Final = "biufc"
"""Kinds of numpy's types that torch has: bool, integers, floating and complex numbers."""


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How results that agree were compared: by a ``check``, as ``close``, or not at all."""

    comparison: Literal["check", "close", "unchecked"]

    @property
    def correctness(self) -> dict[str, str]:
        """What the record says of it."""
        return {"variants_agree": self.comparison}

    @property
    def flags(self) -> tuple[str, ...]:
        """``unchecked`` where nothing was compared."""
        return (UNCHECKED,) if self.comparison == "unchecked" else ()


def agreement(results: Mapping[str, object], check: ResultCheck) -> Agreement:
    """Compare the `results` with the first one.

    Numbers and tensors are compared by :func:`torch.testing.assert_close`, with the tolerances of
    their types, of two types the wider ones; all other values must be equal. Where there are none,
    as the variants return None, nothing is compared.

    Raises:
        CorrectnessError: a variant disagrees, and where and by how much.
        Misuse: `check` is of another kind, or there is no telling whether values are equal.
    """
    if check is False:
        return Agreement(comparison="unchecked")
    if callable(check):
        _call(check, dict(results))
        return Agreement(comparison="check")
    if check is not None:
        raise Misuse(
            f"gpubench.compare(…, check={short_repr(check)}); allowed: None, False, "
            "or a function of the results by name"
        )
    (reference, expected), *others = results.items()
    compared = 0
    for name, actual in others:
        comparison = _Comparison(name, reference)
        comparison.compare(expected, actual, "")
        compared += comparison.values
    return Agreement(comparison="close" if compared else "unchecked")


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
    if verdict is False:
        raise CorrectnessError(f"the results of {_listed(results)} disagree: check returned False")


def _listed(names: Mapping[str, object]) -> str:
    return ", ".join(map(repr, names))


class _Comparison:
    """Comparison of the nested results of two variants; `values` are those compared so far."""

    def __init__(self, variant: str, reference: str) -> None:
        self._variant = variant
        self._reference = reference
        self.values = 0

    def compare(self, expected: Any, actual: Any, place: str) -> None:
        """Compare what two variants have at this `place` of their results."""
        if isinstance(expected, Mapping) and isinstance(actual, Mapping):
            self._compare_parts(expected, actual, place)
        elif _is_sequence(expected) and _is_sequence(actual):
            self._compare_parts(dict(enumerate(expected)), dict(enumerate(actual)), place)
        elif _is_numeric(expected) and _is_numeric(actual):
            self._compare_numbers(expected, actual, place)
        elif expected is not None or actual is not None:
            self._compare_others(expected, actual, place)

    def _compare_parts(
        self, expected: Mapping[Any, Any], actual: Mapping[Any, Any], place: str
    ) -> None:
        if missing := [*expected.keys() ^ actual.keys()]:
            key = missing[0]
            side = "is missing" if key in expected else "is not in the other"
            raise self._disagree(f"{place}[{key!r}]", side)
        for key, part in expected.items():
            self.compare(part, actual[key], f"{place}[{key!r}]")

    def _compare_numbers(self, expected: Any, actual: Any, place: str) -> None:
        from torch.testing import assert_close

        self.values += 1
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
            raise self._disagree(place, "; ".join(_sentences(error_text(error)))) from None

    def _compare_others(self, expected: Any, actual: Any, place: str) -> None:
        self.values += 1
        kinds = type(actual).__name__, type(expected).__name__
        if type(expected) is not type(actual):
            raise self._disagree(place, f"{kinds[0]} instead of {kinds[1]}")
        has_no_equality = vars(object)["__eq__"] is type(expected).__eq__
        if expected is actual or (not has_no_equality and _equal(expected, actual)):
            return
        if has_no_equality:
            raise Misuse(
                f"variant {self._variant!r}: two objects of {kinds[0]} cannot "
                f"be compared{_at(place)}; return tensors or numbers, or pass gpubench.compare(…, "
                "check=…) a function of the results by name"
            )
        raise self._disagree(place, "the values differ")

    def _disagree(self, place: str, reason: str) -> CorrectnessError:
        return CorrectnessError(
            f"variant {self._variant!r} disagrees with {self._reference!r}{_at(place)}: {reason}"
        )


def _is_sequence(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray))


def _is_numeric(value: object) -> bool:
    import torch

    return isinstance(value, (torch.Tensor, Number))


def _equal(expected: Any, actual: Any) -> bool:
    try:
        return bool(expected == actual)
    except Exception:
        return False


def _at(place: str) -> str:
    return f" at result{place}" if place else ""


def _sentences(message: str) -> Iterator[str]:
    """Lines of a message of torch, without what only its own callers can use."""
    for line in message.splitlines():
        if line.strip():
            yield line.strip().rstrip(".!")
