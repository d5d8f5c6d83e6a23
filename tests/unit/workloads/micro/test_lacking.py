from __future__ import annotations

import pytest
import torch

from gpubench_plugin.core.errors import Unsupported
from gpubench_plugin.workloads._micro.checks import skip_if_unsupported


@pytest.mark.parametrize("kind", [RuntimeError, NotImplementedError, TypeError, ValueError])
def test_a_refusal_is_unsupported(kind: type[Exception]) -> None:
    """With the first line of what torch says."""
    with (
        pytest.raises(Unsupported, match=r"^fused: needs compute capability 8\.9$"),
        skip_if_unsupported("fused"),
    ):
        raise kind("needs compute capability 8.9\nraised from somewhere")


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("tried to allocate 20.00 GiB"),
        torch.AcceleratorError("an illegal memory access was encountered"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("Triton Error [CUDA]: device-side assert triggered"),
    ],
)
def test_what_goes_wrong_is_not_hidden(error: Exception) -> None:
    """Neither missing memory nor a kernel that failed is skipped over."""
    with pytest.raises(type(error)) as raised, skip_if_unsupported("fused"):
        raise error
    assert raised.value is error
