"""pytest-xdist guard: concurrent benchmarks disturb each other and are refused.

A worker that has collected benchmarks, or refuses one of them, tells the controller and offers no
test at all; the controller, which collects nothing itself, then ends the session as a usage error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest

from gpubench_plugin.session.ending import Ending, measuring_disabled_option

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
    if measuring_disabled_option(config) or not is_worker(config):
        return False
    end_session(session, MESSAGE)
    return True


def end_session(session: pytest.Session, message: str) -> None:
    """Collect nothing in this worker, and have the controller end the session with `message`."""
    session.config.workeroutput[_KEY] = message  # type: ignore[attr-defined] # pytest-xdist's
    session.items.clear()


class XdistGuard(Ending):
    """Ends the session with a usage error instead of 5 if a worker refused a benchmark."""

    def __init__(self) -> None:
        super().__init__("", pytest.ExitCode.USAGE_ERROR)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Read the worker's error."""
        worker_output: Mapping[str, str] = getattr(node, "workeroutput", {})
        if error := worker_output.get(_KEY):
            self.message = f"ERROR: {error}"

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Exit with code 4 instead of 5 (nothing collected)."""
        if self.message:
            session.exitstatus = pytest.ExitCode.USAGE_ERROR
