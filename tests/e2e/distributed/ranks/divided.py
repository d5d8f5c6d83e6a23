"""What two ranks do with an MLP that they divide among them: train it, compile it, go wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import nn

from gpubench_plugin.core import catalog
from gpubench_plugin.training.check import require_gradients
from gpubench_plugin.training.compile import loss_function
from gpubench_plugin.training.inference import Inference
from gpubench_plugin.training.parallelism.pipeline import runs_in_a_v
from gpubench_plugin.workloads.base import Stages
from gpubench_plugin.workloads.mlp import MLP
from tests.e2e.distributed.ranks import common
from tests.e2e.distributed.ranks.common import CPU, built

if TYPE_CHECKING:
    from collections.abc import Mapping

RANKS = 2
SHARE = 16
"""Samples of a batch for each rank."""

CASES = {
    "tensor": ("tensor", {}),
    "pipeline": ("pipeline", {"pipeline_schedule": "1F1B"}),
    "pipeline in a V": ("pipeline", {"pipeline_schedule": "ZBVZeroBubble"}),
}
SETTINGS = {
    "tensor": {
        "fp32": ("training.gradient_clipping=0.02", "training.accumulation_steps=2"),
        "bf16": (),
        "amp": ("training.optimizer=adamw", "training.learning_rate=0.01"),
    },
    "pipeline": {"fp32": (), "bf16": ()},
    "pipeline in a V": {"fp32": ("training.optimizer=adamw", "training.learning_rate=0.01")},
}
"""What each case is trained with, by precision."""
if not runs_in_a_v("gloo"):
    del CASES["pipeline in a V"], SETTINGS["pipeline in a V"]


class DividedMLP(MLP):
    """64-32-32-32-10: four linear layers, at the numbers 1, 3, 5 and 7."""

    def tensor_plan(self, ranks: int) -> Mapping[str, str]:
        """Two of them shared by the ranks, the other two on every rank."""
        return {"3": "colwise", "5": "rowwise"}

    def stages(self, module: nn.Module, count: int) -> Stages:
        """One or two linear layers per stage."""
        parts = {2: ((0, 5), (5, 8)), 4: ((0, 3), (3, 5), (5, 7), (7, 8))}[count]
        return Stages(
            tuple(nn.Sequential(*(module[n] for n in range(*part))) for part in parts),
            between=(32,),
            loss=nn.functional.cross_entropy,
        )


def configured(*overrides, precision="fp32"):
    """The MLP on digits, for six steps."""
    configuration = common.configured(
        "mlp",
        "model.hidden_sizes=[32, 32, 32]",
        f"training.batch_size={SHARE}",
        "training.steps=6",
        "training.loss_drop=null",
        *overrides,
        precision=precision,
    )
    return configuration, DividedMLP(configuration.model)


def taken(case, group, configuration, workload):
    name, options = CASES[case]
    return common.taken(name, group, workload, configuration, **options)


def data_of(workload, precision):
    """The batches of all ranks together, on every rank."""
    return catalog.load("data", "digits")(
        workload, batch_size=SHARE * RANKS, device=CPU, convert=precision.convert_batch
    )


def trained(case, precision, group):
    """The losses and the work of one process, or of the ranks where there is a `group`."""
    whole_batch = () if group else (f"training.batch_size={SHARE * RANKS}",)
    settings = (*SETTINGS[case][precision], *whole_batch)
    configuration, workload = configured(*settings, precision=precision)
    parallelism = group and taken(case, group, configuration, workload)
    module = built(workload, parallelism, precision=common.precise(precision))
    trainer = common.trainer_of(configuration, workload, module, parallelism, group)
    correctness = trainer.prepare(lambda event: None).correctness
    trainer.begin()
    trainer.step()
    return {
        "losses": correctness["losses"],
        "skipped": trainer.finish()["skipped_steps"],
        "samples": trainer.samples_per_step,
    }


def gradients_after_a_pass(case, group, **section):
    """The module of `case`, its passes, and the gradients that one process has, by name."""
    configuration, workload = configured()
    fp32 = common.precise()
    parallelism = taken(case, group, configuration, workload)
    module, reference = built(workload, parallelism, **section), built(workload)
    batch = data_of(workload, fp32).fixed_batch()
    workload.loss(reference, batch).backward()
    expected = dict(reference.named_parameters())
    passes = parallelism.passes(module, fp32)
    if passes is None:
        loss_function(module, workload)(module, batch).backward()
        return module, passes, expected
    passes(module, batch)
    cut = nn.ModuleDict({str(n): s for n, s in enumerate(workload.stages(reference, 2).modules)})
    return module, passes, {f"stages.{name}": p for name, p in cut.named_parameters()}


def compiled(case, group, scope=None):
    """The largest error of compiled gradients, and how many operations ran in compiled graphs."""
    (module, _, expected), operations = common.compiled_operations(
        lambda: gradients_after_a_pass(case, group, compile="default", compile_scope=scope)
    )
    own = {name.replace("_orig_mod.", ""): p.grad for name, p in module.named_parameters()}
    whole = {name: common.whole(gradient) for name, gradient in own.items()}
    error = max(float((whole[name] - expected[name].grad).abs().max()) for name in whole)
    return {"error": error, "operations": len(operations)}


def complaint_of(case, group, harm):
    """What every rank says when `harm` was done to the first gradient of rank one."""
    module, passes, _ = gradients_after_a_pass(case, group)
    if group.world.rank == 1:
        harm(next(module.parameters()))
    names = None if passes is None else passes.parameter_names
    return common.refusal(
        lambda: require_gradients(
            module, require_finite_gradients=True, agreement=group.agreement, names=names
        )
    )


def forget(parameter):
    parameter.grad = None


def inferred(group):
    """The largest error of what a tensor-parallel model infers, and the samples it counts."""
    configuration, workload = configured()
    fp32 = common.precise()
    parallelism = taken("tensor", group, configuration, workload)
    module = built(workload, parallelism, seed=group.world.rank)
    data = data_of(workload, fp32)
    inference = Inference(
        module=module,
        workload=workload,
        data=data,
        precision=fp32,
        device=CPU,
        ranks_per_batch=RANKS,
    )
    inference.prepare(lambda event: None)
    with torch.inference_mode():
        found = workload.forward(module, data.fixed_batch())
        expected = workload.forward(built(workload), data.fixed_batch())
    return {"error": float((found - expected).abs().max()), "samples": inference.samples_per_step}


def everything(group):
    """What this rank found, by the part."""
    divided = ("tensor", "pipeline")
    cases = [(case, precision) for case in SETTINGS for precision in SETTINGS[case]]
    return {
        "trained": {f"{c} {p}": trained(c, p, group) for c, p in cases},
        "one process": {f"{c} {p}": trained(c, p, None) for c, p in cases},
        "compiled": {
            **{case: compiled(case, group) for case in divided},
            **{f"tensor {s}": compiled("tensor", group, s) for s in ("blocks", "step")},
        },
        "spoilt": {case: complaint_of(case, group, common.spoil) for case in divided},
        "forgotten": {case: complaint_of(case, group, forget) for case in divided},
        "inferred": inferred(group),
    }
