"""Tensor parallelism: ranks share each layer and process the same batch."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from torch.distributed.tensor import DTensor, Replicate, distribute_module
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)

from gpubench_plugin.core.errors import Unsupported, invalid_choice
from gpubench_plugin.training.parallelism.base import Parallelism

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch import nn
    from torch.distributed.device_mesh import DeviceMesh

    from gpubench_plugin.config.sections import TrainingSection
    from gpubench_plugin.workloads.base import Workload


class Replicated(ParallelStyle):
    """Layer replicated on every rank, with replicated inputs.

    Its parameters become DTensors like all others, since optimizers, clipping and GradScaler do not
    support a mixture with tensors.
    """

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        def prepare(_: nn.Module, inputs: tuple[Any, ...], mesh: DeviceMesh) -> tuple[Any, ...]:
            return tuple(
                DTensor.from_local(value, mesh, [Replicate()], run_check=False) for value in inputs
            )

        def restore(_: nn.Module, output: DTensor, _mesh: DeviceMesh) -> Any:
            return output.to_local()

        # Without a partition function it replicates every parameter from rank zero.
        return distribute_module(module, device_mesh, None, prepare, restore)  # type: ignore[arg-type] # declared to return None


_STYLES: Final[Mapping[str, Callable[[], ParallelStyle]]] = {
    "colwise": ColwiseParallel,
    "rowwise": RowwiseParallel,
    "colwise-gathered": lambda: ColwiseParallel(output_layouts=Replicate()),
    "vocabulary": lambda: RowwiseParallel(input_layouts=Replicate()),
}


class TensorParallel(Parallelism):
    """Layers sharded according to the workload's ``tensor_plan``; all others replicated.

    Sources: https://docs.pytorch.org/docs/stable/distributed.tensor.parallel.html;
    Shoeybi et al., Megatron-LM (2019), https://arxiv.org/abs/1909.08053
    """

    name = "tensor"
    where = "2 ranks or more; models with a plan: llama"
    least_ranks = 2
    shares_batch = True
    compiles_in_wrap = True

    _plan: Mapping[str, str] | None = None

    def configure(self, workload: Workload[Any], training: TrainingSection) -> None:
        """Get the workload's plan."""
        super().configure(workload, training)
        plan = workload.tensor_plan(self.group.world.size)
        if plan is None:
            raise Unsupported(
                f"tensor: no tensor parallel plan for {workload.section.name}; use "
                "distributed.parallelism=ddp or fsdp2"
            )
        self._plan = plan

    def wrap(self, module: nn.Module) -> nn.Module:
        """Shard `module`, with rank zero's parameters.

        Raises:
            Unsupported: its plan does not fit the model.
        """
        assert self._plan is not None  # configure() was called
        mesh = self.mesh
        _require_layers(module, self._plan)
        plan = {pattern: _STYLES[style]() for pattern, style in self._plan.items()}
        parallelize_module(module, mesh, plan)
        replicated = {name: Replicated() for name in _layers_without_dtensors(module)}
        parallelize_module(module, mesh, dict[str, ParallelStyle](replicated))
        return module if self._compile is None else self._compile(module)


def _require_layers(module: nn.Module, plan: Mapping[str, str]) -> None:
    """Refuse a plan whose entries match no layer, which torch only warns about."""
    names = [name.split(".") for name, _ in module.named_modules()]
    for pattern, style in plan.items():
        parts = pattern.split(".")
        if style not in _STYLES:
            raise invalid_choice(f"the tensor_plan's style of {pattern}", style, _STYLES)
        if not any(len(n) == len(parts) and all(map(fnmatchcase, n, parts)) for n in names):
            raise Unsupported(
                f"tensor: the plan names the layer {pattern}, which the model does not have; "
                "the installed library version may use another name"
            )


def _layers_without_dtensors(module: nn.Module) -> Iterator[str]:
    """Names of layers with parameters that are no DTensors yet."""
    for name, layer in module.named_modules():
        parameters = tuple(layer.parameters(recurse=False))
        if parameters and not any(isinstance(parameter, DTensor) for parameter in parameters):
            yield name
