"""Every test here has the mark ``gpu``, and is skipped, with the reason, without a GPU."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the test; its part is marked beside it."""
    item.add_marker("gpu")
    if not torch.cuda.is_available():
        item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
    elif hasattr(item.config, "workerinput"):
        item.add_marker(pytest.mark.skip(reason="measures, and other tests run beside it (-n)"))


@pytest.fixture(scope="module", autouse=True)
def _memory_is_free() -> Iterator[None]:
    """Leave the sessions of other modules, processes of their own, all of the device's memory."""
    yield
    gc.collect()
    torch.cuda.empty_cache()
