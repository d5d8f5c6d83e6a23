"""What is cast to 16 bits and what is not."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import nn

from gpubench_plugin.precision.half import BF16True, FP16True


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
