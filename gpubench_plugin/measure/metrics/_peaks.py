"""Peak rates of devices: dense FLOP/s for MFU, memory and link bandwidth.

All figures are from datasheets, with which those of A30, B300, GB200, GH200 and L40 have not been
compared; of one "with sparsity" half is the dense one, and of fp64 that of tensor cores where there
are any. A device is matched by its full name, so that a slice (MIG) or a variant is not taken for
it. Consumer cards are left out: they run above the clock of their datasheet, so true measurements
would exceed the peak. So are H20 and H800, of which NVIDIA has no public datasheet. MFU has no
fallback.

Rates above a plausibility limit are refused. Limits are generous, above what any dtype or cache
reaches; devices that are not in the table have one as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_A100 = (
    "https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a100/pdf/"
    "nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf"
)
_A10 = "https://www.nvidia.com/content/dam/en-zz/Solutions/Data-Center/a10/pdf/a10-datasheet.pdf"
_A30 = (
    "https://www.nvidia.com/content/dam/en-zz/Solutions/data-center/products/a30-gpu/pdf/"
    "a30-datasheet.pdf"
)
_A40 = "https://images.nvidia.com/content/Solutions/data-center/a40/nvidia-a40-datasheet.pdf"
_GB200 = "https://www.nvidia.com/en-us/data-center/gb200-nvl72/"
_GH200 = "https://resources.nvidia.com/en-us-grace-cpu/grace-hopper-superchip"
_HGX = "https://www.nvidia.com/en-us/data-center/hgx/"
_H100 = "https://www.nvidia.com/en-us/data-center/h100/"
_H100_PCIE = "https://resources.nvidia.com/en-us-tensor-core/nvidia-tensor-core-gpu-datasheet"
_H200 = "https://www.nvidia.com/en-us/data-center/h200/"
_L4 = "https://www.nvidia.com/en-us/data-center/l4/"
_L40 = "https://www.nvidia.com/en-us/data-center/l40/"
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
class DeviceLimits:
    """Vendor figures of the devices whose full name matches `name`, whatever their brand.

    `tflops` are the dense peaks in TFLOP/s by dtype; `memory` is the memory bandwidth, `link` that
    of NVLink, or else PCIe, in both directions together, both in GB/s.
    """

    name: str
    tflops: Mapping[str, float]
    memory: float
    link: float
    source: str


def _device(name: str, source: str, *, memory: float, link: float, **tflops: float) -> DeviceLimits:
    return DeviceLimits(name=name, tflops=tflops, memory=memory, link=link, source=source)


# Dense peaks of models with the same chip.
_GA100 = {"fp64": 19.5, "fp32": 19.5, "tf32": 156, "bf16": 312, "fp16": 312}
_GH100 = {"fp64": 67, "fp32": 67, "tf32": 494.5, "bf16": 989.5, "fp16": 989.5, "fp8": 1979}
_GH100_NVL = {"fp64": 60, "fp32": 60, "tf32": 417.5, "bf16": 835.5, "fp16": 835.5, "fp8": 1670.5}

DEVICES = (
    _device("A100-(?:SXM4|PCIE)-40GB", _A100, memory=1555, link=600, **_GA100),
    _device("A100-SXM4-80GB", _A100, memory=2039, link=600, **_GA100),
    _device("A100 80GB PCIe", _A100, memory=1935, link=600, **_GA100),
    _device("A10", _A10, memory=600, link=64, fp32=31.2, tf32=62.5, bf16=125, fp16=125),
    _device("A30", _A30, memory=933, link=200, fp64=10.3, fp32=10.3, tf32=82, bf16=165, fp16=165),
    _device("A40", _A40, memory=696, link=112.5, fp32=37.4, tf32=74.8, bf16=149.7, fp16=149.7),
    # For fp32 and tf32 of Blackwell NVIDIA's own pages differ.
    _device("B200", _HGX, memory=8000, link=1800, bf16=2250, fp16=2250, fp8=4500),
    _device("B300 SXM6 AC", _HGX, memory=8000, link=1800, bf16=2250, fp16=2250, fp8=4500),
    # A GPU's share of the rack with 72 of them.
    _device("GB200", _GB200, memory=8000, link=1800, bf16=2500, fp16=2500, fp8=5000),
    # Named for the memory of its CPU; its own are 96 GB of HBM3.
    _device("GH200 480GB", _GH200, memory=4000, link=900, **_GH100),
    _device("H100 80GB HBM3", _H100, memory=3350, link=900, **_GH100),
    _device("H100 NVL", _H100, memory=3900, link=600, **_GH100_NVL),
    _device("H100 PCIe", _H100_PCIE, memory=2000, link=600,
            fp64=51, fp32=51, tf32=378, bf16=756.5, fp16=756.5, fp8=1513),
    _device("H200", _H200, memory=4800, link=900, **_GH100),
    _device("H200 NVL", _H200, memory=4800, link=900, **_GH100_NVL),
    _device("L4", _L4, memory=300, link=64, fp32=30.3, tf32=60, bf16=121, fp16=121, fp8=242.5),
    _device("L40", _L40, memory=864, link=64,
            fp32=90.5, tf32=90.5, bf16=181.05, fp16=181.05, fp8=362),
    _device("L40S", _L40S, memory=864, link=64,
            fp32=91.6, tf32=183, bf16=362.05, fp16=362.05, fp8=733),
    # The datasheet says 300 GB/s, NVIDIA's product brief 320.
    _device("T4", _T4, memory=320, link=32, fp32=8.1, fp16=65),
    _device("V100-PCIE-(?:16|32)GB", _V100, memory=900, link=32, fp64=7, fp32=14, fp16=112),
    _device("V100S-PCIE-32GB", _V100, memory=1134, link=32, fp64=8.2, fp32=16.4, fp16=130),
    _device("V100-SXM2-(?:16|32)GB", _V100, memory=900, link=300, fp64=7.8, fp32=15.7, fp16=125),
)  # fmt: skip

_HEADROOM = 10

UNKNOWN = _device(
    "",
    "ten times the highest known figure",
    memory=_HEADROOM * max(device.memory for device in DEVICES),
    link=_HEADROOM * max(device.link for device in DEVICES),
    any=_HEADROOM * max(max(device.tflops.values()) for device in DEVICES),
)
"""Limits of devices that are not in the table. Ten times its highest figures leaves room for some
generations: from the V100 to the B200 memory became 9 times as fast, links 6 times."""

OPERATIONS_FACTOR = 8.0
"""Highest rate in any dtype over the highest dense peak of the table: int4 with 2:4 sparsity on an
A100 has 2,496 TOPS beside 312 in bf16 (its datasheet); int8 is twice 16 bits, fp4 on a B200 twice
fp8, and sparsity doubles either."""

CACHED_BYTES = 2**28
"""Fewer bytes may fit the device's caches: the largest of the table, the B200's, holds 126 MB
(https://chipsandcheese.com/p/nvidias-b200-keeping-the-cuda-juggernaut)."""

CACHE_FACTOR = 16.0
"""Cache over memory bandwidth: the L1 of a V100, 80 times 128 bytes in a cycle of 1.53 GHz, is 15.7
TB/s beside 0.9 (https://arxiv.org/abs/1804.06826)."""

CORE_FLOPS_PER_S = 2e13
"""Limit of a CPU core in any dtype: 4,096 operations in a cycle at 5 GHz. AMX does as many on bytes
and 2,048 in bf16, AVX-512 does 64 in fp32 (Intel 64 and IA-32 Architectures Optimization Reference
Manual)."""

CORE_BYTES_PER_S = 2e12
"""Limit of a CPU core, from the nearest cache: two loads and a store of 64 bytes in a cycle (the
same manual) are 1.2e12 at 6 GHz."""


def plausibility_limits(name: str) -> DeviceLimits:
    """Upper plausibility limits for the device with that driver name."""
    model = re.sub("^(?:NVIDIA |Tesla )", "", name)
    return next((device for device in DEVICES if re.fullmatch(device.name, model)), UNKNOWN)
