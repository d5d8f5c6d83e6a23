"""Which CUDA devices lack which precision, told by what torch says of the device."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
import torch

from gpubench_plugin.core import catalog

CUDA = torch.device("cuda", 0)


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
