"""Agreement of the results of several variants of a step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from gpubench_plugin.bench.misuse import short_repr
from gpubench_plugin.core.errors import CorrectnessError, Misuse, error_text
from gpubench_plugin.core.quality_flags import UNCHECKED

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

ResultCheck: TypeAlias = Callable[[dict[str, Any]], object] | bool | None
"""``None``: the results are equal or close; ``False``: unchecked; else a function of the results by
name, which raises or returns False where they disagree, and else returns None or True."""


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
    as the variants return None or tensors without elements, nothing is compared.

    Raises:
        CorrectnessError: a variant disagrees, and where and by how much; or no number is finite.
        Misuse: `check` is or returns something else, or there is no telling whether values are
            equal.
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
    comparisons = [_Comparison(name, reference) for name, _ in others]
    for comparison, (_, actual) in zip(comparisons, others, strict=True):
        comparison.compare(expected, actual, "")
    if not any(comparison.values for comparison in comparisons):
        return Agreement(comparison="unchecked")
    if not any(comparison.telling_values for comparison in comparisons):
        raise CorrectnessError(
            f"the results of {_listed(results)} are NaN or infinite everywhere, which does not "
            "show that they agree; check=False leaves them unchecked"
        )
    return Agreement(comparison="close")


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


class _Comparison:
    """Comparison of the nested results of two variants.

    `values` counts those compared so far, `telling_values` those that are not NaN or infinite
    throughout.
    """

    def __init__(self, variant: str, reference: str) -> None:
        self._variant = variant
        self._reference = reference
        self.values = 0
        self.telling_values = 0

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
        import torch
        from torch.testing import assert_close

        expected, actual = _of_one_kind(expected, actual)
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
        except RuntimeError as error:  # types that torch cannot compare, as of 8 bits with 32
            kinds = f"{_type_of(actual)} with {_type_of(expected)}"
            raise self._cannot_compare(f"torch cannot compare {kinds}", place) from error
        values = torch.as_tensor(expected)
        self.values += bool(values.numel())
        self.telling_values += _has_finite(values)

    def _compare_others(self, expected: Any, actual: Any, place: str) -> None:
        self.values += 1
        self.telling_values += 1
        kinds = type(actual).__name__, type(expected).__name__
        if type(expected) is not type(actual):
            raise self._disagree(place, f"{kinds[0]} instead of {kinds[1]}")
        has_no_equality = vars(object)["__eq__"] is type(expected).__eq__
        if expected is actual or (not has_no_equality and _equal(expected, actual)):
            return
        if has_no_equality:
            raise self._cannot_compare(f"two objects of {kinds[0]} cannot be compared", place)
        raise self._disagree(place, "the values differ")

    def _cannot_compare(self, reason: str, place: str) -> Misuse:
        return Misuse(
            f"variant {self._variant!r}: {reason}{_at(place)}; return tensors or numbers of equal "
            "types, or pass gpubench.compare(…, check=…) a function of the results by name"
        )

    def _disagree(self, place: str, reason: str) -> CorrectnessError:
        return CorrectnessError(
            f"variant {self._variant!r} disagrees with {self._reference!r}{_at(place)}: {reason}"
        )


def _is_sequence(value: object) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray))


def _is_numeric(value: object) -> bool:
    import torch

    return isinstance(value, (torch.Tensor, int, float, complex))


def _of_one_kind(expected: Any, actual: Any) -> tuple[Any, Any]:
    """Both as tensors if one is, else as numbers: assert_close takes neither mixed, nor bools."""
    import torch

    if isinstance(expected, torch.Tensor) or isinstance(actual, torch.Tensor):
        return torch.as_tensor(expected), torch.as_tensor(actual)
    return +expected, +actual


def _type_of(value: object) -> str:
    import torch

    return str(value.dtype) if isinstance(value, torch.Tensor) else type(value).__name__


def _has_finite(values: torch.Tensor) -> bool:
    """Whether a number among the `values` is neither NaN nor infinite."""
    import torch

    if values.is_meta:
        return False
    dense = values if values.layout == torch.strided else values.to_dense()
    if not (dense.is_floating_point() or dense.is_complex()):
        return bool(dense.numel())
    wide = dense.float() if dense.itemsize == 1 else dense  # isfinite has no types of 8 bits
    return bool(torch.isfinite(wide).any())


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
