"""Roles of a process that runs benchmarks: reports on each, a timeout, and garbage collection."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from gpubench_plugin.environment import Arrivals
from gpubench_plugin.errors import UsageProblem
from gpubench_plugin.launchers import report_payload, reports, stacks
from gpubench_plugin.launchers.context import state_of
from gpubench_plugin.launchers.deadlines import Deadline, Patience
from gpubench_plugin.launchers.exit import end_session
from gpubench_plugin.launchers.outcome import Ending, judge
from gpubench_plugin.launchers.report_payload import Notes
from gpubench_plugin.launchers.watchdog import Watchdog
from gpubench_plugin.results import forget_last, free, pytest_benchmark

if TYPE_CHECKING:
    from collections.abc import Generator

    from gpubench_plugin.config import Settings
    from gpubench_plugin.distributed import World


_DEVICE_FIXTURE: Final = "torch_device"


class Rank:
    """Runs benchmarks in this process, one rank of `world`, and reports on each.

    What has been collected below `rootdir` is loaded by now, and known to the run.
    """

    def __init__(self, world: World, rootdir: Path):
        self._world = world
        self._arrivals = Arrivals(rootdir)
        self._errors: list[BaseException] = []
        self._before_fixtures = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip a benchmark that does not run on this many ranks."""
        state = state_of(item)
        if state is not None and (refusal := state.case.refusal(self._world.size)):
            raise refusal
        self._before_fixtures = state is not None

    @pytest.hookimpl(tryfirst=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
    ) -> None:
        """Prepare the device of a benchmark before any fixture of its own builds something.

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
        """Attach the benchmark's notes to its report; a failed one is not saved as good."""
        report = yield
        if (state := state_of(item)) is not None:
            files = self._arrivals.look()
            events = [{"event": "code", "files": files}] if files else []
            report_payload.attach(report, call, state.notes, events)
            if report.when == "teardown":
                state.notes = Notes()  # the report has the samples
            if call.excinfo is not None and isinstance(call.excinfo.value, UsageProblem):
                report.longrepr = f"{item.nodeid}: {call.excinfo.value}"  # no traceback of ours
            keep_out_failed(item, report)
            if call.excinfo is not None and not call.excinfo.errisinstance(pytest.skip.Exception):
                self._errors.append(call.excinfo.value)
        return report

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Once nobody looks at them any more, free what failures keep from the next benchmark."""
        handled = yield
        errors, self._errors = self._errors, []
        if errors:
            free(errors)
        return handled


def keep_out_failed(item: pytest.Item, report: pytest.TestReport) -> None:
    """Keep a benchmark that did not pass out of the files of pytest-benchmark."""
    state = state_of(item)
    if not report.passed and state is not None and state.carrier is not None:
        pytest_benchmark.mark_failed(state.carrier)


class Alone:
    """Ends the session when a benchmark hangs in a process that runs them alone.

    The process cannot be rid of it otherwise, and none may hang forever. Where ranks run the
    benchmarks, only `adopted` ones run in this process.
    """

    def __init__(self, settings: Settings, *, adopted: bool = False):
        self._settings = settings
        self._adopted = adopted
        self._watchdog = Watchdog(self._end)
        self._running: tuple[pytest.Item, Deadline] | None = None

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Give a benchmark its time, and no more."""
        state = state_of(item)
        others = state is not None and self._adopted and not state.case.adopted
        if state is None or others or self._running is not None:
            return (yield)
        patience = Patience.with_case(state.case, self._settings.timeout_s)
        self._running = item, Deadline(patience, 0.0)
        try:
            with self._watchdog.guarding(patience.timeout_s):
                return (yield)
        finally:
            self._running = None

    def pytest_enter_pdb(self) -> None:
        """Whoever debugs has all the time."""
        self._watchdog.leave_alone()

    def _end(self) -> None:
        assert self._running is not None
        item, deadline = self._running
        endings = [Ending(rank=0, state="stuck", told=deadline.why, stack=stacks.here())]
        end_session(
            item.session,
            reports.merged(item, endings, judge(endings)),
            why=f"{item.name} {deadline.why}; it ran in this process, so the session ends with it. "
            "With --isolate every benchmark has processes of its own, and the session goes on",
            code=pytest.ExitCode.TESTS_FAILED,
        )


_GROWTH_BYTES: Final = 16 << 20
"""A benchmark leaves 11 KiB, so that this comes once in 1,500 of them; a model that a cache of one
replaces is larger."""


class Residents:
    """Leaves what is there before a benchmark out of garbage collections.

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
        self._ended = False
        self._shared = gc.get_freeze_count() > 0
        self._mark: list[None] | None = None
        self._held = 0

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Leave out what is there before a benchmark: nothing of a single test is alive then."""
        if state_of(item) is not None:
            self._leave_out(anew=self._ended or item.path != self._file)
            self._file, self._ended = item.path, False
        return (yield)

    def pytest_fixture_post_finalizer(self, fixturedef: pytest.FixtureDef[Any]) -> None:
        """What a fixture of several tests held has been left out, and may be garbage now."""
        self._ended = self._ended or fixturedef.scope != "function"

    def pytest_sessionfinish(self) -> None:
        """Leave the process as it was: what follows is not ours."""
        self._notice_others()
        if self._shared:
            gc.freeze()
        else:
            gc.unfreeze()

    def _leave_out(self, *, anew: bool) -> None:
        self._notice_others()
        forget_last()  # else the variables of a test that failed would be left out, too
        gc.collect()
        held = _held_bytes()
        if anew or held - self._held > _GROWTH_BYTES:
            gc.unfreeze()
            gc.collect()
            held = self._held = _held_bytes()
        self._held = min(self._held, held)
        gc.freeze()
        self._mark = []

    def _notice_others(self) -> None:
        """See whether anybody has frozen what was made since we did: our mark is gone then."""
        if self._mark is not None and not self._shared:
            self._shared = not any(one is self._mark for one in gc.get_objects())


def _held_bytes() -> int:
    """What this process holds: of the host's memory, of which Linux tells, and of a GPU's."""
    torch = sys.modules.get("torch")
    of_device = torch.cuda.memory_allocated() if torch and torch.cuda.is_initialized() else 0
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    except OSError:
        return int(of_device)
    return int(of_device) + pages * os.sysconf("SC_PAGE_SIZE")
