"""IEEE single precision."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubench_plugin.precision._fp32_switches import fp32_computed_in
from gpubench_plugin.precision.base import Precision

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


class FP32(Precision):
    """Everything in IEEE single precision: neither TF32 nor bf16 inside, as torch may do."""

    name = "fp32"
    compute_dtype = "fp32"

    def switches(self) -> AbstractContextManager[None]:
        """TF32 and bf16 off in matrix products, convolutions and recurrent layers."""
        return fp32_computed_in("ieee")
