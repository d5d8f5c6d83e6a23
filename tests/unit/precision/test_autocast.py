"""Mixed precision: what autocast computes in, and the scaler that amp has."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from gpubench_plugin.precision.half import AMP, BF16

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [(AMP(), torch.float16), (BF16(), torch.bfloat16)],
    ids=lambda one: getattr(one, "name", None),
)
def test_products_are_computed_in_half_from_parameters_in_single(
    precision: AMP | BF16, dtype: torch.dtype
) -> None:
    """The output has the 16-bit type while weights and their gradients stay fp32."""
    layer = precision.convert_module(nn.Linear(4, 2))
    with precision.forward_context(CPU):
        output = layer(precision.convert_batch(torch.ones(3, 4)))
    output.float().sum().backward()
    assert dtype == output.dtype
    assert [torch.float32] * 2 == [layer.weight.dtype, layer.weight.grad.dtype]


def test_scaler_of_amp_is_configured_and_skips_overflow() -> None:
    """The scaler starts at the configured scale; an overflow skips the step and halves it."""
    scaler = AMP().scaler(CPU, init_scale=128.0, growth_interval=1)
    weight = nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    scaler.scale(weight.sum() * torch.inf).backward()
    scaler.step(optimizer)
    scaler.update()
    assert weight.item() == 1.0
    assert scaler.get_scale() == 64.0


def test_bf16_has_no_scaler() -> None:
    """bf16 has the range of fp32, so nothing is scaled."""
    assert BF16().scaler(CPU, init_scale=128.0, growth_interval=1) is None


def test_device_without_autocast_is_named() -> None:
    """A device that autocast does not know is refused with its name instead of a traceback."""
    reason = AMP().unsupported(torch.device("meta"))
    assert reason == "torch does not support autocast on meta"
