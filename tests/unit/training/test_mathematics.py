"""One call's mathematics, on tensors without data."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from gpubench_plugin.training.data.synthetic import Synthetic
from gpubench_plugin.workloads.base import run_fake_step


def flops(step):
    with FlopCounterMode(display=False) as counter:
        step()
    return counter.get_total_flops()


@pytest.mark.parametrize(("backward", "factor"), [(False, 1), (True, 2)])
def test_a_linear_layer(backward, factor, slope):
    """A 2→1 layer multiplies and adds twice per sample; training adds the weights' gradient."""
    assert flops(lambda: run_fake_step(slope, samples=8, backward=backward)) == factor * 2 * 2 * 8


def test_trainer_counts_all_accumulated_batches(make_trainer):
    """The FLOPs of a step are those of all its batches."""
    one = flops(make_trainer(batch_size=8).flops_step)
    assert 3 * one == flops(make_trainer(batch_size=8, accumulation_steps=3).flops_step)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "widths", "gflop"),
    [("resnet18", [64, 128, 256, 512], 3.63), ("resnet50", [256, 512, 1024, 2048], 8.178)],
)
def test_training_costs_three_forward_passes(name, widths, gflop, shipped):
    """A full ResNet's step costs three times its forward pass, less the first layer's inputs."""
    trainer = shipped(
        name,
        "fp32",
        "training.batch_size=2",
        "model.image_size=224",
        "model.classes=1000",
        "model.embedding_size=64",
        f"model.hidden_sizes={widths}",
        "data.source=synthetic",
    )
    assert 3 * 2 * gflop == pytest.approx(flops(trainer.flops_step) / 1e9, rel=0.025)


def test_counting_leaves_no_trace(slope):
    """Counting draws nothing from the random state that the timed steps use."""
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    run_fake_step(slope, samples=4, backward=True)
    assert expected.equal(torch.rand(1))
    assert not isinstance(
        next(Synthetic(slope, batch_size=2, device=torch.device("cpu"))).inputs,
        torch._subclasses.FakeTensor,
    )


@pytest.mark.slow
def test_activations_computed_again_are_not_counted(shipped):
    """With model.activation_checkpointing a step has the FLOPs of one without."""
    plain = shipped("vit", "fp32")
    again = shipped("vit", "fp32", "model.activation_checkpointing=true")
    assert flops(again.flops_step) == flops(plain.flops_step) > 0
