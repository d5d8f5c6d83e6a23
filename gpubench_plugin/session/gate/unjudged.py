"""Says of a gate that was asked for that it has judged nothing."""

from __future__ import annotations

import pytest


def measuring_is_off(config: pytest.Config) -> str:
    """The flag of pytest-benchmark's that lets nothing be measured, or nothing."""
    if config.getoption("benchmark_skip", False) and not config.getoption("benchmark_only", False):
        return "--benchmark-skip"
    enabled = config.getoption("benchmark_enable", False)
    return "--benchmark-disable" * (config.getoption("benchmark_disable", False) and not enabled)


class Unjudged:
    """The role of a session with ``--gate`` in which no benchmark is measured: it fails.

    Args:
        why: what to tell the user.
    """

    def __init__(self, why: str):
        self._why = why

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Who asks for a gate must not take it for passed."""
        if session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say so."""
        terminalreporter.write_line(f"gate: failed: {self._why}", red=True)
