"""The limit that lets an allocation fail where Linux would promise it."""

from __future__ import annotations

import resource
import sys

import pytest
import torch

from gpubench_plugin.environment.device_errors import is_out_of_memory
from gpubench_plugin.measure.process_state import host_memory_limited

GIB = 2**30

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="other systems ignore the limit")


def test_an_allocation_beyond_the_free_memory_fails_as_out_of_memory() -> None:
    """The error of torch is raised for what exceeds nine tenths, not for what is within."""
    with host_memory_limited(2 * GIB):
        torch.empty(GIB, dtype=torch.uint8)
        with pytest.raises(RuntimeError) as error:
            torch.empty(2 * GIB, dtype=torch.uint8)
    assert is_out_of_memory(error.value)


@pytest.mark.parametrize("free_bytes", [GIB, None])
def test_the_limit_is_put_back(free_bytes: int | None) -> None:
    """Where nothing is known of the memory, none is set."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    with host_memory_limited(free_bytes):
        assert (resource.getrlimit(resource.RLIMIT_AS) == before) == (free_bytes is None)
    assert resource.getrlimit(resource.RLIMIT_AS) == before


def test_a_lower_limit_stays() -> None:
    """A limit that the user has set is not raised."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    low = 64 * GIB if before[0] == resource.RLIM_INFINITY else before[0]
    resource.setrlimit(resource.RLIMIT_AS, (low, before[1]))
    try:
        with host_memory_limited(1000 * GIB):
            assert resource.getrlimit(resource.RLIMIT_AS)[0] == low
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
