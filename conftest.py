"""Site policy of this repository: what runs by default here, nothing the plugin should know."""

from __future__ import annotations

from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parent / "benchmarks"


def pytest_itemcollected(item: pytest.Item) -> None:
    """In tests a warning is an error; a warning of torch's does not make a benchmark fail."""
    if item.path.is_relative_to(BENCHMARKS):
        item.add_marker(pytest.mark.filterwarnings("default"))
