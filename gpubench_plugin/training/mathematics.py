"""One call's mathematics on tensors without data."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses import FakeTensorMode

if TYPE_CHECKING:
    from gpubench_plugin.workloads.base import Workload


def run_once(workload: Workload[Any], *, samples: int, backward: bool) -> None:
    """Build the model and a batch of `samples`, run forward (and `backward`), compute nothing.

    On fake tensors, which know their shape only: a ``FlopCounterMode`` around the call counts the
    full model anywhere, in no memory. Activations computed again are not counted, as is the custom
    for MFU: Chowdhery et al. 2022, PaLM, https://arxiv.org/abs/2204.02311, appendix B.
    """
    workload = workload.without_data()
    with FakeTensorMode(), nullcontext() if backward else torch.no_grad():
        module = workload.build()
        batch = workload.synthetic_batch(samples, device=torch.device("cpu"))
        if backward:
            workload.loss(module.train(), batch).backward()
        else:
            workload.forward(module.eval(), batch)
