"""Floating-point operations, against numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from gpubench_plugin.measure.probes import FlopCount, count_flops


def tensor(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(*shape, dtype=dtype, requires_grad=True)


def linear() -> None:
    torch.nn.Linear(16, 32, bias=False)(torch.empty(8, 16))


def linear_with_backward() -> None:
    layer = torch.nn.Linear(16, 32, bias=False)
    layer(tensor(8, 16)).square().sum().backward()


def convolution() -> None:
    torch.nn.Conv2d(3, 5, kernel_size=3, padding=1, bias=False)(torch.empty(2, 3, 8, 8))


@pytest.mark.parametrize(
    ("step", "flops"),
    [
        (linear, 2 * 8 * 16 * 32),
        (linear_with_backward, 3 * 2 * 8 * 16 * 32),
        (convolution, 2 * 2 * 8 * 8 * 5 * 3 * 3 * 3),
    ],
)
def test_products_and_convolutions(step: Callable[[], None], flops: int) -> None:
    """Two operations per multiplication and addition; backward costs twice the forward."""
    assert flops == count_flops(step).total


def attention(*, backward: bool, value_width: int = 8) -> FlopCount:
    """Two sequences, four heads, 16 queries, 24 keys of width 8."""

    def step() -> None:
        query, key = tensor(2, 4, 16, 8), tensor(2, 4, 24, 8)
        result = functional.scaled_dot_product_attention(query, key, tensor(2, 4, 24, value_width))
        if backward:
            result.square().sum().backward()

    return count_flops(step)


def test_attention_on_the_cpu_is_counted() -> None:
    """Forward two products of 16 × 24 × 8 per head, backward five: torch counts none of them."""
    product = 2 * 2 * 4 * 16 * 24 * 8
    assert 2 * product == attention(backward=False).total
    assert (2 + 5) * product == attention(backward=True).total


def test_attention_of_another_width_of_values_is_counted() -> None:
    """Scores cost the width of the keys, their application that of the values."""
    scores = 2 * 2 * 4 * 16 * 24
    assert scores * (8 + 32) == attention(backward=False, value_width=32).total


def grouped(left: tuple[int, ...], right: tuple[int, ...], groups: int | None) -> int:
    """The operations of a grouped product of these shapes."""

    def step() -> None:
        offsets = None if groups is None else torch.empty(groups, dtype=torch.int32)
        torch._grouped_mm(
            tensor(*left, dtype=torch.bfloat16),
            tensor(*right, dtype=torch.bfloat16),
            offs=offsets,
        )

    return count_flops(step).total


@pytest.mark.parametrize(
    ("left", "right", "groups", "flops"),
    [
        ((32, 16), (4, 16, 8), 4, 2 * 32 * 16 * 8),
        ((4, 32, 16), (16, 64), 4, 2 * 32 * 16 * 64),
        ((32, 64), (64, 16), 4, 2 * 32 * 64 * 16),
        ((4, 32, 16), (4, 16, 8), None, 4 * 2 * 32 * 16 * 8),
    ],
    ids=["rows", "columns", "inner", "batch"],
)
def test_grouped_products_are_counted(
    left: tuple[int, ...], right: tuple[int, ...], groups: int | None, flops: int
) -> None:
    """Whichever side is in groups, all rows meet all columns of their group once."""
    assert flops == grouped(left, right, groups)


def test_what_has_no_formula_is_listed() -> None:
    """Operations that compute but are not counted are named; views and copies are not."""

    def step() -> None:
        values = functional.gelu(torch.empty(4, 4) @ torch.empty(4, 4))
        torch.linalg.vector_norm(values.view(16).clone())

    counted = count_flops(step)
    assert counted == FlopCount(
        total=2 * 4 * 4 * 4, uncounted_ops=("aten.gelu", "aten.linalg_vector_norm")
    )


def test_a_training_step_is_counted_without_touching_data() -> None:
    """Model, loss, backward and optimizer run on tensors without data, and draw no numbers."""

    def step() -> None:
        model = torch.nn.Sequential(
            torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        labels = torch.zeros(8, dtype=torch.long)
        functional.cross_entropy(model(torch.empty(8, 16)), labels).backward()
        optimizer.step()

    state = torch.get_rng_state()
    first, second = 2 * 8 * 16 * 32, 2 * 8 * 32 * 4
    assert 2 * first + 3 * second == count_flops(step).total
    assert torch.equal(state, torch.get_rng_state())


def test_an_exception_goes_on_to_the_caller() -> None:
    """What the step raises is raised, and real tensors are real again."""

    def step() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        count_flops(step)
    assert torch.ones(2).sum().item() == 2
