"""Fully sharded data parallelism: model shards per rank, batch split over ranks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from gpubench_plugin.core.errors import Unsupported
from gpubench_plugin.training.bands import has_batch_norm
from gpubench_plugin.training.parallelism.base import Parallelism
from gpubench_plugin.workloads.base import DTYPES, blocks_of


class FSDP2(Parallelism):
    """Sharded parameters, gradients and optimizer state; blocks are gathered when used.

    Parameters keep the dtype that the precision gives them, and are gathered in it: under
    autocast they stay in fp32, and each operation casts. ``distributed.fsdp_param_dtype`` gathers
    and computes in a 16-bit type instead, ``distributed.fsdp_reduce_dtype`` reduces gradients in
    another one; the shards that the optimizer updates stay as they are.

    Sources: https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html;
    Zhao et al., PyTorch FSDP: Experiences on Scaling Fully Sharded Data Parallel, VLDB 2023,
    https://arxiv.org/abs/2304.11277
    """

    name = "fsdp2"
    default_scope = "blocks"
    refused_scopes = dict.fromkeys(
        ("model", "step"), "a graph cannot contain the hooks that gather a block"
    )

    def unsupported(self, compute_dtype: str) -> str | None:
        """Reason not to support a parameter dtype that contradicts the precision, or None."""
        dtype = self.section.fsdp_param_dtype
        if dtype in (None, compute_dtype):
            return None
        return (
            f"distributed.fsdp_param_dtype={dtype!r}: this precision computes in {compute_dtype}; "
            "choose a precision that computes in it, or null"
        )

    def wrap(self, module: nn.Module) -> nn.Module:
        """Shard `module` block by block, with rank zero's parameters and buffers.

        Layers in no block stay with the root.

        Raises:
            Unsupported: a parameter is not contiguous, as with ``model.channels_last``, or batch
                normalisation would compute in a 16-bit dtype.
        """
        for name, parameter in module.named_parameters():
            if not parameter.is_contiguous():
                raise Unsupported(
                    f"fsdp2: only contiguous parameters can be sharded, and {name} is not; set "
                    "model.channels_last=false"
                )
        if self.section.fsdp_param_dtype is not None and has_batch_norm(module):
            raise Unsupported(
                f"distributed.fsdp_param_dtype={self.section.fsdp_param_dtype}: the statistics of "
                "batch norm need fp32; remove the key and use precision bf16 or amp"
            )
        if self.group.world.size > 1:
            with torch.no_grad():
                for tensor in chain(module.parameters(), module.buffers()):
                    dist.broadcast(tensor, src=0)
        mesh = self.mesh
        names = self.section.fsdp_param_dtype, self.section.fsdp_reduce_dtype
        param_dtype, reduce_dtype = (None if name is None else DTYPES[name] for name in names)
        policy = MixedPrecisionPolicy(param_dtype=param_dtype, reduce_dtype=reduce_dtype)
        for part in (*(block for _, _, block in blocks_of(module)), module):
            fully_shard(
                part,
                mesh=mesh,
                reshard_after_forward=self.section.reshard_after_forward,
                mp_policy=policy,
            )
        return module

    @contextmanager
    def no_sync(self, module: nn.Module) -> Iterator[None]:
        """Accumulate unsharded gradients until a backward pass outside the context."""
        if not isinstance(module, FSDPModule):
            yield
            return
        module.set_requires_gradient_sync(False)
        try:
            yield
        finally:
            module.set_requires_gradient_sync(True)
