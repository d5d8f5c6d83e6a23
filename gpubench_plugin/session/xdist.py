"""pytest-xdist guard: concurrent benchmarks disturb each other and are refused.

A worker that has collected benchmarks, or refuses one of them, tells the controller and offers no
test at all; the controller, which collects nothing itself, then ends the session as a usage error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest

MESSAGE: Final = (
    "-n (pytest-xdist): concurrent benchmarks disturb each other; run without -n, or disable "
    "measuring with --benchmark-skip or --benchmark-disable"
)

_KEY: Final = "gpubench"


def is_worker(config: pytest.Config) -> bool:
    """Whether this process is a pytest-xdist worker."""
    return hasattr(config, "workerinput")


def has_workers(config: pytest.Config) -> bool:
    """Whether this process distributes tests to workers."""
    return config.getoption("dist", "no") != "no" and not is_worker(config)


def refuse(session: pytest.Session) -> bool:
    """Report an error to the controller and collect nothing, in a worker that would measure."""
    config = session.config
    is_disabled = config.getoption("benchmark_skip", False) or config.getoption(
        "benchmark_disable", False
    )
    if is_disabled or not is_worker(config):
        return False
    end_session(session, MESSAGE)
    return True


def end_session(session: pytest.Session, message: str) -> None:
    """Collect nothing in this worker, and have the controller end the session with `message`."""
    session.config.workeroutput[_KEY] = message  # type: ignore[attr-defined] # pytest-xdist's
    session.items.clear()


class XdistGuard:
    """Ends the session with a usage error if a worker refused a benchmark."""

    def __init__(self) -> None:
        self._error: str | None = None

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Read the worker's error."""
        worker_output: Mapping[str, str] = getattr(node, "workeroutput", {})
        self._error = worker_output.get(_KEY, self._error)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Exit with code 4 instead of 5 (nothing collected)."""
        if self._error is not None:
            session.exitstatus = pytest.ExitCode.USAGE_ERROR

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print why nothing ran."""
        if self._error is not None:
            terminalreporter.write_line(f"ERROR: {self._error}", red=True)
