"""Training beside its fp32 reference, and checkpoints, on the ranks; each writes what it found."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path

import torch

from gpubench_plugin.core.errors import CorrectnessError
from gpubench_plugin.training.checkpoint import Checkpoints
from gpubench_plugin.training.reference import Fp32Reference
from tests.e2e.distributed.ranks import common
from tests.e2e.distributed.ranks.common import CPU

SHORT = ("training.steps=3", "training.loss_drop=null", "measure.check_steps=3")
CASES = {
    "ddp fp32": ("mlp", "ddp", "fp32", ("training.accumulation_steps=2",)),
    "ddp bf16": ("mlp", "ddp", "bf16", ("training.gradient_clipping=0.1",)),
    "fsdp2 fp32": ("mlp", "fsdp2", "fp32", ("training.gradient_clipping=0.1",)),
    "none fp32": ("mlp", "none", "fp32", ()),
    "tensor fp32": ("llama", "tensor", "fp32", ("training.batch_size=2",)),
    "pipeline fp32": ("llama", "pipeline", "fp32", ("training.batch_size=2",)),
}


def trainer_of(group, name, way, precision, overrides, *, apart=False):
    """A trainer with its reference, as the fixtures make it; `apart`: no gradient is exchanged."""
    world = group.world
    configuration = common.configured(
        name, *SHORT, *overrides, precision=precision, ranks=world.size
    )
    workload, numerics = common.made(configuration), common.precise(precision)
    parallelism = common.taken(way, group, workload, configuration)
    module = common.built(workload, parallelism, precision=numerics)
    reference = Fp32Reference(
        workload=workload,
        training=configuration.training,
        measure=configuration.measure,
        precision=precision,
        compute_dtypes=[numerics.compute_dtype],
        seed=0,
        device=CPU,
        agreement=group.agreement,
        averaging=way != "none",
        steps=configuration.measure.check_steps,
    )
    trainer = common.trainer_of(
        configuration, workload, module, parallelism, group, reference=reference
    )
    if apart:
        gradients = trainer._gradients

        def kept_apart(*args):
            with parallelism.no_sync(module):
                gradients(*args)

        trainer._gradients = kept_apart
        trainer.no_sync = nullcontext
    return trainer


def compared(trainer):
    try:
        return trainer.prepare(lambda event: None).correctness["reference"]
    except CorrectnessError as complaint:
        return str(complaint)


def checkpointed(group, folder):
    """Whether weights after a checkpoint and two steps more are those without a checkpoint."""
    case = ("mlp", "ddp", "fp32", ("training.optimizer=adamw",))

    def checkpoints():
        return Checkpoints(
            folder if group.world.is_root else None,
            settings={"parallelism": "ddp"},
            group=group,
        )

    def state(trainer):
        model = trainer.state_dict()["model"]
        return torch.cat([*(t.flatten() for t in model.values()), torch.rand(2)])

    torch.manual_seed(group.world.rank)
    trainer = trainer_of(group, *case)
    trainer.step()
    path = checkpoints().save(trainer, {"loss": 1.0})
    trainer.step()
    trainer.step()
    expected = state(trainer)
    resumed = trainer_of(group, *case)
    torch.manual_seed(9)
    checkpoints().load(folder, resumed)
    resumed.step()
    resumed.step()
    return {"path": path and path.name, "equal": bool(state(resumed).equal(expected))}


def find(group):
    return {
        **{case: compared(trainer_of(group, *parts)) for case, parts in CASES.items()},
        "apart": compared(trainer_of(group, *CASES["ddp fp32"][:3], (), apart=True)),
        "checkpoint": checkpointed(group, Path(sys.argv[1], "checkpoints")),
    }


if __name__ == "__main__":
    common.write(find)
