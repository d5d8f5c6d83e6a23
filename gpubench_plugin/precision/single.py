"""fp32 storage: products in IEEE single precision, or in TensorFloat-32 on tensor cores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from gpubench_plugin.precision.base import Precision

if TYPE_CHECKING:
    import torch

_T = TypeVar("_T")


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
    *("backends.cuda.matmul", "backends.cudnn.conv", "backends.cudnn.rnn"),
    *("backends.mkldnn.matmul", "backends.mkldnn.conv", "backends.mkldnn.rnn"),
)
_MODULES: Final = ("backends", "backends.cudnn", "backends.mkldnn", *_OPERATIONS)


def operations() -> dict[str, Any]:
    """Operations with an ``fp32_precision``, ``none`` where it follows the general setting."""
    import torch

    return {path: attrgetter(path)(torch) for path in _OPERATIONS}


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
    import torch

    switches = fp32_switches()
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    torch.backends.cudnn.allow_tf32 = precision == "tf32"
    for operation in operations().values():
        operation.fp32_precision = precision
    try:
        yield
    finally:
        for restore in switches:
            restore()


def fp32_switches() -> tuple[Callable[[], None], ...]:
    """Functions that restore the switches of fp32, in the order in which they depend on each other.

    Setting a module's ``fp32_precision`` sets that of its parts.
    """
    import torch

    modules = [attrgetter(path)(torch) for path in _MODULES]
    return (
        restorer(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
        attribute_restorer(torch.backends.cuda.matmul, "allow_tf32"),
        attribute_restorer(torch.backends.cudnn, "allow_tf32"),
        *(partial(_set_precision, module, module.fp32_precision) for module in modules),
    )


def _set_precision(module: Any, precision: str) -> None:
    # Reading returns the effective precision. If the general setting gives the same, the module
    # keeps following it, as by default.
    module.fp32_precision = "none"
    if module.fp32_precision != precision:
        module.fp32_precision = precision


def restorer(read: Callable[[], _T], write: Callable[[_T], object]) -> Callable[[], None]:
    """Function that restores the global setting as it is now, without writing if it is unchanged.

    Nor is one restored that torch refuses to tell, as older switches contradict newer ones.
    """

    def value() -> _T | None:
        with suppress(RuntimeError):
            return read()
        return None

    old_value = value()

    def restore() -> None:
        if old_value is not None and value() != old_value:
            write(old_value)

    return restore


def attribute_restorer(owner: object, name: str) -> Callable[[], None]:
    """The same of an attribute of the `owner`."""
    return restorer(partial(getattr, owner, name), partial(setattr, owner, name))
