"""What the errors of an accelerator are taken for."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._dynamo.exc import BackendCompilerFailed
from torch.distributed import DistBackendError

from gpubench_plugin.environment import device_errors
from gpubench_plugin.environment.device_errors import (
    failures_as_warnings,
    is_only_lost_context,
    is_out_of_memory,
    lost_context,
    lost_context_text,
    query_context,
)
from tests.support.fake_cuda import FakeHost

HINTS = (
    "Search for `cudaErrorX' in https://docs.nvidia.com/cuda/cuda-runtime-api/"
    "group__CUDART__TYPES.html for more information.\n"
    "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace "
    "below might be incorrect.\n"
    "For debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
    "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
)
NCCL = (
    "NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:94, unhandled cuda error "
    "(run with NCCL_DEBUG=INFO for details), NCCL version 2.28.9\n"
    "ncclUnhandledCudaError: Call to CUDA function failed.\nLast error:\n"
)
ASSERT = "CUDA error: device-side assert triggered"


def of_runtime(text: str) -> RuntimeError:
    """The error that torch raises for one of the CUDA runtime."""
    return torch.AcceleratorError(f"CUDA error: {text}\n{HINTS}")


ALLOCATIONS = {
    "allocator": torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0"),
    "runtime": of_runtime("out of memory"),
    "driver": RuntimeError("CUDA driver error: out of memory"),
    "cublas": RuntimeError(
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"
    ),
    "cudnn": RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    "cudnn 9, device": RuntimeError(
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"
    ),
    "cudnn 9, host": RuntimeError(
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED\nshapes: [8, 3]"
    ),
    "cufft": RuntimeError("cuFFT error: CUFFT_ALLOC_FAILED"),
    "cusolver": RuntimeError(
        "cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`. If"
    ),
    "cusparse": RuntimeError("CUDA error: cusparse: allocation failed when calling `cusparseX()`"),
    "nccl": DistBackendError(f"{NCCL}Cuda failure 2 'out of memory'"),
    "nccl before 2.27": DistBackendError(f"{NCCL}Cuda failure 'out of memory'"),
    "nccl's buffers": DistBackendError(f"{NCCL}Failed to CUDA calloc async 10485760 bytes"),
    "triton": RuntimeError("Triton Error [CUDA]: out of memory"),
    "mps": RuntimeError("MPS backend out of memory (MPS allocated: 8.00 GB)."),
    "hip": RuntimeError("HIP error: out of memory"),
    "host": MemoryError(),
    "host, torch": RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 8"),
    "host, C++": RuntimeError("std::bad_alloc"),
}


@pytest.mark.parametrize("error", ALLOCATIONS.values(), ids=ALLOCATIONS)
def test_failed_allocation_is_recognised_whoever_reports_it(error: BaseException) -> None:
    """The allocator, the runtime, the driver and each library have words of their own for it."""
    assert is_out_of_memory(error)
    assert lost_context(error) is None


OTHERS = {
    "quoted": RuntimeError("the log says: CUDA error: out of memory"),
    "mentioned": ValueError("CUDA out of memory"),
    "in a worker": RuntimeError(
        "Caught AcceleratorError in DataLoader worker process 0.\n" + ASSERT
    ),
    "shared memory of a kernel": RuntimeError(
        "out of resource: shared memory, Required: 300000, Hardware limit: 232448. Reducing block "
        "sizes or `num_stages` may help."
    ),
    "launch resources": of_runtime("too many resources requested for launch"),
    "cublas not initialised": RuntimeError(
        "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"
    ),
    "invalid argument": of_runtime("invalid argument"),
    "no kernel": of_runtime("no kernel image is available for execution on the device"),
    "capture": of_runtime("operation not permitted when stream is capturing"),
    "nccl, another rank": DistBackendError("NCCL error in: x:1, remote process exited"),
}


@pytest.mark.parametrize("error", OTHERS.values(), ids=OTHERS)
def test_other_error_is_neither(error: BaseException) -> None:
    """A text that mentions memory or a device, or an error that the next call does not repeat."""
    assert not is_out_of_memory(error)
    assert lost_context(error) is None


LOSSES = {
    "assert": of_runtime("device-side assert triggered"),
    "address": of_runtime("an illegal memory access was encountered"),
    "instruction": of_runtime("an illegal instruction was encountered"),
    "launch": of_runtime("unspecified launch failure"),
    "timeout": of_runtime("the launch timed out and was terminated"),
    "alignment": of_runtime("misaligned address"),
    "stack": of_runtime("hardware stack error"),
    "ecc": of_runtime("uncorrectable ECC error encountered"),
    "nvlink": of_runtime("uncorrectable NVLink error detected during the execution"),
    "destroyed": of_runtime("context is destroyed"),
    "driver": RuntimeError("CUDA driver error: an illegal memory access was encountered"),
    "triton": RuntimeError("Triton Error [CUDA]: device-side assert triggered"),
    "nccl": DistBackendError(f"{NCCL}Cuda failure 700 'an illegal memory access was encountered'"),
}


@pytest.mark.parametrize("error", LOSSES.values(), ids=LOSSES)
def test_sticky_error_is_a_lost_context(error: BaseException) -> None:
    """Errors after which the runtime's documentation has the process relaunched."""
    assert lost_context(error) is error
    assert not is_out_of_memory(error)


