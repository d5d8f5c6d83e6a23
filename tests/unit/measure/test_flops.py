"""Floating-point operations, against numbers worked out by hand."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch.nn import functional

from gpubench_plugin.core.events import FlopsEvent
from gpubench_plugin.measure.probes.operations import count_flops


def tensor(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(*shape, dtype=dtype, requires_grad=True)


PRODUCT = 2 * 2 * 4 * 16 * 24 * 8
"""FLOPs of 16 by 24 by 8 per head, of two sequences with four heads."""


def linear(*, backward: bool) -> None:
    result = torch.nn.Linear(16, 32, bias=False)(tensor(8, 16))
    if backward:
        result.square().sum().backward()


def convolution(*, backward: bool, needs_input: bool = True, groups: int = 1) -> None:
    """8 channels on 5 × 5 places under 3 × 3 weights; each channel meets those of its group."""
    layer = torch.nn.Conv2d(8, 8, 3, padding=1, groups=groups, bias=False)
    result = layer(tensor(2, 8, 5, 5).requires_grad_(needs_input))
    if backward:
        result.square().sum().backward()


CONVOLUTION = 2 * 2 * 5 * 5 * 8 * 8 * 9


def transposed_convolution() -> None:
    layer = torch.nn.ConvTranspose2d(8, 4, 3, stride=2, bias=False)
    layer(tensor(2, 8, 5, 5)).square().sum().backward()


def attention(
    *, backward: bool = False, heads: int = 4, keys: int = 24, width: int = 8, **options: bool
) -> None:
    """Two sequences, four heads, 16 queries; keys of width 8, and values of `width`."""
    query, key, value = (
        tensor(2, 4, 16, 8),
        tensor(2, heads, keys, 8),
        tensor(2, heads, keys, width),
    )
    result = functional.scaled_dot_product_attention(query, key, value, **options)
    if backward:
        result.square().sum().backward()


def scaled_product() -> None:
    one, fp8 = torch.ones(()), torch.float8_e4m3fn
    left, right = torch.empty(16, 32, dtype=fp8), torch.empty(64, 32, dtype=fp8)
    torch._scaled_mm(left, right.t(), one, one, out_dtype=torch.bfloat16)


@pytest.mark.parametrize(
    ("step", "flops"),
    [
        pytest.param(partial(linear, backward=False), 2 * 8 * 16 * 32, id="linear"),
        pytest.param(partial(linear, backward=True), 3 * 2 * 8 * 16 * 32, id="with gradients"),
        pytest.param(partial(convolution, backward=False), CONVOLUTION, id="convolution"),
        *(
            pytest.param(
                partial(convolution, backward=True, groups=groups),
                3 * CONVOLUTION // groups,
                id=f"{groups} groups",
            )
            for groups in (1, 2, 8)
        ),
        pytest.param(
            partial(convolution, backward=True, needs_input=False), 2 * CONVOLUTION, id="of images"
        ),
        pytest.param(transposed_convolution, 3 * 2 * 2 * 5 * 5 * 8 * 4 * 9, id="transposed"),
        pytest.param(attention, 2 * PRODUCT, id="attention"),
        pytest.param(partial(attention, backward=True), (2 + 4) * PRODUCT, id="its gradients"),
        pytest.param(
            partial(attention, keys=16, is_causal=True), 2 * PRODUCT * 16 // 24, id="masked"
        ),
        pytest.param(partial(attention, heads=2, enable_gqa=True), 2 * PRODUCT, id="shared keys"),
        pytest.param(partial(attention, width=32), (1 + 4) * PRODUCT, id="wide values"),
        pytest.param(scaled_product, 2 * 16 * 32 * 64, id="fp8"),
    ],
)
def test_products_convolutions_and_attention(step: Callable[[], None], flops: int) -> None:
    """Two operations per multiplication and addition, and twice the forward pass for gradients.

    Of a causal mask nothing is deducted, scores that are computed again do not count, shared keys
    save memory only, and images need no gradient.
    """
    assert count_flops(step).per_call == flops


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
    assert count_flops(lambda: operation(backward=False)).per_call == 2 * PRODUCT
    assert count_flops(lambda: operation(backward=True)).per_call == 4 * PRODUCT


def grouped(left: tuple[int, ...], right: tuple[int, ...], groups: int | None) -> int:
    """The operations of a grouped product of these shapes."""

    def step() -> None:
        offsets = None if groups is None else torch.empty(groups, dtype=torch.int32)
        torch._grouped_mm(
            tensor(*left, dtype=torch.bfloat16), tensor(*right, dtype=torch.bfloat16), offs=offsets
        )

    return count_flops(step).per_call


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
    assert counted == FlopsEvent(
        per_call=2 * 4 * 4 * 4, uncounted_ops=("aten.gelu", "aten.linalg_vector_norm")
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
    assert 2 * first + 3 * second == count_flops(step).per_call
    assert torch.equal(state, torch.get_rng_state())


def test_an_exception_goes_on_to_the_caller() -> None:
    """What the step raises is raised, and real tensors are real again."""

    def step() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        count_flops(step)
    assert torch.ones(2).sum().item() == 2
