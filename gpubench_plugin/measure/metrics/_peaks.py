"""Dense peaks of devices, as their vendor states them, for MFU.

Only what a datasheet says stands here. Where it states a figure "with sparsity", half of it is the
dense one. A device is known by its full name, so that a slice of one (MIG) or a variant is not
taken for it. Consumer cards are left out: they run above the clock their datasheet assumes, so
true measurements would exceed the peak. There is no fallback.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_A100 = (
    "https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a100/pdf/"
    "nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf"
)
_A10 = "https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a10/pdf/a10-datasheet.pdf"
_B200 = "https://www.nvidia.com/en-us/data-center/hgx/"
_H100 = "https://www.nvidia.com/en-us/data-center/h100/"
_H100_PCIE = "https://resources.nvidia.com/en-us-tensor-core/nvidia-tensor-core-gpu-datasheet"
_H200 = "https://www.nvidia.com/en-us/data-center/h200/"
_L4 = "https://www.nvidia.com/en-us/data-center/l4/"
_L40S = "https://www.nvidia.com/en-us/data-center/l40s/"
_T4 = (
    "https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/tesla-t4/"
    "t4-tensor-core-datasheet-951643.pdf"
)
_V100 = (
    "https://images.nvidia.com/content/technologies/volta/pdf/"
    "volta-v100-datasheet-update-us-1165301-r5.pdf"
)


@dataclass(frozen=True, kw_only=True)
class Peak:
    """The dense peak of one type of number on one device, in FLOP/s, and who says so."""

    flops_per_s: float
    source: str


@dataclass(frozen=True, kw_only=True)
class Device:
    """The devices whose whole name matches, with their dense peaks in TFLOP/s by type."""

    name: re.Pattern[str]
    tflops: Mapping[str, float]
    source: str


def _device(name: str, source: str, **tflops: float) -> Device:
    return Device(name=re.compile(rf"(?:NVIDIA |Tesla )?(?:{name})"), tflops=tflops, source=source)


DEVICES = (
    _device(
        r"A100-SXM4-(?:40|80)GB|A100-PCIE-40GB|A100 80GB PCIe",
        _A100, fp32=19.5, tf32=156, bf16=312, fp16=312,
    ),
    _device("A10", _A10, fp32=31.2, tf32=62.5, bf16=125, fp16=125),
    # For fp32 and tf32 NVIDIA's own pages differ.
    _device("B200", _B200, bf16=2250, fp16=2250, fp8=4500),
    _device("H100 80GB HBM3", _H100, fp32=67, tf32=494.5, bf16=989.5, fp16=989.5, fp8=1979),
    _device("H100 NVL", _H100, fp32=60, tf32=417.5, bf16=835.5, fp16=835.5, fp8=1670.5),
    _device("H100 PCIe", _H100_PCIE, fp32=51, tf32=378, bf16=756.5, fp16=756.5, fp8=1513),
    _device("H200", _H200, fp32=67, tf32=494.5, bf16=989.5, fp16=989.5, fp8=1979),
    _device("H200 NVL", _H200, fp32=60, tf32=417.5, bf16=835.5, fp16=835.5, fp8=1670.5),
    _device("L4", _L4, fp32=30.3, tf32=60, bf16=121, fp16=121, fp8=242.5),
    _device("L40S", _L40S, fp32=91.6, tf32=183, bf16=362.05, fp16=362.05, fp8=733),
    _device("T4", _T4, fp32=8.1, fp16=65),
    _device("V100-PCIE-(?:16|32)GB", _V100, fp32=14, fp16=112),
    _device("V100-SXM2-(?:16|32)GB", _V100, fp32=15.7, fp16=125),
)  # fmt: skip


def find(device_name: str, dtype: str) -> Peak | None:
    """The dense peak for `dtype` (``fp32``, ``tf32``, ``bf16``, ``fp16``, ``fp8``), if known.

    `device_name` is the name the driver gives the device.
    """
    for device in DEVICES:
        if device.name.fullmatch(device_name) and dtype in device.tflops:
            return Peak(flops_per_s=device.tflops[dtype] * 1e12, source=device.source)
    return None
