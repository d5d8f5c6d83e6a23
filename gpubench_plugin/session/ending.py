"""Ends of a session with an exit code of its own, and a line that tells why.

With pytest-xdist concurrent benchmarks would disturb each other. A worker that has collected some,
or refuses one of them, tells the controller and offers no test at all; the controller, which
collects nothing itself, then ends the session as a usage error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pytest

from gpubench_plugin.core.format import counted

if TYPE_CHECKING:
    from gpubench_plugin.session.recording import SessionRecorder


@dataclass(eq=False)
class Ending:
    """Ends a session with the exit code `code`, if there is a `message`."""

    message: str = ""
    code: pytest.ExitCode = pytest.ExitCode.USAGE_ERROR

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Set the exit code, unless the session has failed already."""
        if self.message and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = self.code

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print why the session ended so."""
        if self.message:
            terminalreporter.write_line(self.message, red=True)


def measuring_disabled_option(config: pytest.Config) -> str:
    """pytest-benchmark's option that disables measuring, or empty."""
    if config.getoption("benchmark_skip", False) and not config.getoption("benchmark_only", False):
        return "--benchmark-skip"
    enabled = config.getoption("benchmark_enable", False)
    return "--benchmark-disable" * (config.getoption("benchmark_disable", False) and not enabled)


def unjudged_gate(cause: str) -> Ending:
    """Fails a session with ``--gate`` in which nothing is judged."""
    return Ending(f"gate: failed: {cause}", pytest.ExitCode.TESTS_FAILED)


@dataclass(eq=False, kw_only=True)
class UsageErrors(Ending):
    """Ends a session with code 4 whose benchmarks lack nothing but packages or right keys.

    That is one in which every benchmark lacks a package, or all failures are of the configuration.
    Benchmarks that this run leaves out by itself, for their number of ranks or their profile, do
    not count. A failed test or gate, an ordinary test beside missing packages, and a benchmark
    unsupported for another reason leave the exit code as it is.
    """

    recorder: SessionRecorder
    started_world_size: int | None

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Exit with code 4, once all outcomes are final."""
        is_measured = not measuring_disabled_option(session.config)
        if session.exitstatus == pytest.ExitCode.OK and is_measured:
            self.message = self._missing_packages(session)
        elif session.exitstatus == pytest.ExitCode.TESTS_FAILED and not self.recorder.has_failed:
            self.message = self._misconfigured(session)
        if self.message:
            session.exitstatus = self.code

    def _missing_packages(self, session: pytest.Session) -> str:
        missing, size = self.recorder.missing_packages, self.started_world_size
        packages = []
        for node_id, measurement in self.recorder.measurements.items():
            case = self.recorder.cases.get(node_id)
            if measurement.outcome == "unsupported" and node_id in missing:
                packages.append(missing[node_id])
            elif case is None or measurement.outcome != "skipped" or not case.skip_reason(size):
                return ""
        if not packages or any(item.nodeid not in self.recorder.tests for item in session.items):
            return ""
        names = " and ".join(sorted({package["name"] for package in packages}))
        commands = "; ".join(dict.fromkeys(package["install"] for package in packages))
        return f"ERROR: nothing was measured, for lack of {names}: {commands}"

    def _misconfigured(self, session: pytest.Session) -> str:
        measurements = self.recorder.measurements
        outcomes = [measurements[i].outcome for i in self.recorder.cases if i in measurements]
        number = outcomes.count("misconfigured")
        if not number or session.testsfailed != number:
            return ""
        benchmarks = counted(number, "misconfigured benchmark")
        return f"ERROR: {benchmarks}; nothing else failed, so the exit code is 4"


_DISTURBED: Final = (
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


def refuse_in_worker(session: pytest.Session) -> bool:
    """Report an error to the controller and collect nothing, in a worker that would measure."""
    config = session.config
    if measuring_disabled_option(config) or not is_worker(config):
        return False
    end_worker(session, _DISTURBED)
    return True


def end_worker(session: pytest.Session, message: str) -> None:
    """Collect nothing in this worker, and have the controller end the session with `message`."""
    session.config.workeroutput[_KEY] = message  # type: ignore[attr-defined] # pytest-xdist's
    session.items.clear()


class XdistGuard(Ending):
    """Ends the session with a usage error instead of 5 if a worker refused a benchmark."""

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Read the worker's error."""
        if error := getattr(node, "workeroutput", {}).get(_KEY):
            self.message = f"ERROR: {error}"

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Exit with code 4 instead of 5 (nothing collected)."""
        if self.message:
            session.exitstatus = self.code
