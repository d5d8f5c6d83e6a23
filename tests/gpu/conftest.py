"""Every test here has the mark ``gpu``, and is skipped, with the reason, without a GPU.

So is what a session of pytest would not end in nine minutes, so that a part takes less than ten.
"""

from __future__ import annotations

import gc
from collections.abc import Generator, Iterator
from time import monotonic

import pytest
import torch

from tests.support.sessions import TookTooLongError, alarm

LONGEST_S = 540.0
LEAST_S = 30.0  # a session of the suite has hardly begun by then
BEGAN_S = monotonic()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the test; its part is marked beside it."""
    item.add_marker("gpu")
    if not torch.cuda.is_available():
        item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
    elif hasattr(item.config, "workerinput"):
        item.add_marker(pytest.mark.skip(reason="measures, and other tests run beside it (-n)"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    """Cut what has too little time left, before it or within; alone it would have had more."""
    left_s = LONGEST_S - (monotonic() - BEGAN_S)
    cut = f"cut: {max(left_s, 0):.0f} s left of {LONGEST_S:.0f}; run it alone with -k '{item.name}'"
    if left_s < LEAST_S:
        pytest.skip(cut)
    try:
        with alarm(left_s):
            return (yield)
    except TookTooLongError:
        if left_s > 0.9 * LONGEST_S:
            raise
        pytest.skip(cut)


@pytest.fixture(scope="module", autouse=True)
def _memory_is_free() -> Iterator[None]:
    """Leave the sessions of other modules, processes of their own, all of the device's memory."""
    yield
    gc.collect()
    torch.cuda.empty_cache()
