"""Whether the results of two variants agree, and what is said where they do not."""

from __future__ import annotations

from collections import UserString, deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch

from gpubench_plugin.bench.equal_results import agreement, copied
from gpubench_plugin.bench.step import ResultCheck
from gpubench_plugin.core.errors import CorrectnessError, UsageProblem

ONES, NAN = torch.ones(4), float("nan")


@dataclass
class Output:
    """As some libraries return it."""

    logits: Any


class Opaque:
    """An object that is equal to itself only."""


class Elementwise:
    """An object whose comparison is an array, as of data frames."""

    __hash__ = None  # type: ignore[assignment] # as of those

    def __eq__(self, other: object) -> Any:
        return np.array([True, False])


@dataclass(frozen=True)
class Named:
    """A key that shows nothing of what it is."""

    number: int

    def __repr__(self) -> str:
        return "K"


def masked(hidden: int, hides: int) -> np.ma.MaskedArray[Any, Any]:
    """An array of three, the last of which may be hidden."""
    return np.ma.MaskedArray([1, 2, hidden], mask=[0, 0, hides])


def compared(first: object, second: object, check: ResultCheck = None) -> str:
    """How two results were compared that agree."""
    results = {"eager": copied(first), "compiled": copied(second)}
    return agreement(results, check)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (ONES, ONES + 1e-7),
        (ONES, ONES.bfloat16() * 1.001),
        (ONES.requires_grad_(), ONES.detach().numpy()),
        (torch.tensor([1.0, NAN]), torch.tensor([1.0, NAN])),
        ((NAN, "stop"), (NAN, "stop")),
        (1.0, torch.tensor(1.0)),
        (True, 1),
        (torch.eye(2), torch.eye(2).to_sparse()),
        (ONES.to(torch.float8_e4m3fn), ONES.to(torch.float8_e4m3fn)),
        ((1.0, [ONES, "greedy"]), [1.0, (ONES, "greedy")]),
        ({"logits": ONES, "cache": None}, {"logits": ONES, "cache": None}),
        (Output(logits=ONES), Output(logits=ONES.clone())),
        (np.float32(0.5), 0.5),
        (np.ones(4), np.ones(4, np.float16) * np.float16(1.001)),
        (np.array(["a", "b"]), ["a", "b"]),
        (2**63, 2**63),
        (np.longdouble(0.5), np.longdouble(0.5)),
        (np.array([0.5], np.longdouble), np.array([0.5], np.longdouble)),
        (deque([ONES]), [ONES + 1e-7]),
        (range(3), range(3)),
        (masked(8, 1), masked(9, 1)),
        (memoryview(b"ab"), memoryview(bytearray(b"ab"))),
        (UserString("ab"), UserString("ab")),
        ([1.0, 2, NAN] * 1000, [1, 2.0 + 1e-9, NAN] * 1000),
    ],
)
def test_equal_and_close_results_agree(first: object, second: object) -> None:
    """By the tolerances of their types, in any nesting."""
    assert compared(first, second) == "close"


def test_variants_without_results_are_unchecked() -> None:
    """None says nothing; so does a check that is switched off, whatever the results."""
    assert compared(None, None) == "unchecked"
    assert compared((None, []), (None, [])) == "unchecked"
    assert compared(torch.empty(0), torch.empty(0)) == "unchecked"
    assert compared(1, 2, check=False) == "unchecked"


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        (ONES, ONES + 0.5, "4 / 4 (100.0%); Greatest absolute difference: 0.5"),
        (ONES, torch.ones(5), "'compiled' disagrees with 'eager': The values for"),
        ({"a": [1, 2]}, {"a": [1, 3]}, "at result['a'][1]: 3 instead of 2"),
        ([1], [1, 2], "at result[1]: is not in the other"),
        ({"a": 1}, {}, "at result['a']: is missing"),
        ("yes", "no", "the values differ"),
        (float("inf"), 1.0, "1.0 instead of inf"),
        ([float("inf"), 1], [float("-inf"), 1], "at result[0]: -inf instead of inf"),
        (2**62, 2**70, f"{2**70} instead of {2**62}"),
        (2**63, 2**63 + 1, "9223372036854775809 instead of 9223372036854775808"),
        (2**2000, 0.5, "0.5 instead of 1148"),
        (2**70, np.int64(1), "ndarray instead of int"),
        (1, "1", "str instead of int"),
        (np.longdouble(1), np.longdouble(2), "Max absolute difference among violations: 1"),
        (np.ones(4), np.ones(5), "the shape (5,) instead of (4,)"),
        (np.ones(4), 1, "the shape () instead of (4,)"),
        (1.0, 1.0 + 1e-5, "1.00001 instead of 1.0"),
        (True, 0, "0 instead of True"),
        ({"n": 1}, {"n": 1, "errors": {}}, "at result['errors']: is not in the other"),
        ([1, []], [1, {}], "at result[1]: dict instead of list"),
        ([1, 2], {0: 1, 1: 2}, "dict instead of list"),
        ({Named(1): 1, Named(2): 2}, {Named(1): 5, Named(2): 2}, "at result[K]: 5 instead of 1"),
        (masked(9, 0), masked(9, 1), "at result['mask']: Arrays are not equal"),
        (deque([ONES]), deque([ONES + 0.5]), "at result[0]: Tensor-likes are not close"),
        (ONES, None, "NoneType instead of Tensor"),
    ],
)
def test_a_disagreement_names_variant_place_and_amount(
    first: object, second: object, reason: str
) -> None:
    """In one line, which is the reason of the failed benchmark."""
    with pytest.raises(CorrectnessError) as caught:
        compared(first, second)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [NAN, {"loss": torch.full((4,), NAN)}, torch.tensor([-np.inf])])
