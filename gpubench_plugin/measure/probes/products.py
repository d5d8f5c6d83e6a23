"""What one untimed call of a step works on: the types in which it multiplies, and its tensors."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import Final

import torch
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

from gpubench_plugin.measure.probes.flops import Operation, OperationWatch

_NAMES: Final[Mapping[torch.dtype, str]] = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.float8_e4m3fn: "fp8",
    torch.float8_e5m2: "fp8",
}
"""As a precision's ``compute_dtype`` has them; tf32 is stored as fp32."""

_MORE_PRODUCTS: Final = frozenset(
    {"_grouped_mm", "_scaled_grouped_mm", "dot", "mv", "addmv", "_linear_pointwise"}
)
"""Names of operations that multiply and have no formula in torch's counter of FLOPs."""

_ATTENTION: Final = "_scaled_dot_product_"
"""What torch's own implementations of attention begin with, one for each device."""

_COMPOSED: Final = frozenset({"linear", "matmul", "einsum", "conv1d", "conv2d", "conv3d"})
"""Operations made of products, which come whole where torch records no gradients."""


@dataclass(frozen=True, kw_only=True)
class Census:
    """How many products a call computed in each type; `others` are all types it computed in.

    `inputs` are the tensors that it worked on without having computed them, one of each storage.
    """

    products: Mapping[str, int]
    others: frozenset[str]
    inputs: tuple[torch.Tensor, ...] = ()

    def bears_out(self, compute_dtype: str) -> bool:
        """Whether anything that was seen computed in it.

        Where there are products they decide, else every operation on floating numbers: a softmax
        multiplies no matrices. A call in which torch did nothing bears nothing out.
        """
        stored = "fp32" if compute_dtype == "tf32" else compute_dtype
        return stored in (self.products or self.others)


def take_census(step: Callable[[], object]) -> Census | None:
    """What one call of `step` computes in, and with; compiled parts of it run as they were written.

    None where it fails, as it has nothing left to read, say.
    """
    watch = _CensusWatch()
    with suppress(Exception), _uncompiled(), watch:
        step()
        return Census(
            products=dict(watch.products),
            others=frozenset(watch.others),
            inputs=tuple(watch.inputs.values()),
        )
    return None


class _CensusWatch(OperationWatch):
    """Counts products by type, and notes the types and the tensors of everything else."""

    def __init__(self) -> None:
        super().__init__()
        self.products: Counter[str] = Counter()
        self.others: set[str] = set()
        self.inputs: dict[int, torch.Tensor] = {}
        self._computed: set[int] = set()

    def run(
        self, operation: Operation, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> object:
        name = operation.overloadpacket.__name__
        if name in _COMPOSED:
            with self:
                result = operation.decompose(*args, **kwargs)
            if result is not NotImplemented:
                return result
        if _multiplies(operation.overloadpacket) or name in _COMPOSED:
            self.products.update([next(_dtypes(args), "none")])
        for tensor in _tensors((args, kwargs)):
            if (place := _place(tensor)) not in self._computed:
                self.inputs.setdefault(place, tensor)
        result = super().run(operation, args, kwargs)
        self._computed.update(set(map(_place, _tensors(result))) - self.inputs.keys())
        if not operation.is_view:
            self.others.update(_dtypes((args, result)))
        return result


def _multiplies(op: torch._ops.OpOverloadPacket) -> bool:
    name = op.__name__
    return op in flop_registry or name in _MORE_PRODUCTS or name.startswith(_ATTENTION)


def _dtypes(values: object) -> Iterator[str]:
    """The types of the floating tensors among the `values`, in their order."""
    return (_NAMES[tensor.dtype] for tensor in _tensors(values) if tensor.dtype in _NAMES)


def _place(tensor: torch.Tensor) -> int:
    """Where its storage is, or 0."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError, ValueError):  # sparse, fake, wrapped: it has none
        return 0


def _tensors(values: object) -> Iterator[torch.Tensor]:
    return (leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor))


def _uncompiled() -> AbstractContextManager[object]:
    """Where compiled code steps aside: it is one operation to whoever watches.

    What has not been imported has compiled nothing, and takes a second to be imported.
    """
    if "torch._dynamo" not in sys.modules:
        return nullcontext()
    stance: AbstractContextManager[object] = torch.compiler.set_stance("force_eager")
    return stance
