"""All experts of a rank in two grouped matrix products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch
from torch._subclasses import FakeTensor
from torch.nn import functional

from gpubench_plugin.workloads.moe.dispatchers.base import compute_dtype
from gpubench_plugin.workloads.moe.experts.base import StackedExperts, gated, one_after_another

if TYPE_CHECKING:
    from torch import Tensor

    from gpubench_plugin.config import MoeSection

_DTYPES: Final = {
    "fp32": torch.float32,
    "tf32": torch.float32,
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
}

_grouped_mm = getattr(functional, "grouped_mm", None) or getattr(torch, "_grouped_mm", None)


class Grouped(StackedExperts):
    """``torch.nn.functional.grouped_mm``: where groups end is told by a tensor on the device.

    Nothing waits for the device, and no shape depends on how many rows an expert has. Autocast
    knows nothing of this product, so the operands are cast here.
    """

    @classmethod
    def unsupported(cls, section: MoeSection, device: torch.device, dtype: str) -> str | None:
        """What torch says of a product of one row in that type on that device, if it refuses."""
        if _grouped_mm is None:
            return f"torch {torch.__version__} has no grouped_mm"
        hidden = section.hidden // section.tensor_parallel
        kind = _DTYPES[dtype]
        ends = torch.ones(1, dtype=torch.int32, device=device)
        try:
            for inputs, outputs in ((section.width, 2 * hidden), (hidden, section.width)):
                row = torch.ones(1, inputs, dtype=kind, device=device)
                matrix = torch.ones(1, inputs, outputs, dtype=kind, device=device)
                _grouped_mm(row, matrix, offs=ends)
        except (RuntimeError, TypeError, ValueError) as error:  # NotImplementedError is one
            said = str(error).partition("\n")[0]
            return f"torch {torch.__version__} has no grouped_mm for {dtype} here: {said}"
        return None

    def forward(self, rows: Tensor, counts: Tensor) -> Tensor:
        """The outputs of all experts, in their order."""
        assert _grouped_mm is not None
        dtype = compute_dtype(rows)
        without_data = isinstance(rows, FakeTensor) or torch.compiler.is_compiling()
        if without_data and dtype is not torch.bfloat16:
            # Torch knows the shapes of this product in bf16 only.
            return one_after_another(rows, counts, self.w_in, self.w_out)
        ends = counts.cumsum(0).to(torch.int32)
        projected = _grouped_mm(rows.to(dtype), self.w_in.to(dtype), offs=ends)
        output: Tensor = _grouped_mm(gated(projected), self.w_out.to(dtype), offs=ends)
        return output
