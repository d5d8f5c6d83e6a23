from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

from tests.support.micro_suite import operations

SUITE: Any = operations("test_autograd")
_CPU = torch.device("cpu")


@pytest.fixture
def chains() -> Any:
    """Two graphs of three layers."""
    torch.manual_seed(0)
    return SUITE.LinearStacks(graphs=2, layers=3, size=4, device=_CPU)


def test_concurrent_backward_passes_give_the_gradients_of_serial_ones(chains: Any) -> None:
    """Three weights and three biases per graph, the same bits in either order."""
    chains.forward()
    chains.serial()
    serial = chains.gradients()
    chains.forward()
    with ThreadPoolExecutor(2) as threads:
        chains.concurrent(threads)
    assert len(serial) == 2 * 6
    assert all(map(torch.equal, chains.gradients(), serial))


def test_a_failure_in_a_thread_is_raised(chains: Any) -> None:
    """A second backward pass of the same graph is an error, also in a thread."""
    chains.forward()
    chains.serial()
    with ThreadPoolExecutor(2) as threads, pytest.raises(RuntimeError, match="second time"):
        chains.concurrent(threads)


def test_the_shares_of_the_kinds_of_node_add_up(chains: Any) -> None:
    """Every kind has a part of the time, all together all of it."""
    times = SUITE.NodeTimes()
    times.hook(chains.forward())
    with ThreadPoolExecutor(2) as threads:
        chains.concurrent(threads)
    assert {"AddmmBackward0", "ReluBackward0", "AccumulateGrad"} <= set(times.kinds)
    assert all(times.share(kind) > 0 for kind in times.kinds)
    assert sum(map(times.share, times.kinds)) == pytest.approx(1)


def test_counting_begins_anew_and_ends(chains: Any) -> None:
    """After a reset nothing was spent; after leaving nothing is seen any more."""
    times = SUITE.NodeTimes()
    times.hook(chains.forward())
    chains.serial()
    times.reset()
    assert [times.share(kind) for kind in times.kinds] == [0] * len(times.kinds)
    times.unhook()
    chains.forward()
    chains.serial()
    assert sum(map(times.share, times.kinds)) == 0
