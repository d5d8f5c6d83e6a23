"""Selection of the scaled dot product attention kernel."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Final

from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from gpubench_plugin.core.errors import Unsupported
from gpubench_plugin.workloads._micro.checks import is_failure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor
    from torch._ops import OpOverload

BACKENDS: Final = {
    "math": SDPBackend.MATH,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}
"""torch's implementations."""

_FUSED: Final = "_scaled_dot_product_"


def flops(batch: int, heads: int, tokens: int, head_size: int, *, backward: bool) -> int:
    """Two products of tokens × tokens × head_size, and four more in the backward pass.

    Flash attention's recomputation does not count, so that all implementations have the same FLOPs.
    Source: Dao et al., FlashAttention, arXiv:2205.14135.
    """
    return (6 if backward else 2) * 2 * batch * heads * tokens * tokens * head_size


def run_attention(name: str, compute: Callable[[], Tensor]) -> Tensor:
    """Run `compute` with only this attention implementation enabled.

    Raises:
        Unsupported: torch cannot use it for these inputs on this device, or used another.
    """
    kernels = _FusedKernels()
    with warnings.catch_warnings(record=True) as caught_warnings:
        warnings.simplefilter("always")
        try:
            with sdpa_kernel(BACKENDS[name]), kernels:
                result = compute()
        except RuntimeError as error:
            if is_failure(error):
                raise
            reasons = "; ".join(
                str(warning.message).split("(Triggered")[0] for warning in caught_warnings
            )
            first_line = str(error).partition("\n")[0]
            raise Unsupported(f"attention by {name}: {reasons or first_line}") from error
    used_kernels = ", ".join(sorted(kernels.names)) or "math"
    if name not in used_kernels:
        raise Unsupported(f"attention by {name}: torch used {used_kernels} instead")
    return result


class _FusedKernels(TorchDispatchMode):
    """Records the names of fused kernels; ``math`` attention has none."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # torch does not declare it
        self.names: set[str] = set()

    def __torch_dispatch__(
        self,
        func: OpOverload[..., Any],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        name = func.overloadpacket.__name__
        if name.startswith(_FUSED):
            self.names.add(name.removeprefix(_FUSED))
        return func(*args, **(kwargs or {}))
