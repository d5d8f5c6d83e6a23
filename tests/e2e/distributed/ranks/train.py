"""What two ranks compute together under every parallelism; each writes what it found."""

from __future__ import annotations

from contextlib import nullcontext
from typing import get_args

import torch
from torch.distributed.tensor import DTensor

from gpubench_plugin.config.sections import CompileScope, DistributedSection
from gpubench_plugin.core import catalog
from gpubench_plugin.training.check import require_gradients
from gpubench_plugin.training.compile import EAGER, loss_function
from gpubench_plugin.training.optimization import Optimization
from tests.e2e.distributed.ranks import common
from tests.e2e.distributed.ranks.common import CPU, made, refusal

BATCH = 8

PARALLELISMS = tuple(
    name
    for name in catalog.choices("parallelism")
    if name != "none" and not catalog.load("parallelism", name).shares_batch
)
SCOPES = {
    name: tuple(
        scope
        for scope in ("null", *get_args(CompileScope))
        if scope not in catalog.load("parallelism", name).refused_scopes
    )
    for name in PARALLELISMS
}
WORKLOADS = ("mlp", "resnet18")
PARTS = ("gradients", "options", "compiled", "training", "nan", "overflow")
OPTIONS = {
    "ddp-small-buckets": ("ddp", {"bucket_cap_mb": 0.001}),
    "ddp-static": ("ddp", {"static_graph": True, "gradient_as_bucket_view": False}),
    "fsdp2-kept": ("fsdp2", {"reshard_after_forward": False}),
    "fsdp2-freed": ("fsdp2", {"reshard_after_forward": True, "fsdp_reduce_dtype": "fp32"}),
}


def configured(workload, *overrides, **options):
    """The workload's tiny preset, its parameters contiguous."""
    return common.configured(workload, "model.channels_last=false", *overrides, **options)


def built(workload, parallelism=None, **options):
    """A module; what one process computes is the reference, and eager."""
    return common.built(workload, parallelism, **options, **({} if parallelism else EAGER))


def gradients(module):
    """All gradients, whole ones, in one vector."""
    whole = (common.whole(p.grad) for p in module.parameters())
    return torch.cat([gradient.flatten() for gradient in whole]).double()


def backward(workload, module, batches, no_sync=nullcontext):
    """The gradients of `batches`, all but the last one accumulated without an exchange."""
    loss_of = loss_function(module, workload)
    module.zero_grad()
    for batch in batches[:-1]:
        with no_sync():
            (loss_of(module, batch) / len(batches)).backward()
    (loss_of(module, batches[-1]) / len(batches)).backward()
    return gradients(module)


def global_batch(workload):
    generator = torch.Generator().manual_seed(1)
    return workload.synthetic_batch(BATCH, device=CPU, generator=generator)


