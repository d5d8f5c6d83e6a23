"""pytest-xdist: benchmarks that run beside each other disturb each other, so they are refused.

A worker that has collected benchmarks tells the controller and offers no test at all; the
controller, which collects nothing itself, then ends the session as a usage error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest

MESSAGE: Final = (
    "-n (pytest-xdist): benchmarks that run beside each other disturb each other; run them without "
    "-n, or leave measuring off with --benchmark-skip or --benchmark-disable"
)

_KEY: Final = "gpubench"


def is_worker(config: pytest.Config) -> bool:
    """Whether this process is a worker of pytest-xdist."""
    return hasattr(config, "workerinput")


def has_workers(config: pytest.Config) -> bool:
    """Whether this process lets workers run the tests."""
    return config.getoption("dist", "no") != "no" and not is_worker(config)


def refuse(session: pytest.Session) -> bool:
    """In a worker that would measure: tell the controller, and offer it no test."""
    config = session.config
    off = config.getoption("benchmark_skip", False) or config.getoption("benchmark_disable", False)
    if off or not is_worker(config):
        return False
    config.workeroutput[_KEY] = MESSAGE  # type: ignore[attr-defined] # pytest-xdist's
    session.items.clear()
    return True


class Controller:
    """Ends the session as a usage error when a worker refused to measure."""

    def __init__(self) -> None:
        self._refusal: str | None = None

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Hear what the worker had to tell."""
        told: Mapping[str, str] = getattr(node, "workeroutput", {})
        self._refusal = told.get(_KEY, self._refusal)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Exit with 4 instead of with 5, nothing collected."""
        if self._refusal is not None:
            session.exitstatus = pytest.ExitCode.USAGE_ERROR

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say why nothing ran."""
        if self._refusal is not None:
            terminalreporter.write_line(f"ERROR: {self._refusal}", red=True)
