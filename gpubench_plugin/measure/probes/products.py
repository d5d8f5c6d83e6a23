"""Census of one untimed call: dtypes of matrix products, and input tensors."""

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

from gpubench_plugin.measure.probes.flops import FORMULAS, Operation, OperationWatch

_NAMES: Final[Mapping[torch.dtype, str]] = {
    torch.float64: "fp64",
    torch.float32: "fp32",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.float8_e4m3fn: "fp8",
    torch.float8_e5m2: "fp8",
}
"""Names as in a precision's ``compute_dtype``; tf32 is stored as fp32."""

_UNCOUNTED: Final = frozenset({"dot", "mv", "addmv", "_linear_pointwise"})
"""Operations that multiply, but whose FLOPs are not counted."""

_ATTENTION: Final = "_scaled_dot_product_"
"""Prefix of torch's implementations of attention, one for each device."""

_COMPOSED: Final = frozenset({"linear", "matmul", "einsum", "conv1d", "conv2d", "conv3d"})
"""Composite operations of products, which are not decomposed if torch records no gradients."""


@dataclass(frozen=True, kw_only=True)
class DtypeCensus:
    """Matrix products by dtype, all floating-point dtypes, and input tensors of a call.

    `inputs` are the tensors that it used without having computed them, one per storage.
    """

    products: Mapping[str, int]
    dtypes: frozenset[str]
    inputs: tuple[torch.Tensor, ...] = ()

    def confirms(self, compute_dtype: str) -> bool:
        """Whether any product was computed in that dtype, or without products any operation."""
        storage_dtype = "fp32" if compute_dtype == "tf32" else compute_dtype
        return storage_dtype in (self.products or self.dtypes)


def take_census(step: Callable[[], object]) -> DtypeCensus | None:
    """Census of one call of `step`, with compiled parts run eagerly; None if the call fails."""
    with suppress(Exception):
        return census_of(step)
    return None


def census_of(step: Callable[[], object]) -> DtypeCensus:
    """Census of one call of `step` as by :func:`take_census`; its errors are raised."""
    watch = _CensusWatch()
    with _uncompiled(), watch:
        step()
    return DtypeCensus(
        products=dict(watch.products),
        dtypes=frozenset(watch.dtypes),
        inputs=tuple(watch.inputs.values()),
    )


class _CensusWatch(OperationWatch):
    """Counts products by dtype and records other dtypes and tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.products: Counter[str] = Counter()
        self.dtypes: set[str] = set()
        self.inputs: dict[int, torch.Tensor] = {}
        self._computed_storages: set[int] = set()

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
            if (address := _storage_address(tensor)) not in self._computed_storages:
                self.inputs.setdefault(address, tensor)
        result = super().run(operation, args, kwargs)
        self._computed_storages.update(
            set(map(_storage_address, _tensors(result))) - self.inputs.keys()
        )
        if not operation.is_view:
            self.dtypes.update(_dtypes((args, result)))
        return result


def _multiplies(op: torch._ops.OpOverloadPacket) -> bool:
    name = op.__name__
    has_formula = op in FORMULAS or op in flop_registry
    return has_formula or name in _UNCOUNTED or name.startswith(_ATTENTION)


def _dtypes(values: object) -> Iterator[str]:
    """Dtypes of the floating-point tensors among `values`, in order."""
    return (_NAMES[tensor.dtype] for tensor in _tensors(values) if tensor.dtype in _NAMES)


def _storage_address(tensor: torch.Tensor) -> int:
    """Address of the tensor's storage, or 0."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError, ValueError):  # sparse, fake or wrapped
        return 0


def _tensors(values: object) -> Iterator[torch.Tensor]:
    return (leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor))


def _uncompiled() -> AbstractContextManager[object]:
    """Context that disables compiled code, which would appear as one operation."""
    # Without the module, whose import takes a second, nothing is compiled.
    if "torch._dynamo" not in sys.modules:
        return nullcontext()
    stance: AbstractContextManager[object] = torch.compiler.set_stance("force_eager")
    return stance
