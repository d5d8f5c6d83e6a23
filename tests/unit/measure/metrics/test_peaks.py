from __future__ import annotations

import re
from itertools import pairwise

import pytest

from gpubench_plugin.measure.metrics import _peaks as peaks


@pytest.mark.parametrize(
    ("device_name", "dtype", "tflops"),
    [
        ("NVIDIA A100-SXM4-40GB", "bf16", 312),
        ("A100-SXM4-80GB", "bf16", 312),
        ("NVIDIA A100-PCIE-40GB", "bf16", 312),
        ("NVIDIA A100 80GB PCIe", "bf16", 312),
        ("NVIDIA A10", "bf16", 125),
        ("NVIDIA A30", "bf16", 165),
        ("NVIDIA A40", "bf16", 149.7),
        ("NVIDIA B200", "bf16", 2250),
        ("NVIDIA B300 SXM6 AC", "bf16", 2250),
        ("NVIDIA GB200", "bf16", 2500),
        ("NVIDIA GH200 480GB", "bf16", 989.5),
        ("NVIDIA H100 80GB HBM3", "bf16", 989.5),
        ("NVIDIA H100 NVL", "bf16", 835.5),
        ("NVIDIA H100 PCIe", "bf16", 756.5),
        ("NVIDIA H200", "bf16", 989.5),
        ("NVIDIA H200 NVL", "bf16", 835.5),
        ("NVIDIA L4", "bf16", 121),
        ("NVIDIA L40", "bf16", 181.05),
        ("NVIDIA L40S", "bf16", 362.05),
        ("Tesla T4", "fp16", 65),
        ("Tesla V100-PCIE-16GB", "fp16", 112),
        ("Tesla V100-SXM2-32GB", "fp16", 125),
        ("Tesla V100S-PCIE-32GB", "fp16", 130),
    ],
)
def test_known_devices_have_their_own_peak(device_name: str, dtype: str, tflops: float) -> None:
    """A device goes by the whole name its driver reports; a V100S is not taken for a V100."""
    assert peaks.plausibility_limits(device_name).tflops.get(dtype) == tflops
    model = device_name.removeprefix("NVIDIA ").removeprefix("Tesla ")
    assert sum(bool(re.fullmatch(device.name, model)) for device in peaks.DEVICES) == 1


@pytest.mark.parametrize(
    "device_name",
    [
        "NVIDIA A10G",
        "NVIDIA A2",
        "NVIDIA A30X",
        "NVIDIA A30 MIG 1g.6gb",
        "NVIDIA A40-8Q",
        "NVIDIA A400",
        "NVIDIA A4000",
        "NVIDIA B300",
        "NVIDIA GB10",
        "NVIDIA GB300",
        "NVIDIA GH200 144G HBM3e",
        "NVIDIA A100-SXM4-40GB MIG 3g.20gb",
        "NVIDIA GeForce RTX 4090",
        "NVIDIA H100",
        "NVIDIA H20",
        "NVIDIA H200 MIG 1g.18gb",
        "NVIDIA H800",
        "NVIDIA H800 PCIe",
        "NVIDIA L4-24Q",
        "NVIDIA L40G",
        "NVIDIA L20",
        "AMD Instinct MI300X",
        "",
    ],
)
def test_other_devices_have_none(device_name: str) -> None:
    """A variant, a slice or an unknown device is not given the peak of a similar one."""
    assert peaks.plausibility_limits(device_name).tflops.get("bf16") is None


@pytest.mark.parametrize(
    ("device_name", "dtype"),
    [("Tesla V100-SXM2-16GB", "bf16"), ("Tesla T4", "tf32"), ("NVIDIA A100-SXM4-80GB", "fp8")],
)
def test_a_type_the_device_lacks_has_no_peak(device_name: str, dtype: str) -> None:
    """What a device does not compute natively has no peak on it."""
    assert peaks.plausibility_limits(device_name).tflops.get(dtype) is None


@pytest.mark.parametrize("device", peaks.DEVICES, ids=lambda device: device.name)
def test_every_peak_has_its_source_and_no_sparsity(device: peaks.DeviceLimits) -> None:
    """Figures come from the vendor; halving the width of a type at most doubles the tensor peak.

    A figure "with sparsity" among dense ones would break that.
    """
    ladder = [device.tflops[t] for t in ("tf32", "bf16", "fp8") if t in device.tflops]
    ratios = [wide / narrow for narrow, wide in pairwise(ladder)]
    assert ratios == pytest.approx([2.0] * len(ratios), rel=0.02)
    assert device.tflops.get("bf16", device.tflops["fp16"]) == device.tflops["fp16"]
    assert device.source.partition("/")[2].split("/")[1].endswith("nvidia.com")
