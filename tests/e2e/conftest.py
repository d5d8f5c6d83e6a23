"""Which tests of real ranks and processes CI leaves out."""

from __future__ import annotations

from pathlib import Path

import pytest

HERE = Path(__file__).parent


@pytest.hookimpl(tryfirst=True)  # before pytest selects by marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the exhaustive ones ``long``: with them CI took longer than twenty minutes."""
    for item in items:
        if item.path.is_relative_to(HERE) and item.get_closest_marker("exhaustive"):
            item.add_marker("long")
