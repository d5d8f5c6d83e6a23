"""Two ranks train to a target together; each writes what it found."""

from __future__ import annotations

from functools import partial

from gpubench_plugin.core import catalog
from gpubench_plugin.ranks.agreement import RankAgreement
from gpubench_plugin.training.convergence import ReproducibleTraining, TimeToTarget
from gpubench_plugin.training.evaluation import Evaluator
from gpubench_plugin.training.trainer import Trainer
from tests.e2e.distributed.ranks import common
from tests.e2e.distributed.ranks.common import CPU

KEYS = ("training.target_accuracy=0.85", "training.evaluate_every=7")
PARALLELISMS = ("ddp", "fsdp2")


def converged(name=None, group=None):
    """What a benchmark of digits says of its way to the target, and of the timed one."""
    world_size = group.world.size if group else 1
    configuration = common.configured("convergence-digits-mlp", *KEYS, ranks=world_size)
    workload, precision = common.made(configuration), common.precise()
    parallelism = name and common.taken(name, group, workload, configuration)
    agreement = group.agreement if group else RankAgreement()
    data = catalog.load("data", "digits")(
        workload,
        batch_size=configuration.training.batch_size,
        device=CPU,
        world_size=world_size,
        rank=group.world.rank if group else 0,
    )
    module = common.built(workload, parallelism)
    parts = {
        "module": module,
        "workload": workload,
        "data": data,
        "precision": precision,
        "device": CPU,
        "agreement": agreement,
    }
    course = ReproducibleTraining(
        evaluator=Evaluator(**parts),
        build_trainer=partial(
            Trainer,
            **parts,
            training=configuration.training,
            precision_section=configuration.precision,
        ),
        seed=0,
    )
    convergence = TimeToTarget(course=course, training=configuration.training)
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


def find(group):
    return {name: converged(name, group) for name in PARALLELISMS} | {"alone": converged()}


if __name__ == "__main__":
    common.write(find)