def compared(workload, parallelism, world):
    """The relative global error of gradients against one process with the global batch.

    Where the ranks are said to differ from one process, they are looked at as they are first, and
    then in eval mode, in which no layer depends on the batch.
    """
    batch = global_batch(workload)
    share = batch.split(BATCH // world.size)[world.rank]

    def pair(mode):
        # Other ranks start from other weights: wrapping gives them rank zero's.
        wrapped = built(workload, parallelism, seed=world.rank)
        return wrapped.train(mode), built(workload).train(mode)

    module, reference = pair(True)
    found = {"reason": parallelism.differs_from_one_process(module)}
    if found["reason"]:
        expected = backward(workload, reference, [batch])
        found["as_said"] = error(expected, backward(workload, module, [share]))
        module, reference = pair(False)
        found["reason_in_eval_mode"] = parallelism.differs_from_one_process(module)
    expected = backward(workload, reference, [batch])
    at_once = backward(workload, module, [share])
    halves = share.split(len(share.inputs) // 2)
    accumulated = backward(workload, module, halves, lambda: parallelism.no_sync(module))
    return {
        **found,
        "at_once": error(expected, at_once),
        "accumulated": error(expected, accumulated),
        "alone": error(expected, backward(workload, reference, [share])),
    }


def error(expected, actual):
    return float((actual - expected).norm() / expected.norm())


def trainer_of(configuration, parallelism=None, *, loss=None, group=None):
    workload = made(configuration)
    workload.loss = loss(workload.loss) if loss else workload.loss
    module = built(workload, parallelism, precision=common.precise(configuration.precision.name))
    return common.trainer_of(
        configuration,
        workload,
        module,
        parallelism,
        group,
        differs_from_one_process=parallelism and parallelism.differs_from_one_process(module),
    )


STRONG = (
    "data.global_batch_size=128",
    "training.accumulation_steps=2",
    "training.gradient_clipping=0.2",
    "training.loss_drop=null",
    "training.steps=10",
)
FUSED = ("training.optimizer=adamw", "training.fused=true", "training.learning_rate=0.01")
OPTIMIZERS = {"fp32": (), "bf16": FUSED, "amp": FUSED}


def trained(precision, parallelism=None, group=None):
    """What the untimed check says of strong scaling with clipping and accumulation."""
    ranks = group.world.size if group else 1
    overrides = (*STRONG, *OPTIMIZERS[precision])
    configuration = configured("mlp", *overrides, precision=precision, ranks=ranks)
    trainer = trainer_of(configuration, parallelism, group=group)
    correctness = trainer.prepare(lambda event: None).correctness
    trainer.begin()
    trainer.step()
    return {**correctness, **trainer.finish()}


def compiled(parallelism, world, scope):
    """The error of gradients compiled in `scope`, and how many operations ran in compiled graphs.

    Of the loss, which is compiled in the step only, it is said whether it was among them.
    """
    keys = "model.compile=default", f"model.compile_scope={scope}"
    found, operations = common.compiled_operations(
        lambda: compared(made(configured("mlp", *keys)), parallelism, world)
    )
    has_loss = any(node.target is torch.nn.functional.cross_entropy for node in operations)
    return {**found, "operations": len(operations), "has_loss": has_loss}


def nan_on_one_rank(parallelism, group):
    """The complaint on this rank when the loss is NaN on rank one only."""

    def distorted(loss_of):
        factor = float("nan") if group.world.rank else 1.0
        return lambda module, batch: loss_of(module, batch) * factor

    trainer = trainer_of(configured("mlp"), parallelism, loss=distorted, group=group)
    return refusal(lambda: trainer.prepare(lambda event: None))


def overflow_on_one_rank(parallelism, group):
    """A gradient of which rank one's part is not finite: the complaint, and steps skipped."""
    configuration = configured("mlp", precision="amp")
    workload = made(configuration)
    module = built(workload, parallelism)
    optimization = Optimization(
        module.parameters(),
        training=configuration.training,
        device=CPU,
        scaler=torch.amp.GradScaler("cpu", init_scale=128.0),
    )
    optimization.backward(workload.loss(module, global_batch(workload)))
    first = next(module.parameters())
    sharded = isinstance(first.grad, DTensor)
    if group.world.rank:
        common.spoil(first, float("inf"))
    complaint = refusal(
        lambda: require_gradients(module, require_finite_gradients=True, agreement=group.agreement)
    )
    optimization.update()
    return {"complaint": complaint, "sharded": sharded, "skipped": optimization.skipped_steps()}


def find(group):
    world, found = group.world, {part: {} for part in PARTS}
    for name in PARALLELISMS:
        parallelism = catalog.load("parallelism", name)(group, DistributedSection())
        for workload in WORKLOADS:
            case = f"{name} {workload}"
            found["gradients"][case] = compared(made(configured(workload)), parallelism, world)
        for precision in OPTIMIZERS:
            found["training"][f"{name} {precision}"] = trained(precision, parallelism, group)
        for scope in SCOPES[name]:
            found["compiled"][f"{name} {scope}"] = compiled(parallelism, world, scope)
        found["nan"][name] = nan_on_one_rank(parallelism, group)
        found["overflow"][name] = overflow_on_one_rank(parallelism, group)
    for case, (name, options) in OPTIONS.items():
        section = DistributedSection(**options)
        parallelism = catalog.load("parallelism", name)(group, section)
        found["options"][case] = compared(made(configured("mlp")), parallelism, world)
    if world.is_root:
        found["one_process"] = trained("fp32")
    return found


if __name__ == "__main__":
    common.write(find)