def chained(first: BaseException, second: BaseException, *, cause: bool) -> BaseException:
    """`second`, raised while `first` was handled, or with it as its cause."""
    setattr(second, "__cause__" if cause else "__context__", first)
    return second


@pytest.mark.parametrize("cause", [True, False])
def test_error_on_top_of_a_lost_context_does_not_hide_it(cause: bool) -> None:
    """The process is of no use whatever a tear-down or a library raised afterwards."""
    lost = of_runtime("misaligned address")
    error = chained(lost, AssertionError("not equal"), cause=cause)
    assert lost_context(error) is lost
    assert lost_context(BaseExceptionGroup("two", [ValueError(), error])) is lost


def test_out_of_memory_counts_where_it_is_the_stated_cause_or_each_of_a_group() -> None:
    """What fails while a failed allocation is being handled, or beside one, is another failure."""
    allocation = ALLOCATIONS["allocator"]
    stated = chained(allocation, ValueError("layer 3"), cause=True)
    assert is_out_of_memory(stated)
    assert not is_out_of_memory(chained(allocation, ValueError("layer 3"), cause=False))
    inner = BaseExceptionGroup("inner", [stated])
    assert is_out_of_memory(BaseExceptionGroup("two", [allocation, inner]))
    assert not is_out_of_memory(BaseExceptionGroup("two", [allocation, ValueError("layer 3")]))


def test_compiler_does_not_hide_the_error_it_wraps() -> None:
    """Its own error has the original in an attribute."""
    assert is_out_of_memory(BackendCompilerFailed(print, ALLOCATIONS["allocator"], None))
    assert lost_context(BackendCompilerFailed(print, LOSSES["assert"], None)) is LOSSES["assert"]


def test_group_is_only_lost_where_each_member_is() -> None:
    """One error with another cause among those of a tear-down has to be reported."""
    lost, other = LOSSES["assert"], ValueError("a file is missing")
    assert is_only_lost_context(lost)
    assert is_only_lost_context(BaseExceptionGroup("two", [lost, LOSSES["address"]]))
    assert not is_only_lost_context(BaseExceptionGroup("two", [lost, other]))
    assert not is_only_lost_context(other)


def test_text_has_the_first_line_of_the_message() -> None:
    """The hints about debugging are in the traceback."""
    text = lost_context_text(of_runtime("misaligned address"))
    assert text == "CUDA context lost: AcceleratorError: CUDA error: misaligned address"


Query = Callable[[], bool]


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes torch's CUDA device answer queries by `query`."""

    def install(query: Query, *, initialized: bool = True, capturing: bool = False) -> None:
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: initialized)
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing)
        stream = SimpleNamespace(query=query)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda _: stream)
        clock = FakeHost()
        monkeypatch.setattr(device_errors, "monotonic", lambda: clock.now() * 1e-9)
        monkeypatch.setattr(device_errors, "sleep", lambda s: clock.spend(round(s * 1e9)))

    return install


def answers(*values: bool | BaseException) -> Query:
    """A query that gives one answer after the other, the last for ever."""
    left: Iterator[Any] = iter(values)
    last: Any = None

    def query() -> bool:
        nonlocal last
        last = next(left, last)
        if isinstance(last, BaseException):
            raise last
        return bool(last)

    return query


UNKNOWN = of_runtime("unknown error")


@pytest.mark.parametrize(
    ("query", "lost"),
    [
        (answers(True), None),
        (answers(False, True), None),
        (answers(of_runtime("invalid argument"), True), None),
        (answers(False), None),
        (answers(False, False, UNKNOWN), UNKNOWN),
    ],
    ids=["idle", "soon idle", "one error, then idle", "never idle", "repeated"],
)
def test_device_is_lost_that_repeats_an_error(
    device: Callable[..., None], query: Query, lost: BaseException | None
) -> None:
    """An error of an earlier call is returned once; a kernel that waits for ever is left alone."""
    device(query)
    assert query_context("cuda:0") is lost


@pytest.mark.parametrize(
    ("name", "state"),
    [("cpu", {}), ("xpu:0", {}), ("cuda:0", {"initialized": False}), ("cuda:0", {"capturing": 1})],
)
def test_device_without_a_context_is_not_queried(
    device: Callable[..., None], name: str, state: dict[str, bool]
) -> None:
    """A query would make the context, or end the capture of a graph."""
    device(answers(LOSSES["assert"]), **state)
    assert query_context(name) is None


def test_nothing_is_asked_of_a_torch_that_was_never_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Judging an error imports nothing."""
    monkeypatch.delitem(sys.modules, "torch")
    assert query_context("cuda:0") is None
    assert not is_out_of_memory(RuntimeError("CUDA out of memory"))


def test_refusal_of_a_working_device_is_a_warning() -> None:
    """Even where warnings are errors: it must not fail the benchmark."""
    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("error")
        with failures_as_warnings("release the memory"):
            raise RuntimeError("not now")
    (warning,) = recorded
    assert str(warning.message) == "could not release the memory: RuntimeError: not now"
    assert warning.filename == __file__


def test_refusal_of_a_lost_device_is_raised() -> None:
    """It is no harm that passes."""
    with pytest.raises(torch.AcceleratorError), failures_as_warnings("release the memory"):
        raise LOSSES["assert"]
