"""All experts of a rank in two grouped matrix products, torch's or Transformer Engine's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch
from torch._subclasses import FakeTensor
from torch.nn import functional

from gpubench_plugin.core.errors import Unsupported
from gpubench_plugin.environment.device_errors import is_device_failure
from gpubench_plugin.workloads.moe.dispatchers.base import compute_dtype
from gpubench_plugin.workloads.moe.experts.base import (
    Experts,
    StackedExperts,
    host_counts,
    run_sequentially,
    swiglu,
)

if TYPE_CHECKING:
    from torch import Tensor, nn

    from gpubench_plugin.config.sections import MoeSection

_DTYPES: Final = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}

_GROUPED_KERNEL_CAPABILITIES: Final = (9, 10)

_grouped_mm = getattr(functional, "grouped_mm", None) or getattr(torch, "_grouped_mm", None)


class Grouped(StackedExperts):
    """``torch.nn.functional.grouped_mm`` with group ends in a device tensor.

    One kernel that waits for nothing is torch's only in bf16 on some devices; see
    :meth:`wait_reason`. Autocast does not cover the product, so the operands are cast here.
    """

    @classmethod
    def unsupported(cls, section: MoeSection, device: torch.device, dtype: str) -> str | None:
        """Error that torch raises for a one-row product in that dtype on that device, or None."""
        if _grouped_mm is None:
            return f"torch {torch.__version__} does not provide grouped_mm"
        part_hidden = section.hidden // section.tensor_parallel
        kind = _DTYPES[dtype]
        ends = torch.ones(1, dtype=torch.int32, device=device)
        try:
            for inputs, outputs in ((section.width, 2 * part_hidden), (part_hidden, section.width)):
                row = torch.ones(1, inputs, dtype=kind, device=device)
                matrix = torch.ones(1, inputs, outputs, dtype=kind, device=device)
                _grouped_mm(row, matrix, offs=ends)
        except (RuntimeError, TypeError, ValueError) as error:  # NotImplementedError is one
            if is_device_failure(error):
                raise
            reason = str(error).partition("\n")[0]
            return (
                f"torch {torch.__version__} does not support grouped_mm for {dtype} here: {reason}"
            )
        return None

    @classmethod
    def wait_reason(cls, device: torch.device, dtype: str) -> str | None:
        """Why the host waits for the group ends in each product in `dtype`; None if it does not.

        torch has a grouped kernel on CUDA for bf16 of devices of capability 9 and 10. For all else
        it copies the ends to the host and loops over the groups.

        Source: torch 2.11, ``_grouped_mm_fallback`` in ATen/native/GroupedMMUtils.h and its use in
        ATen/native/cuda/GroupedBlas.cpp.
        """
        if device.type != "cuda":
            return None
        if dtype != "bf16":
            return f"torch has no grouped kernel for {dtype}, loops over experts and waits for each"
        major, minor = torch.cuda.get_device_capability(device)
        if major in _GROUPED_KERNEL_CAPABILITIES:
            return None
        return (
            f"torch has no grouped kernel for compute capability {major}.{minor}, loops over "
            "experts and waits for each"
        )

    def forward(self, rows: Tensor, counts: Tensor) -> Tensor:
        """Outputs of all experts in order."""
        assert _grouped_mm is not None
        dtype = compute_dtype(rows)
        without_data = isinstance(rows, FakeTensor) or torch.compiler.is_compiling()
        if without_data and dtype is not torch.bfloat16:
            # torch infers the shape of this product only in bf16.
            return run_sequentially(rows, counts, self.w_in, self.w_out)
        ends = counts.cumsum(0).to(torch.int32)
        projected = _grouped_mm(rows.to(dtype), self.w_in.to(dtype), offs=ends)
        output: Tensor = _grouped_mm(swiglu(projected), self.w_out.to(dtype), offs=ends)
        return output


class TEGrouped(Experts):
    """Two ``GroupedLinear`` layers, which need group sizes on the host.

    Source: https://docs.nvidia.com/deeplearning/transformer-engine/user-guide/api/pytorch.html

    Raises:
        Unsupported: Transformer Engine is not installed.
    """

    @classmethod
    def unsupported(cls, section: MoeSection, device: torch.device, dtype: str) -> str | None:
        """Refuse without Transformer Engine, and on devices other than CUDA."""
        try:
            _grouped_linear()
        except Unsupported as reason:
            return str(reason)
        return (
            None if device.type == "cuda" else f"Transformer Engine does not support {device.type}"
        )

    def __init__(self, w_in: Tensor, w_out: Tensor):
        super().__init__()
        self._linear_in, self._linear_out = (_layer(weights) for weights in (w_in, w_out))

    def forward(self, rows: Tensor, counts: Tensor) -> Tensor:
        """Outputs of all experts in order."""
        lengths = host_counts(counts, len(rows))
        output: Tensor = self._linear_out(swiglu(self._linear_in(rows, lengths)), lengths)
        return output

    def gradients(self) -> tuple[Tensor, Tensor]:
        """Gradients of the layers' weights, which are stored transposed."""
        grad_in, grad_out = (
            torch.stack([p.grad.t() for p in layer.parameters() if p.grad is not None])
            for layer in (self._linear_in, self._linear_out)
        )
        return grad_in, grad_out


def _layer(weights: Tensor) -> nn.Module:
    count, inputs, outputs = weights.shape
    layer: nn.Module = _grouped_linear()(
        count, inputs, outputs, bias=False, device=weights.device, params_dtype=weights.dtype
    )
    with torch.no_grad():
        for number, weight in enumerate(weights.unbind()):
            getattr(layer, f"weight{number}").copy_(weight.t())
    return layer


def _grouped_linear() -> Any:
    try:
        from transformer_engine.pytorch import GroupedLinear
    except (ImportError, OSError) as error:  # a library of CUDA's may be missing
        raise Unsupported(
            f"Transformer Engine cannot be imported ({error}): "
            "pip install --no-build-isolation 'transformer-engine[pytorch]' on a machine with CUDA"
        ) from error
    return GroupedLinear
