"""Launcher in the process of the pytest session, which ends with a benchmark that hangs."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from time import monotonic

import pytest

from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.environment.redaction import redact
from gpubench_plugin.launchers import merged_reports
from gpubench_plugin.launchers.context import RunContext, context_of, state_of
from gpubench_plugin.launchers.deadlines import Deadline, Timeouts
from gpubench_plugin.launchers.forced_exit import force_exit
from gpubench_plugin.launchers.outcome import JointVerdict, RankOutcome
from gpubench_plugin.results import report_payload
from gpubench_plugin.system import stacks
from gpubench_plugin.system.watchdog import Watchdog


def has_debugger(config: pytest.Config) -> bool:
    """Whether a debugger is to have the terminal."""
    return bool(config.getoption("usepdb", False) or config.getoption("trace", False))


def refuse_debugger(config: pytest.Config) -> None:
    """Refuse a debugger where ranks run the tests.

    Raises:
        UsageProblem: one is asked for.
    """
    if has_debugger(config):
        raise UsageProblem(
            "--pdb: a debugger needs the terminal, which the processes of ranks do not have; "
            "debug in this process: without torchrun, with --world-size=1 and without "
            "--on, --isolate or --launches"
        )


class InProcessLauncher:
    """Runs benchmarks in the process that the user started; registered after all other plugins.

    A hang ends the session, since a thread cannot be killed; so does the loss of the CUDA context.
    """

    replaces_ranks = True
    """Whether ranks can be started again."""
    is_interrupted = False
    """Whether the session is asked to end."""

    def __init__(self, config: pytest.Config):
        self._config = config
        self._watchdog = Watchdog(self._end)
        self._running_test: tuple[pytest.Item, Deadline] | None = None
        self._logged_phases: set[str] = set()
        self._phase_began = 0.0

    @property
    def _context(self) -> RunContext:
        return context_of(self._config)

    def start(self, session: pytest.Session, benchmarks: Sequence[pytest.Item]) -> None:
        """Prepare to run `benchmarks`.

        Raises:
            UsageProblem: the ranks cannot run them together.
        """

    def is_expected(self, number: int) -> bool:
        """Whether the signal follows from what the session ends for anyway; called in handlers."""
        return False

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        """Run a benchmark with a timeout."""
        state = state_of(item)
        if state is None or self._running_test is not None or has_debugger(self._config):
            return (yield)
        timeouts = Timeouts.of_case(state.case, self._context.settings.timeout_s)
        self._running_test = item, Deadline(timeouts, 0.0)
        self._logged_phases.clear()
        self._phase_began = monotonic()
        try:
            with self._watchdog.guarding(timeouts.timeout_s):
                return (yield)
        finally:
            self._running_test = None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember what is known of the running benchmark."""
        if not report_payload.is_of_subtest(report):
            self._phase_began = monotonic()
            self._logged_phases.add(str(report.when))

    def pytest_enter_pdb(self) -> None:
        """Disable the timeout in the debugger."""
        self._watchdog.cancel()

    def _end(self) -> None:
        if self.is_interrupted:  # no outcome follows, and that has a watchdog of its own
            return
        assert self._running_test is not None
        item, deadline = self._running_test
        outcome = RankOutcome(
            rank=0,
            state="stuck",
            details=deadline.message,
            stack=stacks.dump_own(),
            duration_s=monotonic() - self._phase_began,
        )
        verdict = JointVerdict(outcome="hang", reason=deadline.message)
        force_exit(
            item.session,
            merged_reports.last_reports(item, outcome, verdict, self._logged_phases),
            message=(
                f"{redact(item.name)} hangs in this process, so the session ends. "
                "With --isolate every benchmark runs in its own processes, and the session "
                "continues"
            ),
            code=pytest.ExitCode.TESTS_FAILED,
        )
