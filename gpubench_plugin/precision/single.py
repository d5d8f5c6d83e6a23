"""fp32 storage: products in IEEE single precision, or in TensorFloat-32 on tensor cores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal

from gpubench_plugin.precision.base import Precision

if TYPE_CHECKING:
    import torch


class FP32(Precision):
    """IEEE single precision everywhere, without TF32 or bf16 inside operations."""

    name = "fp32"
    compute_dtype = "fp32"
    aliases = ("float32", "float", "single", "full", "f32")

    def switches(self) -> AbstractContextManager[None]:
        """Disable TF32 and bf16 in matrix products, convolutions and recurrent layers."""
        return fp32_computed_in("ieee")


class TF32(Precision):
    """fp32 tensors; products and convolutions on TF32 tensor cores, with 10 bits of mantissa.

    Source: NVIDIA A100 Tensor Core GPU Architecture, whitepaper, 2020.
    """

    name = "tf32"
    where = "cuda from Ampere on"
    compute_dtype = "tf32"
    aliases = ("tensorfloat32", "tensorfloat-32", "tensorfloat", "tf")

    def unsupported(self, device: torch.device) -> str | None:
        """Refuse devices without TF32: it needs CUDA from Ampere on (8.0) or certain AMD GPUs."""
        import torch

        if device.type != "cuda":
            return f"TF32 requires a CUDA device, not {device.type}"
        with torch.cuda.device(device):
            supported = torch.cuda.is_tf32_supported()
        return None if supported else f"{torch.cuda.get_device_name(device)} does not support TF32"

    def switches(self) -> AbstractContextManager[None]:
        """Enable TF32 in matrix products, convolutions and recurrent layers."""
        return fp32_computed_in("tf32")


_OPERATIONS: Final = (
    *("cuda.matmul", "cudnn.conv", "cudnn.rnn"),
    *("mkldnn.matmul", "mkldnn.conv", "mkldnn.rnn"),
)


def operations() -> dict[str, Any]:
    """Operations with an ``fp32_precision``, ``none`` where it follows the general setting."""
    import torch

    return {name: attrgetter(name)(torch.backends) for name in _OPERATIONS}


@contextmanager
def fp32_computed_in(precision: Literal["ieee", "tf32"]) -> Iterator[None]:
    """Compute fp32 in `precision` everywhere, restoring all switches of torch afterwards.

    There are switches from before torch 2.9 (``allow_tf32``, ``set_float32_matmul_precision``) and
    ``fp32_precision`` per operation; torch refuses to read the old ones while they disagree. The
    compiler reads the old ones, so that with the new ones alone tf32 fails under ``max-autotune``
    (https://github.com/pytorch/pytorch/issues/166387). Hence both are written, the old ones first
    because they overwrite some of the new.

    Source: https://docs.pytorch.org/docs/stable/notes/numerical_accuracy.html and
    https://docs.pytorch.org/docs/stable/notes/cuda.html#tensorfloat-32-tf32-on-ampere-and-later-devices
    """
    before = _read_switches()
    tf32 = precision == "tf32"
    _write_switches("high" if tf32 else "highest", tf32, dict.fromkeys(operations(), precision))
    try:
        yield
    finally:
        _write_switches(*before)


def _read_switches() -> tuple[str | None, bool | None, dict[str, str]]:
    """State of all switches: of matrix products and cuDNN, None if unreadable, and by operation."""
    import torch

    matmul, cudnn = None, None
    # An unreadable old switch disagrees with a new one, which takes precedence.
    with suppress(RuntimeError):
        matmul = torch.get_float32_matmul_precision()
    with suppress(RuntimeError):
        cudnn = torch.backends.cudnn.allow_tf32
    return matmul, cudnn, {name: one.fp32_precision for name, one in operations().items()}


def _write_switches(
    matmul: str | None, cudnn: bool | None, by_operation: Mapping[str, str]
) -> None:
    import torch

    if matmul is not None:
        torch.set_float32_matmul_precision(matmul)
    if cudnn is not None:
        torch.backends.cudnn.allow_tf32 = cudnn
    for name, operation in operations().items():
        # Reading returns the effective precision. If the general setting gives the same, the
        # operation keeps following it, as by default.
        operation.fp32_precision = "none"
        if operation.fp32_precision != by_operation[name]:
            operation.fp32_precision = by_operation[name]
