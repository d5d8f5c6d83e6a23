"""Benchmarks in the process of their pytest session: reports, a timeout, and garbage collection."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from gpubench_plugin.environment import LoadedFiles
from gpubench_plugin.errors import UsageProblem
from gpubench_plugin.launchers import report_payload, reports, stacks
from gpubench_plugin.launchers.context import BenchmarkState, RunContext, context_of, state_of
from gpubench_plugin.launchers.deadlines import Deadline, Timeouts
from gpubench_plugin.launchers.exit import force_exit
from gpubench_plugin.launchers.outcome import RankOutcome, judge
from gpubench_plugin.launchers.report_payload import Notes
from gpubench_plugin.launchers.signals import SignalInterrupt
from gpubench_plugin.launchers.watchdog import Watchdog
from gpubench_plugin.results import clear_last_exception, pytest_benchmark, release_frames

_DEVICE_FIXTURE: Final = "torch_device"


class RunsBenchmarks:
    """Base of the launchers: one plugin for each way to run benchmarks, one per session.

    It is registered once the benchmarks are known, after every plugin that was there before. A
    hook that a subclass implements as well has a name of its own here, so that pytest calls both.
    """

    def __init__(self, config: pytest.Config):
        self._config = config
        self._collections = GcFreezer()
        self._errors: list[BaseException] = []
        self._before_fixtures = False

    @property
    def _context(self) -> RunContext:
        return context_of(self._config)

    def start(self, session: pytest.Session, benchmarks: Sequence[pytest.Item]) -> None:
        """Get ready to run those of the `benchmarks` that a resumed run has not measured yet.

        Raises:
            UsageProblem: the ranks cannot run them together.
        """
        # What has been collected below the rootdir is loaded by now, and known to the run.
        self._arrivals = LoadedFiles(self._config.rootpath)
        resumed = self._context.resumed
        if items := [item for item in session.items if item.nodeid in resumed]:
            session.items[:] = [item for item in session.items if item.nodeid not in resumed]
            self._config.hook.pytest_deselected(items=items)

    def _is_run_here(self, state: BenchmarkState) -> bool:
        """Whether this process itself runs the benchmark."""
        return True

    @pytest.hookimpl(tryfirst=True, specname="pytest_runtestloop")
    def pytest_count_resumed(self, session: pytest.Session) -> None:
        """Avoid exit code 5 for a resumed run with nothing left to do."""
        session.testscollected = session.testscollected or len(self._context.resumed)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip a benchmark that does not support this world size."""
        state = state_of(item)
        if state is not None and (
            refusal := state.case.skip_reason(self._context.ranks.world.size)
        ):
            raise refusal
        self._before_fixtures = state is not None

    @pytest.hookimpl(tryfirst=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
    ) -> None:
        """Prepare the device before any fixture of the benchmark is built.

        Whatever their order in the test: seeds hold, and their tensors are the benchmark's.
        """
        if fixturedef.scope != "function" or _DEVICE_FIXTURE not in request.fixturenames:
            return
        if self._before_fixtures:
            self._before_fixtures = False
            if fixturedef.argname != _DEVICE_FIXTURE:
                request.getfixturevalue(_DEVICE_FIXTURE)

    @pytest.hookimpl(wrapper=True, tryfirst=True)  # another plugin may make it a failure
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Attach the benchmark's notes to its report; failed ones are not stored as results."""
        report = yield
        if (state := state_of(item)) is not None:
            files = self._arrivals.newly_loaded()
            events = [{"event": "code", "files": files}] if files else []
            report_payload.attach(report, call, state.notes, events)
            if report.when == "teardown":
                state.notes = Notes()  # the report has the samples
            if call.excinfo is not None and isinstance(call.excinfo.value, UsageProblem):
                report.longrepr = f"{item.nodeid}: {call.excinfo.value}"  # no traceback of ours
            exclude_failed(item, report)
            if call.excinfo is not None and not call.excinfo.errisinstance(pytest.skip.Exception):
                self._errors.append(call.excinfo.value)
        return report

    @pytest.hookimpl(wrapper=True, specname="pytest_runtest_protocol")
    def pytest_collect_garbage(self, item: pytest.Item) -> Generator[None, object, object]:
        """Freeze before a benchmark what is there; free after it what its failure keeps."""
        state = state_of(item)
        if state is not None and self._is_run_here(state):
            self._collections.freeze(item.path)
        handled = yield
        errors, self._errors = self._errors, []
        if errors:
            release_frames(errors)
        return handled

    def pytest_fixture_post_finalizer(self, fixturedef: pytest.FixtureDef[Any]) -> None:
        """What a fixture of several tests held is frozen, and may be garbage now."""
        if fixturedef.scope != "function":
            self._collections.look_through_all()

    @pytest.hookimpl(specname="pytest_sessionfinish")
    def pytest_unfreeze(self) -> None:
        """Restore the process's state."""
        self._collections.restore()


