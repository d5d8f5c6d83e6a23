"""Meaning of an accelerator's errors: memory ran out, or the context is lost. Imports no torch.

torch reports an error of the CUDA runtime as ``AcceleratorError``, those of the driver and of the
libraries above as a plain ``RuntimeError``, all with a text. Only the beginning of a message
counts: a text that quotes the error of another process is none of this one.

A lost context is a *sticky* error: the runtime repeats it in every later call of the process.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Final

from gpubench_plugin.core.errors import error_text, with_causes
from gpubench_plugin.environment.torch_use import imported_torch

_LOST: Final = frozenset({
    "uncorrectable ECC error encountered",  # 214
    "uncorrectable NVLink error detected during the execution",  # 220
    "Invalid access of peer GPU memory over nvlink or a hardware error",  # 226
    "an illegal memory access was encountered",  # 700
    "the launch timed out and was terminated",  # 702
    "context is destroyed",  # 709
    "device-side assert triggered",  # 710
    "hardware stack error",  # 714
    "an illegal instruction was encountered",  # 715
    "misaligned address",  # 716
    "operation not supported on global/shared address space",  # 717
    "invalid program counter",  # 718
    "unspecified launch failure",  # 719
    "tensor memory not completely freed",  # 721
    "the MPS client has been terminated by the server",  # 810
})  # fmt: skip
"""Text of cudaGetErrorString, with the number, of each error that ends the context (CUDA 13.0).

Those after which, by the runtime's documentation of cudaError_t, "the process must be terminated
and relaunched" (but 911, of devices outside of CUDA, which torch does not use), and three of which
it does not say so: 214 and 220, memory or a link that is damaged, and 709.
https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html"""

_RUNTIME: Final = re.compile(
    r"(?:(?:CUDA|HIP)(?: driver)? error|Triton Error \[(?:CUDA|HIP)\]): (?P<text>[^\n]*)"
)
"""torch's checks of the runtime and of the driver (c10/cuda/CUDAException.cpp,
ATen/cuda/Exceptions.h), and Triton's of the driver."""

_NCCL: Final = re.compile(
    r"NCCL error.*?^(?:\S+:\d+ )?(?:Cuda failure (?:\d+ )?'(?P<text>[^']*)'"
    r"|(?P<allocation>Failed to (?:CUDA )?[cm]alloc(?: async)? \d+ bytes))",
    re.DOTALL | re.MULTILINE | re.IGNORECASE,
)
"""What NCCL 2.28 logged last, which torch adds below its own text."""

_FAILED_ALLOCATION: Final = re.compile(
    r"(?:CUDA error|cuDNN error|cuDNN Frontend error|cuFFT error|cusolver error): [^\n]*?"
    r"\b(?:CUBLAS_STATUS_ALLOC_FAILED|CUFFT_ALLOC_FAILED|CUSOLVER_STATUS_ALLOC_FAILED"
    r"|CUDNN_STATUS_ALLOC_FAILED|CUDNN_STATUS_INTERNAL_ERROR_(?:HOST|DEVICE)_ALLOCATION_FAILED"
    r"|cusparse: allocation failed)"
    r"|MPS backend out of memory|std::bad_alloc$"
    r"|[^\n]*DefaultCPUAllocator: (?:can't allocate|not enough) memory"
)
"""Status of the libraries: cuBLAS, cuDNN (from version 9 on with two names), cuFFT, cuSOLVER,
cuSPARSE. ``CUBLAS_STATUS_NOT_INITIALIZED``, which cublasCreate may return when memory is short, has
other causes as well and does not count. Of a failed CPU allocation, too, torch raises a plain
RuntimeError (c10/core/CPUAllocator.cpp)."""

_QUERY_S: Final = 1.0
"""Longest wait for queued work: a kernel may wait for another rank indefinitely."""

_PAUSE_S: Final = 0.001
"""Pause between two queries."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed, on an accelerator or the host; see `failed_allocation`."""
    return failed_allocation(error) is not None


def failed_allocation(error: BaseException) -> BaseException | None:
    """The error of an allocation: `error`, or the cause that it states; else None.

    What was merely being handled when `error` was raised does not count. In a group each member
    must be one, as when the tear-downs of two fixtures fail.
    """
    if isinstance(error, BaseExceptionGroup):
        members = [*map(failed_allocation, error.exceptions)]
        return None if None in members else members[0]
    return next(filter(_is_failed_allocation, with_causes([error], stated_only=True)), None)


def lost_context(error: BaseException) -> BaseException | None:
    """The error, of `error` and all its causes, that says that the context is lost; else None."""
    return next(filter(_is_lost, with_causes([error])), None)


def is_device_failure(error: BaseException) -> bool:
    """Whether memory ran out or the context is lost: no refusal of what was asked for."""
    return is_out_of_memory(error) or lost_context(error) is not None


def is_only_lost_context(error: BaseException) -> bool:
    """Whether `error`, or each member of the group that it is, comes of a lost context."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(is_only_lost_context, error.exceptions))
    return lost_context(error) is not None


def lost_context_text(error: BaseException) -> str:
    """``CUDA context lost: AcceleratorError: CUDA error: …``, from the first line of `error`."""
    first_line = error_text(error).partition("\n")[0]
    return f"CUDA context lost: {type(error).__name__}: {first_line}"


def query_context(device: str) -> BaseException | None:
    """Query the CUDA `device`: the error of its lost context, None if it works or is not in use.

    An error counts if the device repeats it. Waits up to a second for queued work, whose error may
    be still to come, and never longer.
    """
    torch = imported_torch()
    if torch is None or not device.startswith("cuda") or not torch.cuda.is_initialized():
        return None
    deadline = monotonic() + _QUERY_S
    first_error: BaseException | None = None
    while True:
        try:
            if torch.cuda.is_current_stream_capturing():  # a query would be an error of its own
                return None
            is_idle = torch.cuda.current_stream(device).query()
        except RuntimeError as error:
            if first_error is not None:
                return first_error
            first_error = error
            continue
        if is_idle or monotonic() >= deadline:
            return None
        sleep(_PAUSE_S)


@contextmanager
def failures_as_warnings(action: str) -> Iterator[None]:
    """Turn a failure to do `action`, which the accelerator refused, into a warning.

    No filter turns it into an error.

    Raises:
        RuntimeError: the context is lost.
    """
    try:
        yield
    except RuntimeError as error:
        if lost_context(error) is not None:
            raise
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            message = f"could not {action}: {type(error).__name__}: {error_text(error)}"
            warnings.warn(message, RuntimeWarning, stacklevel=3)


def _is_failed_allocation(error: BaseException) -> bool:
    torch = imported_torch()
    if isinstance(error, MemoryError) or (
        torch is not None and isinstance(error, torch.OutOfMemoryError)
    ):
        return True
    if not isinstance(error, RuntimeError):
        return False
    text = error_text(error)
    if _runtime_text(text) == "out of memory":
        return True
    nccl = _NCCL.match(text)
    has_failed = nccl is not None and nccl["allocation"] is not None
    return has_failed or _FAILED_ALLOCATION.match(text) is not None


def _is_lost(error: BaseException) -> bool:
    return isinstance(error, RuntimeError) and _runtime_text(error_text(error)) in _LOST


def _runtime_text(text: str) -> str:
    """The runtime's own text in a message of torch, Triton or NCCL; empty where there is none."""
    if match := _RUNTIME.match(text):
        return match["text"].strip()
    match = _NCCL.match(text)
    return (match and match["text"]) or ""
