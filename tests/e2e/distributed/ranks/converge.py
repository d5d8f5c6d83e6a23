"""Two ranks train to a target together; each writes what it found."""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path

import torch

from gpubench_plugin.config.resolution import resolve
from gpubench_plugin.config.sections import DistributedSection
from gpubench_plugin.core import catalog
from gpubench_plugin.ranks.process_group import ProcessGroup, RankAgreement
from gpubench_plugin.ranks.world import World
from gpubench_plugin.training.convergence import ReproducibleTraining, TimeToTarget
from gpubench_plugin.training.evaluation import Evaluator
from gpubench_plugin.training.model import build_model
from gpubench_plugin.training.trainer import Trainer

CPU = torch.device("cpu")
KEYS = ("training.target_accuracy=0.85", "training.evaluate_every=7")
PARALLELISMS = ("ddp", "fsdp2")


def converged(name=None, group=None):
    """What a benchmark of digits says of its way to the target, and of the timed one."""
    world_size = group.world.size if group else 1
    configuration = resolve(
        name="convergence-digits-mlp",
        preset="tiny",
        overlays=[],
        overrides=KEYS,
        fixed_values={"distributed.world_size": world_size},
        rootdir=Path(__file__).parents[4],
        model_section=lambda workload: catalog.load("workloads", workload).Section,
    )
    parallelism = name and catalog.load("parallelism", name)(group, DistributedSection())
    precision = catalog.load("precision", "fp32")()
    workload = catalog.load("workloads", "mlp")(configuration.model)
    agreement = group.agreement if group else RankAgreement()
    data = catalog.load("data", "digits")(
        workload,
        batch_size=configuration.training.batch_size,
        device=CPU,
        world_size=world_size,
        rank=group.world.rank if group else 0,
    )
    module = build_model(
        workload,
        section=configuration.model,
        seed=0,
        device=CPU,
        precision=precision,
        wrap=parallelism and parallelism.wrap,
    )
    parts = {
        "module": module,
        "workload": workload,
        "data": data,
        "precision": precision,
        "device": CPU,
        "agreement": agreement,
    }
    course = ReproducibleTraining(
        module=module,
        data=data,
        evaluator=Evaluator(**parts),
        build_trainer=partial(
            Trainer,
            **parts,
            training=configuration.training,
            precision_section=configuration.precision,
        ),
        seed=0,
    )
    convergence = TimeToTarget(
        course=course,
        workload=workload,
        data=data,
        training=configuration.training,
    )
    check = convergence.prepare(lambda event: None)
    convergence.begin()
    convergence.restart()
    convergence.step()
    held_out = sum(len(batch.inputs) for batch in data.held_out())
    return {
        **check.correctness,
        **check.facts,
        **convergence.finish(),
        "held_out": held_out,
        "samples": convergence.work().samples,
    }


def main() -> None:
    found = {}
    with ProcessGroup(World.from_environment(os.environ), device=CPU) as group:
        for name in PARALLELISMS:
            found[name] = converged(name, group)
        group.control.wait_for_all("leave")
    found["alone"] = converged()
    Path(sys.argv[1], f"{group.world.rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
