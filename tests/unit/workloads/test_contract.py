"""What every workload keeps, a newcomer's included."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses import FakeTensorMode

from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import Unsupported
from tests.support.presets import CONFIGURED

CPU = torch.device("cpu")
every_workload = pytest.mark.parametrize("name", CONFIGURED)


def batch_of(workload, size, seed=0):
    return workload.synthetic_batch(size, device=CPU, generator=torch.Generator().manual_seed(seed))


@pytest.mark.slow
@every_workload
def test_tiny_preset_trains_every_parameter(name, make_workload):
    """One backward pass of the tiny preset gives every trainable parameter a finite gradient."""
    workload = make_workload(name, "tiny")
    module = workload.build().train()
    loss = workload.loss(module, batch_of(workload, 4))
    loss.backward()
    lacking = [
        name
        for name, parameter in module.named_parameters()
        if parameter.requires_grad
        and (parameter.grad is None or not bool(parameter.grad.isfinite().all()))
    ]
    assert (loss.ndim, bool(loss.isfinite()), lacking) == (0, True, [])


@pytest.mark.slow
@pytest.mark.exhaustive
@every_workload
def test_full_preset_builds_and_runs_without_data(name, make_workload):
    """The full preset's forward and backward pass run on fake tensors."""
    workload = make_workload(name, "full").for_fake_tensors()
    with FakeTensorMode():
        module = workload.build()
        loss = workload.loss(module, workload.synthetic_batch(2, device=CPU))
        loss.backward()
        assert all(p.grad is not None for p in module.parameters() if p.requires_grad)


@pytest.mark.slow
@every_workload
def test_weights_follow_the_seed(name, make_workload):
    """The same seed gives the same weights, another seed gives others."""
    workload = make_workload(name, "tiny")

    def weights(seed):
        torch.manual_seed(seed)
        return torch.cat([p.detach().flatten() for p in workload.build().parameters()])

    assert (weights(0).equal(weights(0)), weights(0).equal(weights(1))) == (True, False)


@pytest.mark.slow
@every_workload
def test_weights_are_drawn_on_the_default_device(name, make_workload):
    """Parameters and buffers are created where the caller of ``build`` says, and tied there."""
    workload = make_workload(name, "tiny").for_fake_tensors()
    with torch.device("meta"):
        module = workload.build()
    elsewhere = [
        name
        for name, tensor in (*module.named_parameters(), *module.named_buffers())
        if tensor.device.type != "meta"
    ]
    assert elsewhere == []
    assert tied(module) == tied(workload.build())


def tied(module):
    """Names that share each parameter."""
    names = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    return [*names.values()]


@every_workload
def test_synthetic_batch_follows_its_generator(name, make_workload):
    """Equal generators give equal batches of the size asked for, others give others."""
    workload = make_workload(name, "tiny")
    first, again, other = (batch_of(workload, 4, seed) for seed in (0, 0, 1))
    assert (
        len(first.inputs),
        first.inputs.equal(again.inputs) and first.targets.equal(again.targets),
        first.inputs.equal(other.inputs),
    ) == (4, True, False)


@every_workload
def test_channels_last_reaches_the_inputs_or_is_refused(name, make_workload):
    """With model.channels_last inputs are NHWC; without convolutions it is unsupported."""
    if catalog.load("workloads", name).convolutional:
        workload = make_workload(name, "tiny", "model.channels_last=true")
        inputs = batch_of(workload, 2).inputs
        assert inputs.is_contiguous(memory_format=torch.channels_last)
    else:
        with pytest.raises(Unsupported, match=rf"model\.channels_last: {name} has no convolutions"):
            make_workload(name, "tiny", "model.channels_last=true")


@every_workload
def test_forward_leaves_one_row_per_sample(name, make_workload):
    """Inference of a batch gives finite outputs, one per sample."""
    workload = make_workload(name, "tiny")
    module = workload.build().eval()
    with torch.inference_mode():
        output = workload.forward(module, batch_of(workload, 3))
    assert (len(output), bool(output.isfinite().all())) == (3, True)