def test_results_without_a_finite_number_do_not_agree(value: object) -> None:
    """Two variants that compute nothing but NaN show nothing, unless it is meant so."""
    with pytest.raises(CorrectnessError, match="'compiled' are NaN or infinite everywhere, which"):
        compared(value, value)
    assert compared(value, value, check=False) == "unchecked"


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        (ONES, ONES.to(torch.float8_e4m3fn), "result: cannot compare torch"),
        ([Opaque()], [Opaque()], r"result\[0\]: cannot compare two objects of Opaque"),
        (Elementwise(), Elementwise(), "cannot compare two objects of Elementwise"),
        (ONES.to("meta"), ONES.to("meta"), "cannot compare meta tensors"),
        (ONES, ONES.to("meta"), "cannot compare meta tensors"),
    ],
)
def test_what_cannot_be_compared_asks_for_a_check(first: object, second: object, said: str) -> None:
    """Two objects without equality neither agree nor disagree."""
    with pytest.raises(UsageProblem, match=said):
        compared(first, second)


def test_an_object_that_is_equal_to_itself_alone_is_unchecked() -> None:
    """It is the same whatever a variant has done to it."""
    shared = Opaque()
    assert compared(shared, shared) == "unchecked"
    assert compared((shared, 1), (shared, 1)) == "close"


def test_a_copy_keeps_what_is_written_in_place() -> None:
    """A buffer that every variant writes to is compared as each has left it."""
    buffer, array, text, seen = torch.zeros(2), np.zeros(2), bytearray(2), set[int]()
    record = np.zeros(1, [("x", int)])[0]
    parts = {"array": [array], "record": record, "text": text, "seen": seen}
    kept = copied({"buffer": buffer, **parts})
    buffer += 1
    array += 1
    record["x"] = 1
    text[0] = 1
    seen.add(1)
    zeros = {"buffer": torch.zeros(2), "array": [np.zeros(2)], "record": (0,)}
    zeros |= {"text": bytearray(2), "seen": set()}
    assert compared(kept, zeros) == "close"


class Uncopied(Elementwise):
    """One that holds what cannot be copied."""

    def __deepcopy__(self, memo: object) -> Uncopied:
        raise TypeError


def test_what_was_not_copied_may_have_changed() -> None:
    """A mutable object that both variants return says nothing of what each has done to it."""
    shared = Uncopied()
    with pytest.raises(UsageProblem, match="the Uncopied that both return, which cannot be copied"):
        compared(shared, shared)


def test_what_holds_itself_cannot_be_compared() -> None:
    """Nor what is nested as deeply as Python can follow."""
    result: list[object] = []
    result.append(result)
    with pytest.raises(UsageProblem, match="list, which is nested too deeply or holds itself"):
        compared(result, result)


def test_a_check_of_ones_own_decides() -> None:
    """It is given the results by name; raising an AssertionError and returning False refuse."""
    seen = []
    assert compared(1, 2, check=seen.append) == "check"
    assert seen == [{"eager": 1, "compiled": 2}]
    with pytest.raises(CorrectnessError, match=r"'eager', 'compiled' disagree: check .* False"):
        compared(1, 2, check=lambda results: results["eager"] == results["compiled"])

    def asserting(results: dict[str, int]) -> None:
        message = "too far apart"
        raise AssertionError(message)

    with pytest.raises(CorrectnessError, match="disagree: too far apart"):
        compared(1, 2, check=asserting)
    for verdict in (torch.tensor(False), np.bool_(False)):
        with pytest.raises(CorrectnessError, match="disagree: check returned False"):
            compared(1, 2, check=lambda _, verdict=verdict: verdict)
    assert compared(1, 1, check=lambda _: (ONES > 0).all()) == "check"
    for unclear in (0.0, ONES > 0, (value for value in ())):
        with pytest.raises(UsageProblem, match=r"check returned .*; allowed: True, False, or None"):
            compared(1, 1, check=lambda _, unclear=unclear: unclear)
    with pytest.raises(UsageProblem, match="check='exact'"):
        compared(1, 1, check="exact")  # type: ignore[arg-type] # what is refused
