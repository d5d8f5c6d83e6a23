"""What the models' forward passes dispatch on CUDA, on fake tensors: no device is needed.

torch's CUDA build is: the one for CPUs aborts where a fake CUDA tensor needs a gradient
(torch 2.13). ``tox -e cuda-build`` has it.
"""

from __future__ import annotations

from collections import Counter
from importlib.metadata import version
from typing import NamedTuple

import pytest
import torch

from gpubench_plugin.core import catalog
from gpubench_plugin.training.generation import Decode, Prefill
from gpubench_plugin.training.model import build_model
from tests.support.hot_path import HotPath, fake_cuda, followed
from tests.support.presets import preset_of, workload_of
from tests.support.shipped import shipped

if torch.version.cuda is None:
    pytest.skip("needs torch's CUDA build: tox -e cuda-build", allow_module_level=True)

DTYPES = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "bf16-true": torch.bfloat16,
    "amp": torch.float16,
    "fp16-true": torch.float16,
}
HALF = tuple(name for name, dtype in DTYPES.items() if dtype is not torch.float32)
every_precision = pytest.mark.parametrize("precision", DTYPES)


class Listed(NamedTuple):
    """A deviation that is known, with its number in one pass of the tiny preset, and why."""

    deviation: str
    number: int
    workloads: tuple[str, ...]
    precisions: tuple[str, ...]
    methods: tuple[str, ...]
    reason: str


IS_NEW = version("torch") >= "2.15"
"""Whether torch is the newest that was tried; with it and transformers 5.24 less deviates."""

BOTH = ("forward", "loss")
ROTARY = ("llama", "mixtral", "qwen-moe")
LISTED = (
    Listed(
        *("bmm in float32", 1, () if IS_NEW else ROTARY, HALF, (*BOTH, "decode", "prefill")),
        "rotary angles: 16 bits do not distinguish large positions",
    ),
    Listed(
        *("mm in float32", 2, ("moe",), HALF, BOTH),
        "the router of each block computes in fp32: Switch Transformers, section 2.4",
    ),
)


def listed(name: str, precision: str, method: str) -> Counter[str]:
    """The known deviations of a case."""
    return Counter(
        {
            one.deviation: one.number
            for one in LISTED
            if name in one.workloads and precision in one.precisions and method in one.methods
        }
    )


def audited(
    name: str, precision_name: str, method: str, *overrides: str
) -> tuple[Counter[str], Counter[str]]:
    """Deviations and products of a pass of the workload's tiny preset."""
    # Weights that are drawn on a device need its random state, which a fake one lacks.
    configuration = preset_of(
        name, "tiny", "model.init_device=cpu", *overrides, precision__name=precision_name
    )
    workload = workload_of(configuration)
    if name == "vit":
        workload = workload.for_fake_tensors()  # its initialisation looks at values
    precision = catalog.load("precision", precision_name)()
    with fake_cuda() as device, torch.no_grad():
        module = build_model(workload, seed=0, device=device, precision=precision).train(
            method == "loss"
        )
        path = HotPath(dtype=DTYPES[precision_name], layout=workload.memory_format)
        if method in BOTH:
            batch = precision.convert_batch(workload.synthetic_batch(2, device=device))
            with followed(path), precision.forward_context(device):
                getattr(workload, method)(module, batch)
        else:
            kind = {"decode": Decode, "prefill": Prefill}[method]
            generation = kind(
                module=module,
                workload=workload,
                sequences=2,
                prompt_tokens=4,
                new_tokens=4,
                precision=precision,
                device=device,
                # Else it is in inference mode, where operations come before they are decomposed.
                compile=lambda step: step,
            )
            with followed(path):
                generation.step()
    return path.deviations, path.products


@pytest.mark.parametrize("method", BOTH)
@every_precision
@pytest.mark.parametrize("name", sorted(shipped("workloads")))
def test_forward_pass_stays_on_the_device(name: str, precision: str, method: str) -> None:
    """No wait, no work on the host, channels_last kept, products of one dtype, unless listed."""
    deviations, products = audited(name, precision, method)
    assert deviations == listed(name, precision, method)
    assert products


@pytest.mark.parametrize("method", ["decode", "prefill"])
@every_precision
def test_generation_stays_on_the_device(precision: str, method: str) -> None:
    """Nor does a call of text generation wait, or multiply in another dtype."""
    deviations, products = audited("llama", precision, method)
    assert deviations == listed("llama", precision, method)
    assert products


WITHOUT_CHANNELS_LAST = {
    "cnn": 0,
    "resnet18": 0,
    "resnet50": 0,
    "vit": 0,
    "diffusion": 0,
    "unet2d": 0 if IS_NEW else 17,
    "unet-cond": 4 if IS_NEW else 25,
}
"""Convolutions of the tiny preset that lose channels_last; of the U-Nets, after each GroupNorm,
whose output on CUDA is contiguous, but in torch 2.15 mostly not."""


@pytest.mark.parametrize(("name", "number"), WITHOUT_CHANNELS_LAST.items())
def test_channels_last_is_lost_where_it_is_known_to_be(name: str, number: int) -> None:
    """Convolutions have inputs in channels_last, but for those after a GroupNorm."""
    deviations, _ = audited(name, "amp", "forward", "model.channels_last=true")
    assert deviations["convolution without channels_last"] == number


def test_deviations_are_seen() -> None:
    """Reading a value, work on the host, a lost layout and an fp32 product are each counted."""
    path = HotPath(dtype=torch.bfloat16, layout=torch.channels_last)
    with fake_cuda() as device, followed(path):
        images = torch.empty(2, 3, 4, 4, device=device)
        torch.conv2d(images, torch.empty(5, 3, 1, 1, device=device))
        images.nonzero_static(size=1)
        torch.bincount(torch.zeros(3, dtype=torch.int64, device=device), minlength=2)
        images.cpu()
        torch.ones(2).mul(2)
    assert path.deviations == {
        "convolution in float32": 1,
        "convolution without channels_last": 1,
        "the host waits for bincount": 1,
        "host and device in _to_copy": 1,
        "on the host: ones": 1,
        "on the host: mul": 1,
    }
