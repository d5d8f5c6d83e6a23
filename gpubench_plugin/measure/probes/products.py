"""The types in which a step multiplies, seen in one untimed call: what bears a precision out."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry

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
    """How many products a call computed in each type; `others` are all types it computed in."""

    products: Mapping[str, int]
    others: frozenset[str]

    def bears_out(self, compute_dtype: str) -> bool:
        """Whether anything that was seen computed in it.

        Where there are products they decide, else every operation on floating numbers: a softmax
        multiplies no matrices. A call in which torch did nothing bears nothing out.
        """
        stored = "fp32" if compute_dtype == "tf32" else compute_dtype
        seen = self.products or self.others
        return stored in seen


def census(step: Callable[[], object]) -> Census | None:
    """What one call of `step` computes in; compiled parts of it run as they were written.

    None where it fails, as it has nothing left to read, say.
    """
    seen = _Seen()
    with suppress(Exception), _uncompiled(), seen:
        step()
        return Census(products=dict(seen.products), others=frozenset(seen.others))
    return None


class _Seen(TorchDispatchMode):
    """Counts products by type, and notes the types of everything else."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # torch does not declare it
        self.products: Counter[str] = Counter()
        self.others: set[str] = set()

    def __torch_dispatch__(
        self,
        func: torch._ops.OpOverload[..., Any],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        given = dict(kwargs or {})
        name = func.overloadpacket.__name__
        if name in _COMPOSED:
            with self:
                result = func.decompose(*args, **given)
            if result is not NotImplemented:
                return result
        if _multiplies(func.overloadpacket) or name in _COMPOSED:
            self.products.update([next(_dtypes(args), "none")])
        result = func(*args, **given)
        if not func.is_view:
            self.others.update(_dtypes((args, result)))
        return result


def _multiplies(op: torch._ops.OpOverloadPacket) -> bool:
    name = op.__name__
    return op in flop_registry or name in _MORE_PRODUCTS or name.startswith(_ATTENTION)


def _dtypes(values: object) -> Iterator[str]:
    """The types of the floating tensors among the `values`, in their order."""
    for leaf in tree_leaves(values):
        if isinstance(leaf, torch.Tensor) and leaf.dtype in _NAMES:
            yield _NAMES[leaf.dtype]


def _uncompiled() -> AbstractContextManager[object]:
    """Where compiled code steps aside: it is one operation to whoever watches.

    What has not been imported has compiled nothing, and takes a second to be imported.
    """
    if "torch._dynamo" not in sys.modules:
        return nullcontext()
    stance: AbstractContextManager[object] = torch.compiler.set_stance("force_eager")
    return stance
