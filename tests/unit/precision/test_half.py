"""The 16-bit types: what is cast to them, autocast and its scaler, and devices without them."""

from __future__ import annotations

from contextlib import nullcontext
from typing import NamedTuple

import pytest
import torch
from torch import nn

from gpubench_plugin.core import catalog
from gpubench_plugin.precision.half import AMP, BF16, BF16True, FP16True

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 0)


class Pair(NamedTuple):
    image: torch.Tensor
    label: torch.Tensor


@pytest.mark.parametrize("precision", [FP16True(), BF16True()], ids=lambda one: one.name)
def test_parameters_and_buffers_are_cast(precision: FP16True | BF16True) -> None:
    """The whole floating state of a module changes type; counters stay integers."""
    module = precision.convert_module(nn.BatchNorm2d(3))
    types = {name: tensor.dtype for name, tensor in module.state_dict().items()}
    expected = dict.fromkeys(("weight", "bias", "running_mean", "running_var"), precision.dtype)
    assert {**expected, "num_batches_tracked": torch.int64} == types


def test_only_floating_tensors_of_a_batch_are_cast() -> None:
    """Labels, masks and what is no tensor stay, at any depth, in the same containers."""
    labels, mask = torch.arange(2), torch.tensor([True, False])
    batch = {"pair": Pair(torch.ones(2), labels), "rest": [mask, "name", (torch.ones(1), None)]}
    cast = BF16True().convert_batch(batch)
    assert torch.bfloat16 == cast["pair"].image.dtype
    assert cast["pair"].label is labels
    assert cast["rest"][0] is mask
    assert cast["rest"][1] == "name"
    assert torch.bfloat16 == cast["rest"][2][0].dtype
    assert cast["rest"][2][1] is None
    assert [Pair, list, tuple] == [type(cast["pair"]), type(cast["rest"]), type(cast["rest"][2])]


def test_memory_format_survives() -> None:
    """A convolution in channels_last is still in it after the cast."""
    module = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    weight = FP16True().convert_module(module).weight
    assert weight.is_contiguous(memory_format=torch.channels_last)


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


def test_device_without_autocast_is_named() -> None:
    """A device that autocast does not know is refused with its name instead of a traceback."""
    reason = AMP().unsupported(torch.device("meta"))
    assert reason == "torch does not support autocast on meta"


@pytest.fixture(params=[True, False], ids=["ampere", "turing"])
def ampere(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """A CUDA device with or without bf16 and TF32; Turing emulates bf16."""
    native: bool = request.param
    monkeypatch.setattr(torch.cuda, "device", lambda device: nullcontext())
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla T4")
    monkeypatch.setattr(
        torch.cuda,
        "is_bf16_supported",
        lambda including_emulation=True: native or including_emulation,
    )
    monkeypatch.setattr(torch.cuda, "is_tf32_supported", lambda: native)
    return native


@pytest.mark.parametrize("name", ["fp32", "amp", "fp16-true"])
def test_every_cuda_device_has_fp32_and_fp16(ampere: bool, name: str) -> None:
    """fp32 and fp16 are there before and after Ampere."""
    assert catalog.load("precision", name)().unsupported(CUDA) is None


@pytest.mark.parametrize(
    ("name", "lacks"), [("tf32", "TF32"), ("bf16", "bf16"), ("bf16-true", "bf16")]
)
def test_old_cuda_devices_lack_tf32_and_bf16(ampere: bool, name: str, lacks: str) -> None:
    """Before Ampere the reason names the device, also where torch would emulate."""
    expected = None if ampere else f"Tesla T4 does not support {lacks}"
    assert expected == catalog.load("precision", name)().unsupported(CUDA)


def test_tf32_is_refused_on_a_cpu() -> None:
    """TF32 on a CPU would silently be fp32, so it is refused."""
    reason = catalog.load("precision", "tf32")().unsupported(torch.device("cpu"))
    assert reason == "TF32 requires a CUDA device, not cpu"
