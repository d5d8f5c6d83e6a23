"""What every precision must keep, shipped or plugged in."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

from gpubench_plugin.core import catalog
from gpubench_plugin.measure.metrics._peaks import DEVICES
from gpubench_plugin.precision.single import operations

if TYPE_CHECKING:
    from gpubench_plugin.precision.base import Precision

CPU = torch.device("cpu")
PRECISIONS = catalog.choices("precision")


def precision_called(name: str) -> Precision:
    return catalog.load("precision", name)()


def state() -> dict[str, object]:
    return {
        **{name: operation.fp32_precision for name, operation in operations().items()},
        "default dtype": torch.get_default_dtype(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "autocast dtype": torch.get_autocast_dtype("cpu"),
        "matmul": torch.get_float32_matmul_precision(),
        "cudnn": torch.backends.cudnn.allow_tf32,
    }


@pytest.mark.parametrize("name", PRECISIONS)
def test_compute_dtype_has_peaks(name: str) -> None:
    """The type it computes in is one for which peaks of devices are published."""
    published = {dtype for device in DEVICES for dtype in device.tflops}
    assert precision_called(name).compute_dtype in published


@pytest.mark.parametrize("name", PRECISIONS)
def test_switches_are_put_back_after_an_error(name: str) -> None:
    """Nothing global differs after the benchmark, even when it raised."""
    before = state()
    precision = precision_called(name)
    with pytest.raises(ZeroDivisionError), precision.switches(), precision.forward_context(CPU):
        raise ZeroDivisionError
    assert before == state()


@pytest.mark.parametrize("name", PRECISIONS)
def test_a_small_model_trains(name: str) -> None:
    """One step in every precision a CPU has gives finite parameters that moved."""
    precision = precision_called(name)
    if (reason := precision.unsupported(CPU)) is not None:
        pytest.skip(reason)
    torch.manual_seed(0)
    module = precision.convert_module(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)))
    inputs, labels = precision.convert_batch((torch.randn(6, 4), torch.arange(6) % 3))
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    scaler = precision.scaler(CPU, init_scale=16.0, growth_interval=10)
    before = [parameter.detach().clone() for parameter in module.parameters()]
    with precision.switches():
        with precision.forward_context(CPU):
            loss = nn.functional.cross_entropy(module(inputs), labels)
        if scaler is None:
            loss.backward()
            optimizer.step()
        else:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
    after = list(module.parameters())
    assert all(torch.isfinite(parameter).all() for parameter in after)
    assert not all(torch.equal(old, new) for old, new in zip(before, after, strict=True))