def exclude_failed(item: pytest.Item, report: pytest.TestReport) -> None:
    """Keep failed benchmarks out of pytest-benchmark's files."""
    state = state_of(item)
    if not report.passed and state is not None and state.carrier is not None:
        pytest_benchmark.mark_failed(state.carrier)


def has_debugger(config: pytest.Config) -> bool:
    """Whether a debugger is to have the terminal."""
    return bool(config.getoption("usepdb") or config.getoption("trace"))


class InProcess(RunsBenchmarks, SignalInterrupt):
    """Runs benchmarks in the process that the user started.

    One that hangs ends the session: the process cannot be rid of it otherwise.
    """

    def __init__(self, config: pytest.Config):
        super().__init__(config)
        self._watchdog = Watchdog(self._end)
        self._running: tuple[pytest.Item, Deadline] | None = None

    def start(self, session: pytest.Session, benchmarks: Sequence[pytest.Item]) -> None:
        """As every launcher; from now on signals end the session in order."""
        super().start(session, benchmarks)
        self.handle_signals()

    @pytest.hookimpl(wrapper=True, tryfirst=True, specname="pytest_runtest_protocol")
    def pytest_guard_benchmark(self, item: pytest.Item) -> Generator[None, object, object]:
        """Run a benchmark with a timeout."""
        state = state_of(item)
        unguarded = self._running is not None or has_debugger(self._config)
        if unguarded or state is None or not self._is_run_here(state):
            return (yield)
        patience = Timeouts.of_case(state.case, self._context.settings.timeout_s)
        self._running = item, Deadline(patience, 0.0)
        try:
            with self._watchdog.guarding(patience.timeout_s):
                return (yield)
        finally:
            self._running = None

    def pytest_enter_pdb(self) -> None:
        """Disable the timeout in the debugger."""
        self._watchdog.cancel()

    def _end(self) -> None:
        assert self._running is not None
        item, deadline = self._running
        endings = [
            RankOutcome(rank=0, state="stuck", details=deadline.message, stack=stacks.dump_own())
        ]
        force_exit(
            item.session,
            reports.merge_reports(item, endings, judge(endings)),
            message=(
                f"{item.name} {deadline.message}; it ran in this process, so the session ends. "
                "With --isolate every benchmark runs in its own processes, and the session "
                "continues"
            ),
            code=pytest.ExitCode.TESTS_FAILED,
        )


_GROWTH_BYTES: Final = 16 << 20
"""A benchmark leaves 11 KiB, so that this comes once in 1,500 of them; a model that a cache of one
replaces is larger."""


class GcFreezer:
    """Excludes long-lived objects from garbage collection (``gc.freeze``).

    There are several around every benchmark: without torch and the reports of all benchmarks so far
    each takes a fraction of a millisecond, however many benchmarks came before.

    What is left out and becomes garbage in a cycle of references stays until all is looked through
    again: when a fixture that several tests shared has ended, since it may have held a model; for
    each file of tests; after an allocation that failed (:func:`.outcomes.free`); and once more
    memory is held than after the last time, since a cache may have let go of a model.

    Somebody else may freeze objects for a purpose of their own. Nobody can tell theirs from ours,
    so at the end they all stay frozen then.
    """

    def __init__(self) -> None:
        self._file: Path | None = None
        self._look_through_all = False
        self._shared = False
        self._mark: list[None] | None = None
        self._held = 0

    def freeze(self, file: Path) -> None:
        """Leave out what is there before a benchmark of `file`: nothing of a single test is."""
        self._notice_others()
        clear_last_exception()  # else the variables of a test that failed would be left out, too
        gc.collect()
        held = _held_bytes()
        anew = self._look_through_all or file != self._file
        if anew or held - self._held > _GROWTH_BYTES:
            gc.unfreeze()
            gc.collect()
            held = self._held = _held_bytes()
        self._held = min(self._held, held)
        gc.freeze()
        self._mark = []
        self._file, self._look_through_all = file, False

    def look_through_all(self) -> None:
        """Before the next benchmark, look through what is frozen as well."""
        self._look_through_all = True

    def restore(self) -> None:
        """Leave the process as it was, if it was changed."""
        if self._mark is None:
            return
        self._notice_others()
        if self._shared:
            gc.freeze()
        else:
            gc.unfreeze()

    def _notice_others(self) -> None:
        """Detect whether anyone else froze objects after us, by a marker object."""
        if self._mark is None:
            self._shared = gc.get_freeze_count() > 0
        elif not self._shared:
            self._shared = not any(one is self._mark for one in gc.get_objects())


def _held_bytes() -> int:
    """Memory held by this process: host (Linux only) and GPU."""
    torch = sys.modules.get("torch")
    of_device = torch.cuda.memory_allocated() if torch and torch.cuda.is_initialized() else 0
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except OSError:
        return int(of_device)
    return int(of_device) + pages * os.sysconf("SC_PAGE_SIZE")
