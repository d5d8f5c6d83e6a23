"""What the scripts of this folder share: configurations, their parts, and what becomes of both."""

from __future__ import annotations

import json
import os
import sys
from contextlib import closing, nullcontext
from copy import copy
from pathlib import Path

import torch
from torch.distributed.tensor import DTensor

from gpubench_plugin.config.resolution import resolve
from gpubench_plugin.config.sections import DistributedSection
from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import CorrectnessError
from gpubench_plugin.ranks.agreement import RankAgreement
from gpubench_plugin.ranks.process_group import ProcessGroup
from gpubench_plugin.ranks.world import World
from gpubench_plugin.training.model import build_model
from gpubench_plugin.training.trainer import Trainer
from tests.e2e.distributed.ranks.waiting import wait_for_all

CPU = torch.device("cpu")


def write(find):
    """Write what `find` finds on this rank, given the group of all, into the folder of the test."""
    world = World.from_environment(os.environ)
    with closing(ProcessGroup(world, device=CPU)) as group:
        found = find(group)
        wait_for_all(group.control, "leave")
    Path(sys.argv[1], f"{world.rank}.json").write_text(json.dumps(found))


def configured(name, *overrides, precision="fp32", ranks=1):
    """The tiny preset of a configuration."""
    return resolve(
        name=name,
        preset="tiny",
        overlays=[],
        overrides=overrides,
        fixed_values={"precision.name": precision, "distributed.world_size": ranks},
        rootdir=Path(__file__).parents[4],
        model_section=lambda workload: catalog.load("workloads", workload).Section,
    )


def made(configuration):
    """Its workload."""
    return catalog.load("workloads", configuration.model.name)(configuration.model)


def precise(name="fp32"):
    """A precision."""
    return catalog.load("precision", name)()


def taken(name, group, workload, configuration, **options):
    """A parallelism that knows the workload."""
    parallelism = catalog.load("parallelism", name)(group, DistributedSection(**options))
    parallelism.configure(workload, configuration.training)
    return parallelism


def built(workload, parallelism=None, *, precision=None, seed=0, **section):
    """The workload's module for training, wrapped where there is a `parallelism`."""
    workload = copy(workload)
    workload.section = workload.section.model_copy(update=section)
    return build_model(
        workload,
        seed=seed,
        device=CPU,
        precision=precision or precise(),
        default_scope=parallelism.default_scope if parallelism else "model",
        compiled=parallelism and parallelism.compiled,
        wrap=parallelism and parallelism.wrap,
    ).train()


def trainer_of(configuration, workload, module, parallelism=None, group=None, **more):
    """A trainer as the fixtures make it, of one process where there is no `parallelism`."""
    precision = precise(configuration.precision.name)
    world = group.world if group else World()
    sharing = world.size if parallelism and parallelism.shares_batch else 1
    data = catalog.load("data", configuration.data.source)(
        workload,
        batch_size=configuration.training.batch_size * sharing,
        device=CPU,
        world_size=world.size // sharing,
        rank=world.rank // sharing,
        convert=precision.convert_batch,
    )
    return Trainer(
        module=module,
        workload=workload,
        data=data,
        precision=precision,
        training=configuration.training,
        precision_section=configuration.precision,
        device=CPU,
        no_sync=(lambda: parallelism.no_sync(module)) if parallelism else nullcontext,
        agreement=group.agreement if group else RankAgreement(),
        global_norm=parallelism and parallelism.gradient_norm,
        passes=parallelism and parallelism.passes(module, precision),
        ranks_per_batch=sharing,
        **more,
    )


def whole(gradient):
    """A gradient that may be shared by the ranks."""
    return gradient.full_tensor() if isinstance(gradient, DTensor) else gradient


def compiled_operations(compute):
    """What `compute` returns, and the operations that meanwhile ran in compiled graphs."""
    operations = []

    def backend(graph, inputs):
        operations.extend(node for node in graph.graph.nodes if node.op == "call_function")
        return graph.forward

    torch.compiler.reset()  # what others compiled counts towards torch's limit
    real, torch.compile = torch.compile, lambda module, **_: real(module, backend=backend)
    try:
        return compute(), operations
    finally:
        torch.compile = real


def refusal(act):
    """What `act` complains of, if of anything."""
    try:
        act()
    except CorrectnessError as complaint:
        return str(complaint)
    return ""


def spoil(parameter, value=float("nan")):
    """Make this rank's part of a gradient wrong."""
    own = parameter.grad.to_local() if isinstance(parameter.grad, DTensor) else parameter.grad
    own.view(-1)[0] = value
