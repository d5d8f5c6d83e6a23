"""What the tests of the layer make."""

from __future__ import annotations

import torch

from gpubench_plugin.config.sections import MoeSection
from gpubench_plugin.core import catalog
from gpubench_plugin.workloads.moe.construction import Construction
from gpubench_plugin.workloads.moe.groups import ParallelGroups
from gpubench_plugin.workloads.moe.measured import MoESubject

CPU = torch.device("cpu")


def section(**keys):
    """A small layer."""
    return MoeSection(**({"tokens": 24, "width": 16, "hidden": 8, "experts": 4} | keys))


def construction(precision="fp32", groups=None, seed=0, **keys):
    return Construction(
        section(**keys),
        seed=seed,
        groups=groups or ParallelGroups(),
        precision=catalog.load("precision", precision)(),
        device=CPU,
    )


def measured(part="forward-backward", precision="fp32", **keys):
    return MoESubject(part, construction(precision, **keys))
