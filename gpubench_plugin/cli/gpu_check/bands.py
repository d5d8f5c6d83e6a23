"""Published figures that are shown beside measured ones, and the goals of this suite.

A figure is of the hardware, software and batch that it names: mostly older software, other batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gpubench_plugin.cli.gpu_check.record import Band, Bound

_LAMBDA: Final = "https://lambda.ai/gpu-benchmarks"
_EXAMPLES: Final = (
    "https://github.com/NVIDIA/DeepLearningExamples/tree/master/PyTorch/Classification/ConvNets/"
    "resnet50v1.5"
)
_MILABENCH: Final = "https://github.com/mila-iqia/milabench"

_RESNET: Final = (
    Band(
        value=2470,
        unit="samples/s",
        device="A100 80 GB",
        settings="amp, NGC 21.03",
        date="2021-03",
        source=_EXAMPLES,
    ),
    Band(
        value=2790,
        unit="samples/s",
        device="H100 SXM",
        settings="amp, batch 1280, synthetic data; read from a chart",
        date="2024-08",
        source=_LAMBDA,
    ),
    Band(
        value=3098,
        unit="samples/s",
        device="H200",
        settings="amp, batch 1280, synthetic data; read from a chart",
        date="2024-08",
        source=_LAMBDA,
    ),
)

_PRODUCT: Final = tuple(
    Band(
        value=tflops * 1e12,
        unit="FLOP/s",
        device=device,
        settings="bf16",
        date="2024",
        source=_MILABENCH,
    )
    for device, tflops in {"A100": 293, "H100": 784}.items()
)

BANDS: Final[Mapping[tuple[str, str], tuple[Band, ...]]] = {
    ("test_resnet50_train", "amp"): _RESNET,
    ("test_matmul", "bf16"): _PRODUCT,
}
"""Figures by test function and precision."""


@dataclass(frozen=True, kw_only=True)
class Goal:
    """What a benchmark should reach on the device of that full name.

    `case` is the part of the node id in brackets.
    """

    device: str
    test: str
    case: str
    metric: str
    bound: Bound
    limit: float
    unit: str


GOALS: Final = (
    # 3,098 is the published figure of an H200.
    Goal(
        device="NVIDIA H200",
        test="test_resnet50_train",
        case="channels_last-compiled-amp-ws1",
        metric="samples_per_s",
        bound="at_least",
        limit=3100,
        unit="samples/s",
    ),
    Goal(
        device="NVIDIA H200",
        test="test_llama_train",
        case="compiled-step-bf16-ws1",
        metric="mfu",
        bound="at_least",
        limit=0.45,
        unit="",
    ),
)
