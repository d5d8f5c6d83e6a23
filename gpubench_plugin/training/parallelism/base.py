"""Parallelism base class, with no-op defaults for everything a strategy may change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from math import hypot
from typing import Any, ClassVar, Final, Protocol, get_args

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from gpubench_plugin.config.sections import CompileScope, DistributedSection, TrainingSection
from gpubench_plugin.core.errors import Unsupported
from gpubench_plugin.precision._nested import values_of
from gpubench_plugin.precision.base import Precision
from gpubench_plugin.ranks.process_group import ProcessGroup
from gpubench_plugin.workloads.base import Batch, Workload

_BATCH_NORMS: Final = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def split_dependent_layers(module: nn.Module) -> str | None:
    """Layers of `module` that depend on how the global batch is split, or None.

    Batch normalisation has statistics, and dropout random numbers, per rank; ``SyncBatchNorm`` does
    not count. Other layers have the reason in an attribute ``differs_per_rank``.
    """
    counts = Counter(_reasons(module))
    return "; ".join(f"{reason} ({count} layers)" for reason, count in counts.items()) or None


def _reasons(module: nn.Module) -> Iterator[str]:
    for layer in module.modules():
        if isinstance(layer, _BATCH_NORMS) and (layer.training or not layer.track_running_stats):
            # FSDP2 replaces the class by a subclass with this prefix.
            name = type(layer).__name__.removeprefix("FSDP")
            yield f"{name} normalises by each rank's own batch"
        elif isinstance(layer, nn.modules.dropout._DropoutNd) and layer.training and layer.p > 0:
            yield f"{type(layer).__name__} uses per-rank random numbers"
        elif layer.training and (reason := getattr(layer, "differs_per_rank", None)):
            yield str(reason)


def gradient_norm(parameters: Iterable[nn.Parameter]) -> float:
    """2-norm of the gradients of all `parameters`; synchronizes the device.

    It is computed in fp32 at least, since the norm of 16-bit gradients may exceed their range.
    """
    gradients = (values_of(p.grad) for p in parameters if p.grad is not None)
    norms = (
        torch.linalg.vector_norm(g, dtype=torch.promote_types(g.dtype, torch.float32))
        for g in gradients
    )
    return hypot(*(float(n.full_tensor() if isinstance(n, DTensor) else n) for n in norms))


Compile = Callable[["nn.Module"], "nn.Module"]


class Passes(Protocol):
    """Forward and backward passes of a batch, in place of the loss and its backward pass."""

    parameter_names: tuple[str, ...]
    """Those of all ranks."""

    def __call__(self, module: nn.Module, batch: Batch, /) -> Tensor:
        """Loss of the batch, whose gradients are accumulated."""


class Parallelism:
    """Strategy to train one model on the ranks of `group`; the defaults do nothing.

    Called in this order: :meth:`unsupported`; :meth:`configure`; :meth:`compiled`, if the model is
    compiled; :meth:`wrap`, before the optimizer is created; :meth:`passes`. All but the last batch
    of an accumulated step run within :meth:`no_sync`.
    """

    name: ClassVar[str]
    """Value of ``distributed.parallelism``."""

    shares_batch: ClassVar[bool] = False
    """Whether all ranks process the same batch, rather than one each."""

    compiles_in_wrap: ClassVar[bool] = False
    """Whether :meth:`wrap` compiles, stages or a model with its collectives: by ``_compile``."""

    least_ranks: ClassVar[int] = 1

    default_scope: ClassVar[CompileScope] = "model"
    """Scope of compilation where ``model.compile_scope`` is null."""

    refused_scopes: ClassVar[Mapping[str, str]] = {}
    """Values of ``model.compile_scope`` that it does not support, with the reason."""

    where: ClassVar[str] = "any number of ranks"
    """Supported numbers of ranks and models, for the user."""

    _compile: Compile | None = None

    def __init__(self, group: ProcessGroup, section: DistributedSection):
        self.group = group
        self.section = section

    @classmethod
    def refusal(cls, section: DistributedSection, training: TrainingSection, *, ranks: int) -> str:
        """Reason why `ranks` cannot share the batch as configured; empty if none is known.

        Raises:
            UsageProblem: likewise, with the reason.
        """
        return ""

    def unsupported(self, compute_dtype: str) -> str | None:
        """Reason not to support the configuration or `compute_dtype`, or None.

        `compute_dtype` is that of matrix products: fp64, fp32, tf32, fp16 or bf16.
        """
        too_few = self.group.world.size < self.least_ranks
        return f"requires at least {self.least_ranks} ranks" if too_few else None

    @property
    def mesh(self) -> DeviceMesh:
        """One-dimensional mesh of all ranks, by the default group."""
        group = dist.group.WORLD
        assert group is not None
        return DeviceMesh.from_group(group, self.group.device.type)

    def configure(self, workload: Workload[Any], training: TrainingSection) -> None:
        """Configure for a workload before the model is built.

        Raises:
            Unsupported: this model, training or compile scope is not supported.
            UsageProblem: the batch cannot be shared as configured.
        """
        scope = workload.section.compile_scope
        if scope in self.refused_scopes:
            allowed = [s for s in get_args(CompileScope) if s not in self.refused_scopes]
            raise Unsupported(
                f"{self.name}: model.compile_scope={scope}: {self.refused_scopes[scope]}; allowed: "
                f"{', '.join(allowed)}, null"
            )

    def compiled(self, module: nn.Module, compile: Compile) -> nn.Module:
        """Compile `module` before wrapping; `compile` does so in the configured scope."""
        self._compile = compile
        return module if self.compiles_in_wrap else compile(module)

    def wrap(self, module: nn.Module) -> nn.Module:
        """Wrap `module`, already on its device, for running on all ranks.

        Raises:
            Unsupported: this module is not supported.
        """
        return module

    def passes(self, module: nn.Module, precision: Precision) -> Passes | None:
        """Custom passes of the wrapped `module`; None for forward, then backward.

        Raises:
            Unsupported: not in this precision.
        """
        return None

    def no_sync(self, module: nn.Module) -> AbstractContextManager[None]:
        """Context in which gradients stay local to the rank."""
        return nullcontext()

    def gradient_norm(self, parameters: Iterable[nn.Parameter]) -> float:
        """2-norm of the gradients of all `parameters`, of which this rank has some or shards.

        Every rank must call it after the last backward pass of a step; it is equal on all ranks.
        """
        return gradient_norm(parameters)

    def differs_from_one_process(self, module: nn.Module) -> str | None:
        """Reason averaged gradients differ from those of one process with the whole batch, or None.

        Rounding does not count.
        """
        return split_dependent_layers(module)


BASE = Parallelism
