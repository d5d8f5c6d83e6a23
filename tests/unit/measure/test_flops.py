"""Floating-point operations, against numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from gpubench_plugin.measure.probes.operations import FlopCount, count_flops


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


PRODUCT = 2 * 2 * 4 * 16 * 24 * 8
"""FLOPs of 16 by 24 by 8 per head, of two sequences with four heads."""


def test_attention_on_the_cpu_is_counted() -> None:
    """Forward two products per head, backward four; the scores computed again do not count."""
    assert attention(backward=False).total == 2 * PRODUCT
    assert attention(backward=True).total == (2 + 4) * PRODUCT


def test_a_causal_mask_is_not_deducted() -> None:
    """Half of the scores are masked, and all count."""

    def step() -> None:
        query, key, value = (tensor(2, 4, 16, 8) for _ in range(3))
        functional.scaled_dot_product_attention(query, key, value, is_causal=True)

    assert count_flops(step).total == 2 * 2 * 2 * 4 * 16 * 16 * 8


def test_heads_that_share_keys_are_counted_as_heads_of_the_query() -> None:
    """Grouped queries save memory, not operations: four heads meet two heads of keys."""

    def step() -> None:
        query, key, value = tensor(2, 4, 16, 8), tensor(2, 2, 24, 8), tensor(2, 2, 24, 8)
        functional.scaled_dot_product_attention(query, key, value, enable_gqa=True)

    assert count_flops(step).total == 2 * PRODUCT


aten = torch.ops.aten


def absent(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """A tensor without data, for operations that only CUDA has."""
    return torch.empty(*shape, dtype=dtype, device="meta")


def attention_operands() -> dict[str, torch.Tensor]:
    query, key = absent(2, 4, 16, 8), absent(2, 4, 24, 8)
    return {"query": query, "key": key, "value": absent(2, 4, 24, 8)}


def saved_operands() -> dict[str, torch.Tensor]:
    logsumexp = absent(2, 4, 16, dtype=torch.float32)
    return {"out": absent(2, 4, 16, 8), "logsumexp": logsumexp}


def flash(*, backward: bool) -> object:
    if not backward:
        return aten._scaled_dot_product_flash_attention(**attention_operands())
    return aten._scaled_dot_product_flash_attention_backward(
        grad_out=absent(2, 4, 16, 8),
        **attention_operands(),
        **saved_operands(),
        **dict.fromkeys(("cum_seq_q", "cum_seq_k"), absent(3, dtype=torch.int32)),
        max_q=16,
        max_k=24,
        dropout_p=0.0,
        is_causal=False,
        **dict.fromkeys(("philox_seed", "philox_offset"), absent(1)),
    )


def efficient(*, backward: bool) -> object:
    if not backward:
        return aten._scaled_dot_product_efficient_attention(
            **attention_operands(), attn_bias=None, compute_log_sumexp=False
        )
    return aten._scaled_dot_product_efficient_attention_backward(
        grad_out_=absent(2, 4, 16, 8),
        **attention_operands(),
        **saved_operands(),
        attn_bias=absent(2, 4, 16, 24),
        **dict.fromkeys(("philox_seed", "philox_offset"), absent(1)),
        dropout_p=0.0,
        grad_input_mask=[True, True, True, False],
    )


def cudnn(*, backward: bool) -> object:
    if not backward:
        return aten._scaled_dot_product_cudnn_attention(
            **attention_operands(), attn_bias=None, compute_log_sumexp=False
        )
    return aten._scaled_dot_product_cudnn_attention_backward(
        grad_out=absent(2, 4, 16, 8),
        **attention_operands(),
        **saved_operands(),
        **dict.fromkeys(("philox_seed", "philox_offset"), absent(1)),
        attn_bias=absent(2, 4, 16, 24),
        **dict.fromkeys(("cum_seq_q", "cum_seq_k"), absent(3, dtype=torch.int32)),
        max_q=16,
        max_k=24,
        dropout_p=0.0,
        is_causal=False,
    )


def flash_of_lengths(*, backward: bool) -> object:
    """Two sequences one behind the other, of up to 16 queries and 24 keys each."""
    query, key, value = absent(32, 4, 8), absent(48, 4, 8), absent(48, 4, 8)
    ends = absent(3, dtype=torch.int32)
    if not backward:
        return aten._flash_attention_forward(
            query, key, value, ends, ends, 16, 24, 0.0, False, False
        )
    logsumexp = absent(4, 32, dtype=torch.float32)
    return aten._flash_attention_backward(
        *(absent(32, 4, 8), query, key, value, absent(32, 4, 8), logsumexp),
        *(ends, ends, 16, 24, 0.0, False, absent(2), absent(0)),
    )


def efficient_of_lengths(*, backward: bool) -> object:
    """Two sequences one behind the other, of up to 16 queries and 24 keys each."""
    query, key, value = absent(1, 32, 4, 8), absent(1, 48, 4, 8), absent(1, 48, 4, 8)
    ends = absent(3, dtype=torch.int32)
    if not backward:
        return aten._efficient_attention_forward(
            query, key, value, None, ends, ends, 16, 24, 0.0, 0
        )
    logsumexp = absent(2, 4, 16, dtype=torch.float32)
    return aten._efficient_attention_backward(
        *(absent(1, 32, 4, 8), query, key, value, None, absent(1, 32, 4, 8)),
        *(ends, ends, 16, 24, logsumexp, 0.0, absent(1), absent(1), 0, False),
    )


@pytest.mark.parametrize(
    "operation", [flash, efficient, cudnn, flash_of_lengths, efficient_of_lengths]
)
def test_attention_of_cuda_counts_what_the_model_needs(operation: Callable[..., object]) -> None:
    """Whichever kernel a device takes: two products forward, four backward, where torch has five.

    Which is twice the forward pass, as in 6·N + 12·layers·width·tokens of PaLM and torchtitan.
    """
    assert count_flops(lambda: operation(backward=False)).total == 2 * PRODUCT
    assert count_flops(lambda: operation(backward=True)).total == 4 * PRODUCT


def test_attention_of_another_width_of_values_is_counted() -> None:
    """Scores cost the width of the keys, their application that of the values."""
    scores = 2 * 2 * 4 * 16 * 24
    assert scores * (8 + 32) == attention(backward=False, value_width=32).total


@pytest.mark.parametrize("groups", [1, 2, 8])
def test_gradients_of_a_grouped_convolution_cost_twice_the_forward_pass(groups: int) -> None:
    """8 channels on 5 × 5 places under 3 × 3 weights; each channel meets those of its group."""

    def step() -> None:
        layer = torch.nn.Conv2d(8, 8, 3, padding=1, groups=groups, bias=False)
        layer(tensor(2, 8, 5, 5)).square().sum().backward()

    assert 3 * 2 * 2 * 5 * 5 * 8 * (8 // groups) * 9 == count_flops(step).total


def test_gradients_of_a_transposed_convolution_cost_twice_the_forward_pass() -> None:
    """Each of the 5 × 5 inputs meets all weights."""

    def step() -> None:
        layer = torch.nn.ConvTranspose2d(8, 4, 3, stride=2, bias=False)
        layer(tensor(2, 8, 5, 5)).square().sum().backward()

    assert count_flops(step).total == 3 * 2 * 2 * 5 * 5 * 8 * 4 * 9


def test_images_need_no_gradient() -> None:
    """The first layer has the gradient of its weight alone."""

    def step() -> None:
        layer = torch.nn.Conv2d(3, 5, 3, padding=1, bias=False)
        layer(torch.empty(2, 3, 8, 8)).square().sum().backward()

    assert count_flops(step).total == 2 * 2 * 2 * 8 * 8 * 5 * 3 * 9


def test_products_of_scaled_operands_are_counted() -> None:
    """A product in fp8 has 2·M·K·N operations."""

    def step() -> None:
        one, fp8 = torch.ones(()), torch.float8_e4m3fn
        left, right = torch.empty(16, 32, dtype=fp8), torch.empty(64, 32, dtype=fp8)
        torch._scaled_mm(left, right.t(), one, one, out_dtype=torch.bfloat16)

    assert count_flops(step).total == 2 * 16 * 32 * 64


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
