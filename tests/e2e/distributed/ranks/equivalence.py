"""What two ranks compute together and what one process computes; each writes what it found."""

from __future__ import annotations

import copy

import torch
from torch.distributed.tensor import DTensor

from gpubench_plugin.config.sections import DistributedSection
from gpubench_plugin.core import catalog
from gpubench_plugin.training.parallelism.pipeline import runs_in_a_v
from tests.e2e.distributed.ranks import common, divided
from tests.e2e.distributed.ranks.common import CPU, built, made, taken, whole
from tests.support.presets import CONFIGURED

RANKS = 2
BATCH = 4
MICROBATCHES = 4
SCHEDULES = ("GPipe", "1F1B", "Interleaved1F1B", *["ZBVZeroBubble"] * runs_in_a_v("gloo"))
SMALL = ("model.width=32", "model.intermediate_size=64", "model.sequence_length=16")
"""Of the Llama that is computed many times."""


LEFT_OUT = ("diffusion", "resnet50")
"""Workloads that do not train, or that are made of the same layers as another one."""

WORKLOADS = tuple(name for name in CONFIGURED if name not in LEFT_OUT)


def configured(name, *overrides):
    """The workload's tiny preset, its parameters contiguous."""
    return common.configured(name, "model.channels_last=false", "model.compile=none", *overrides)


def batch_of(workload, size):
    return workload.synthetic_batch(size, device=CPU, generator=torch.Generator().manual_seed(1))


def backward(loss):
    """Run the backward pass; the loss as a number."""
    loss.backward()
    return float(loss.detach())


def difference(found, expected):
    """The norm of the difference of two sets of gradients, over the norm of what is `expected`."""
    squares = [
        sum(float(value.double().square().sum()) for value in values)
        for values in (
            [whole(p.grad) - e.grad for p, e in zip(found, expected, strict=True)],
            [e.grad for e in expected],
        )
    ]
    return (squares[0] / squares[1]) ** 0.5


def data_parallel(name, workload, module, world, group):
    """Errors of one parallelism, in eval mode where training differs by design, and why."""
    section = DistributedSection()
    parallelism = catalog.load("parallelism", name)(group, section)
    wrapped = parallelism.wrap(copy.deepcopy(module)).train()
    batch = batch_of(workload, BATCH)
    reason = parallelism.differs_from_one_process(wrapped)
    found = {"reason": reason}
    if reason:
        wrapped.eval()
        module.eval()
        found["reason_in_eval_mode"] = parallelism.differs_from_one_process(wrapped)
    share = batch.split(BATCH // RANKS)[world.rank]
    module.zero_grad()
    expected = backward(workload.loss(module, batch))
    (mean,) = group.agreement.mean([backward(workload.loss(wrapped, share))])
    trained = [p for p in module.parameters() if p.requires_grad]
    norm = torch.nn.utils.get_total_norm([p.grad for p in trained])
    return {
        **found,
        "gradients": difference([p for p in wrapped.parameters() if p.requires_grad], trained),
        "loss": abs(mean - expected) / expected,
        "norm": abs(parallelism.gradient_norm(wrapped.parameters()) / float(norm) - 1),
    }


def data_parallel_everywhere(world, group):
    found = {}
    for of in WORKLOADS:
        workload = made(configured(of))
        module = built(workload).train()
        for name in ("ddp", "fsdp2"):
            found[f"{name} {of}"] = data_parallel(name, workload, module.train(), world, group)
    return found


def tensor(group):
    """Errors of the ranks' gradients, loss and norm; what is shared, and each gradient's error."""
    configuration = configured("llama", *SMALL)
    workload = made(configuration)
    parallelism = taken("tensor", group, workload, configuration)
    reference, module = built(workload), parallelism.wrap(built(workload))
    batch = batch_of(workload, BATCH)
    expected = backward(workload.loss(reference, batch))
    loss = backward(workload.loss(module, batch))
    norm = torch.nn.utils.get_total_norm([p.grad for p in reference.parameters()])
    return {
        "gradients": difference(module.parameters(), list(reference.parameters())),
        "loss": abs(loss - expected) / expected,
        "norm": abs(parallelism.gradient_norm(module.parameters()) / float(norm) - 1),
        "shared": sorted(
            name
            for name, p in module.named_parameters()
            if p.to_local().numel() == p.numel() // RANKS
        ),
        "plain": [name for name, p in module.named_parameters() if not isinstance(p, DTensor)],
    }


def pipeline(schedule, group):
    """Errors of this rank's gradients, of the loss and of the global norm, and who has what.

    One process computes the same microbatches, and for the gradients all samples at once, too.
    """
    options = {"pipeline_schedule": schedule, "pipeline_microbatches": MICROBATCHES}
    configuration = configured(
        "llama", *SMALL, "training.batch_size=2", "distributed.parallelism=pipeline"
    )
    workload = made(configuration)
    parallelism = taken("pipeline", group, workload, configuration, **options)
    reference, module = built(workload), parallelism.wrap(built(workload))
    batch = batch_of(workload, BATCH)
    passes = parallelism.passes(module, catalog.load("precision", "fp32")())
    (loss,) = group.agreement.mean([float(passes(module, batch))])
    expected = sum(
        backward(workload.loss(reference, part) / MICROBATCHES)
        for part in batch.split(BATCH // MICROBATCHES)
    )
    norm = torch.nn.utils.get_total_norm([p.grad for p in reference.parameters()])
    found = {
        "loss": abs(loss - expected) / expected,
        "norm": abs(parallelism.gradient_norm(module.parameters()) / float(norm) - 1),
        "names": sorted(name for name, _ in module.named_parameters()),
        "all_names": sorted(passes.parameter_names),
    }
    at_once = built(workload)
    workload.loss(at_once, batch).backward()
    for name, process in (("gradients", reference), ("gradients_at_once", at_once)):
        cut = workload.stages(process, module.count)
        own = [p for n in module.stages for p in cut.modules[int(n)].parameters()]
        found[name] = difference(module.parameters(), own)
    return {**found, "stages": sorted(map(int, module.stages))}


def find(group):
    return {
        "data_parallel": data_parallel_everywhere(group.world, group),
        "tensor": tensor(group),
        "pipeline": {schedule: pipeline(schedule, group) for schedule in SCHEDULES},
        **divided.everything(group),
    }


if __name__ == "__main__":
    common.write(find)
