"""pytest's own way to run one test, without logging its reports: the one adapter to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from _pytest.runner import runtestprotocol  # plugins that rerun tests have used it for a decade

if TYPE_CHECKING:
    import pytest


def run(item: pytest.Item, nextitem: pytest.Item | None) -> list[pytest.TestReport]:
    """Run `item`, and tear down what `nextitem` does not need; its reports, not yet logged."""
    return runtestprotocol(item, log=False, nextitem=nextitem)
