"""How far the MoE layer on these ranks is from one process; each rank writes what it found."""

from __future__ import annotations

import torch

from gpubench_plugin.config.sections import MoeSection
from gpubench_plugin.workloads.moe import rank_sorters
from gpubench_plugin.workloads.moe.construction import Construction
from gpubench_plugin.workloads.moe.groups import ParallelGroups
from gpubench_plugin.workloads.moe.measured import MoESubject
from tests.e2e.distributed.ranks import common

SIZE = {"tokens": 32, "width": 16, "hidden": 8, "experts": 8}

EXPERT_PARALLEL = {
    f"{dispatcher} {kind} {precision} {case}": (
        precision,
        {"dispatcher": dispatcher, "expert_kind": kind, **keys},
    )
    for dispatcher in ("all-gather", "all-to-all")
    for kind in ("sequential", "grouped")
    for precision in ("fp32", "bf16")
    for case, keys in {
        "all": {},
        "dropping": {"capacity_factor": 0.5},
        "few": {"tokens": 1},  # some ranks and experts get nothing
        "sorted": {"rank_sorter": "reversed"},
    }.items()
}
MIXED = {
    "data": ("fp32", {"expert_parallel": 1}),
    "tensor": ("fp32", {"expert_parallel": 1, "tensor_parallel": 2}),
    "data expert": ("fp32", {"expert_parallel": 2}),
    "tensor expert": ("fp32", {"expert_parallel": 2, "tensor_parallel": 2}),
}
CASES = {2: {**EXPERT_PARALLEL, **{name: MIXED[name] for name in ("data", "tensor")}}, 4: MIXED}


def layer(world, precision, keys, part="forward-backward"):
    section = MoeSection(**SIZE | keys)
    groups = ParallelGroups.of(section, rank=world.rank, world_size=world.size)
    made = Construction(
        section, seed=0, groups=groups, precision=common.precise(precision), device=common.CPU
    )
    return MoESubject(part, made), groups


def complaint(world, spoil, part="forward-backward"):
    """What this rank says of a layer spoilt on rank one."""
    spoilt, groups = layer(world, "fp32", {}, part)
    if world.rank == 1:
        spoil(spoilt)
    said = common.refusal(lambda: spoilt.prepare(None))
    groups.close()
    return said


def find(group):
    rank_sorters.register("reversed", lambda _: lambda loads, ranks: range(len(loads))[::-1])
    world, found = group.world, {}
    for case, (precision, keys) in CASES[world.size].items():
        made, groups = layer(world, precision, keys)
        check = made.prepare(None).correctness
        facts = made.finish()
        phases = sorted(name for name in facts if name.startswith("phase_"))
        found[case] = {**check, **facts, "phases": phases, "tokens": made.work().tokens}
        groups.close()
    return {
        **found,
        "wrong expert": complaint(world, lambda made: made._layer.experts.w_out.data.mul_(1.01)),
        "wrong on rank one": complaint(
            world, lambda made: made._tokens.register_hook(torch.neg), part="combine"
        ),
        "right again": complaint(world, lambda made: None),
    }


if __name__ == "__main__":
    common.write(find)
