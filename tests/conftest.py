"""What holds for all tests."""

from __future__ import annotations

import os


def pytest_configure() -> None:
    """Tests start sessions of their own: those are no workers of this one's pytest-xdist."""
    for name in [name for name in os.environ if name.startswith("PYTEST_XDIST")]:
        del os.environ[name]
