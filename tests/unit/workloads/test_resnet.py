"""The residual networks."""

from __future__ import annotations

import sys

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.nn.functional import interpolate
from torch.utils.flop_counter import FlopCounterMode

from gpubench_plugin.errors import Unsupported, UsageProblem

CPU = torch.device("cpu")
both = pytest.mark.parametrize("name", ["resnet18", "resnet50"])


@pytest.mark.parametrize(("name", "gflop"), [("resnet18", 3.63), ("resnet50", 8.178)])
def test_full_preset_has_the_known_flops(name, gflop, make_workload):
    """The forward pass of one 224×224 image costs what is known of the network, within 1 %."""
    workload = make_workload(name, "full")
    with FlopCounterMode(display=False) as counter, FakeTensorMode():
        workload.forward(workload.build(), workload.synthetic_batch(1, device=CPU))
    assert gflop == pytest.approx(counter.get_total_flops() / 1e9, rel=0.01)


@pytest.mark.parametrize(
    ("name", "parameters"), [("resnet18", 11_689_512), ("resnet50", 25_557_032)]
)
def test_full_preset_has_the_known_parameters(name, parameters, make_workload):
    """The full preset has as many parameters as torchvision documents for the network."""
    with FakeTensorMode():
        module = make_workload(name, "full").build()
    assert parameters == sum(p.numel() for p in module.parameters())


@both
def test_digits_become_three_equal_channels(name, make_workload):
    """Grey 8×8 images are scaled to 3×32×32, channels_last, all channels alike."""
    images, labels = torch.rand(2, 1, 8, 8), torch.tensor([0, 9])
    inputs = make_workload(name, "tiny").from_images(images, labels).inputs
    scaled = interpolate(images, size=(32, 32), mode="bilinear")
    assert inputs.shape == (2, 3, 32, 32)
    assert inputs.is_contiguous(memory_format=torch.channels_last)
    assert all(inputs[:, channel : channel + 1].equal(scaled) for channel in range(3))


def test_too_few_classes_are_refused(make_workload):
    """Images of ten classes do not fit a model of five, which the error says."""
    workload = make_workload("resnet18", "tiny", "model.classes=5")
    with pytest.raises(UsageProblem, match=r"model\.classes=5 is too small; the images have 10"):
        workload.from_images(torch.rand(1, 1, 8, 8), torch.tensor([9]))


def test_logits_in_half_give_a_loss_in_fp32(make_workload):
    """The loss is computed in fp32 whatever the model computes in."""
    workload = make_workload("resnet18", "tiny")
    batch = workload.synthetic_batch(2, device=CPU)
    loss = workload.loss(
        workload.build().to(torch.bfloat16), batch._replace(inputs=batch.inputs.bfloat16())
    )
    assert torch.float32 == loss.dtype


@both
def test_missing_transformers_is_unsupported_with_the_remedy(name, make_workload, monkeypatch):
    """Without transformers the workload is unsupported, and the reason says what to install."""
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(Unsupported, match=r"pip install 'pytest-gpubench\[suite\]'"):
        make_workload(name, "tiny").build()
