"""Runs that repeat bit by bit."""

from __future__ import annotations

import os

import pytest
import torch
from torch import nn

from gpubench_plugin.core.errors import Unsupported
from gpubench_plugin.training import seeding
from gpubench_plugin.training.data.synthetic import Synthetic
from gpubench_plugin.training.seeding import deterministic, nondeterminism_errors, seeds_of
from tests.unit.training.conftest import silent

CPU, CUDA = torch.device("cpu"), torch.device("cuda")
WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"


def switches():
    cudnn = torch.backends.cudnn
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        cudnn.deterministic,
        cudnn.benchmark,
        os.environ.get(WORKSPACE),
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mlp", "resnet18"])
def test_two_runs_are_equal_bit_by_bit(name, shipped):
    """In deterministic mode losses and weights of two equal trainings are equal in every bit."""

    def run():
        with deterministic(CPU):
            trainer = shipped(name, "bf16", "training.steps=3", "training.loss_drop=null")
            losses = trainer.prepare(silent).correctness["losses"]
        state = trainer.state_dict()["model"]
        return losses, {name: tensor.clone() for name, tensor in state.items()}

    (losses, weights), (other_losses, other_weights) = run(), run()
    assert losses == other_losses
    assert all(weights[name].equal(other_weights[name]) for name in weights)


@pytest.mark.parametrize("device", [CPU, CUDA])
@pytest.mark.parametrize("before", [None, ":16:8"])
def test_every_switch_is_set_and_put_back(device, before, monkeypatch):
    """Algorithms, cuDNN and (on CUDA) cuBLAS are deterministic inside, and as before outside."""
    monkeypatch.delenv(WORKSPACE, raising=False)
    if before is not None:
        monkeypatch.setenv(WORKSPACE, before)
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    found = switches()
    workspace = before if device is CPU else before or ":4096:8"

    def act():
        with deterministic(device):
            assert switches() == (True, False, True, False, workspace)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):  # also after an error
        act()
    assert switches() == found


def test_other_cublas_workspace_is_unsupported(monkeypatch):
    """A user's own setting that is not deterministic is not overruled but said."""
    monkeypatch.setenv(WORKSPACE, ":0:0")
    with (
        pytest.raises(Unsupported, match=r"CUBLAS_WORKSPACE_CONFIG=:0:0; allowed: :4096:8, :16:8"),
        deterministic(CUDA),
    ):
        pass


def unpooled(loss, module):
    pooled, at = nn.functional.max_pool1d(module.weight.reshape(1, 1, 2), 2, return_indices=True)
    return loss + nn.functional.max_unpool1d(pooled, at, 2).sum()


def test_operation_without_a_deterministic_form_is_unsupported(make_trainer, slope):
    """The benchmark is skipped, and the reason names the operation and what to do."""
    slope.distort = unpooled
    make_trainer().prepare(silent)
    with (
        deterministic(CPU),
        pytest.raises(
            Unsupported, match=r"training\.deterministic: max_unpooling2d_forward_out has no"
        ),
        nondeterminism_errors(),
    ):
        make_trainer().prepare(silent)


def test_other_errors_stay_what_they_are(make_trainer, slope):
    """What went wrong for another reason is not called unsupported."""
    slope.distort = lambda loss, _: loss + torch.zeros(2) @ torch.zeros(3)
    with pytest.raises(RuntimeError, match="inconsistent tensor size"), nondeterminism_errors():
        make_trainer().prepare(silent)


def test_seeds_on_record_are_those_that_are_used(slope):
    """Each rank's synthetic batch comes from the seed that the record says."""
    seeds = seeds_of(5, world_size=2)
    assert (seeds["experiment"], seeds["model"], seeds["training"]) == (5, 5, [5, 5])
    assert seeds["synthetic_data"] == [10, 11]
    for rank, seed in enumerate(seeds["synthetic_data"]):
        source = Synthetic(slope, batch_size=2, device=CPU, world_size=2, rank=rank, seed=5)
        drawn = slope.synthetic_batch(2, device=CPU, generator=torch.Generator().manual_seed(seed))
        assert next(source).inputs.equal(drawn.inputs)
    assert seeding.synthetic_seed(5, 2, 1) == 11
