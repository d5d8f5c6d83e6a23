"""Ends of a session with an exit code of its own, and a line that tells why.

With pytest-xdist concurrent benchmarks would disturb each other. A worker that has collected some,
or refuses one of them, tells the controller and offers no test at all; the controller, which
collects nothing itself, then ends the session as a usage error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from gpubench_plugin.core.format import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpubench_plugin.config.case import Case
    from gpubench_plugin.core.records import Measurement
    from gpubench_plugin.session.recording import SessionRecorder


class Ending:
    """Ends a session with the exit code `code`, if there is a `message`."""

    def __init__(self, message: str, code: pytest.ExitCode):
        self.message = message
        self._code = code

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Set the exit code, unless the session has failed already."""
        if self.message and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = self._code

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


class UsageErrors(Ending):
    """Ends a session with code 4 whose benchmarks lack nothing but packages or right keys.

    That is one in which every benchmark lacks a package, or all failures are of the configuration.
    Benchmarks that this run leaves out by itself, for their number of ranks or their profile, do
    not count. A failed test or gate, an ordinary test beside missing packages, and a benchmark
    unsupported for another reason leave the exit code as it is.
    """

    def __init__(
        self,
        recorder: SessionRecorder,
        cases: Mapping[str, Case],
        *,
        started_world_size: int | None,
    ):
        super().__init__("", pytest.ExitCode.USAGE_ERROR)
        self._recorder = recorder
        self._cases = cases
        self._world_size = started_world_size
        self._misconfigured_reports = 0
        self._missing: dict[str, Mapping[str, str]] = {}

    @pytest.hookimpl(tryfirst=True)  # before the recorder drops what it has read
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count failures of the configuration, and keep the package that a benchmark lacks."""
        from gpubench_plugin.results import report_payload

        payload = report_payload.read(report)
        self._misconfigured_reports += report.failed and payload.get("outcome") == "misconfigured"
        if package := payload.get("missing_package"):
            self._missing[report.nodeid] = package

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Exit with code 4, once all outcomes are final."""
        measurements = self._recorder.measurements
        is_measured = not measuring_disabled_option(session.config)
        if session.exitstatus == pytest.ExitCode.OK and is_measured:
            self.message = self._missing_packages(session, measurements)
        elif session.exitstatus == pytest.ExitCode.TESTS_FAILED and not self._recorder.has_failed:
            self.message = self._misconfigured(session, measurements)
        if self.message:
            session.exitstatus = self._code

    def _missing_packages(
        self, session: pytest.Session, measurements: Mapping[str, Measurement]
    ) -> str:
        packages = []
        for measurement in measurements.values():
            if measurement.outcome == "unsupported" and measurement.id in self._missing:
                packages.append(self._missing[measurement.id])
            elif not self._is_left_out(measurement):
                return ""
        if not packages or any(item.nodeid not in self._cases for item in session.items):
            return ""
        names = " and ".join(sorted({package["name"] for package in packages}))
        commands = "; ".join(dict.fromkeys(package["install"] for package in packages))
        return f"ERROR: nothing was measured, for lack of {names}: {commands}"

    def _is_left_out(self, measurement: Measurement) -> bool:
        case = self._cases.get(measurement.id)
        if case is None or measurement.outcome != "skipped":
            return False
        return case.skip_reason(self._world_size) is not None

    def _misconfigured(
        self, session: pytest.Session, measurements: Mapping[str, Measurement]
    ) -> str:
        number = [m.outcome for m in measurements.values()].count("misconfigured")
        if not number or session.testsfailed != self._misconfigured_reports:
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
