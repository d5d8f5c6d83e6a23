"""Hooks around each benchmark in the process that runs it.

They open its journal, set up its device first, keep garbage collections short, and put its record
and the kind of a failure on its report. A lost context is reported once.
"""

from __future__ import annotations

import gc
from collections.abc import Generator
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

import pytest

from gpubench_plugin.bench.subjects import PROCESS
from gpubench_plugin.bench.user_frames import own_frames_hidden
from gpubench_plugin.config.parametrization import DEVICE, FIXTURE
from gpubench_plugin.core.errors import GpubenchError, error_text
from gpubench_plugin.core.records import Measurement
from gpubench_plugin.environment.device_errors import (
    is_only_lost_context,
    lost_context,
    query_context,
)
from gpubench_plugin.environment.torch_use import imported_torch
from gpubench_plugin.launchers.context import BenchmarkState, RunContext, context_of, state_of
from gpubench_plugin.launchers.proxies import is_proxy
from gpubench_plugin.results import pytest_benchmark, report_payload
from gpubench_plugin.results.outcomes import clear_last_exception, crash_reason, release_frames
from gpubench_plugin.results.report_payload import LiveRecord

if TYPE_CHECKING:
    from gpubench_plugin.config.case import Case
    from gpubench_plugin.results.pytest_benchmark import BenchmarkFixture

_NO_RESULT: Final = "gpubench(…) returns the measurement; what the step returned is gpubench.result"


class BenchmarkHooks:
    """Registered after the collection, so after all other plugins.

    The loss of the device's context ends the session if no other process can replace this one.
    """

    def __init__(self, config: pytest.Config, *, is_replaceable: bool):
        self._config = config
        self._is_replaceable = is_replaceable
        self._gc_freezer = GcFreezer()
        self._lost_context = LostContext()
        self._errors: list[BaseException] = []
        self._first_fixture = ""
        self._failed_fixture: BenchmarkFixture | None = None

    @property
    def _context(self) -> RunContext:
        return context_of(self._config)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Open the journal to a benchmark; skip it if it does not support this world size."""
        state = state_of(item)
        if state is None or is_proxy(item):
            return
        self._first_fixture = DEVICE if state.case.uses_torch else PROCESS
        if not state.case.uses_torch:
            state.imports.begin()
        state.record = LiveRecord(benchmark=state.case.id, journal=self._context.journal)
        if skip := state.case.skip_reason(self._context.ranks.world.size):
            raise skip
        state.record.enter("build")

    @pytest.hookimpl(tryfirst=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
    ) -> None:
        """Set up the device before any other fixture of the benchmark, whatever their order.

        So the seeds hold for all, and the memory of their tensors is the benchmark's. Without
        torch there is the state of the process to be kept.
        """
        if fixturedef.scope != "function" or not {FIXTURE, DEVICE} & {*request.fixturenames}:
            return
        first, self._first_fixture = self._first_fixture, ""
        if first not in {"", fixturedef.argname}:
            request.getfixturevalue(first)

    @pytest.hookimpl(wrapper=True, tryfirst=True)  # after plugins that turn it into a failure
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Attach the benchmark's record to its report."""
        state = None if is_proxy(item) else state_of(item)
        shows_own = (
            state is None or state.case.adopted or self._config.getoption("fulltrace", False)
        )
        hidden: AbstractContextManager[None] = nullcontext()
        if call.excinfo is not None and not shows_own:
            hidden = own_frames_hidden(call.excinfo)
        with hidden:
            report = yield
        if state is not None:
            error = None if call.excinfo is None else call.excinfo.value
            if state.fixture is not None and state.record.measurement is not None:
                labels = pytest_benchmark.labels(state.fixture)  # which the test sets at any time
                state.record.measurement = replace(state.record.measurement, **labels)
                if report.when == "teardown" and not state.case.adopted:
                    labels["group"] = labels["group"] or None  # as in its own files
                    pytest_benchmark.label(state.fixture, **labels)
            if error is not None and self._lost_context.forgive_teardown(report, error):
                error = None
            report_payload.attach(report, call, state.record)
            if report.when == "teardown":
                state.record = LiveRecord()  # frees the samples, which are on the report
            crash = getattr(report.longrepr, "reprcrash", None)
            if crash is not None and isinstance(error, GpubenchError):
                # Without its module pytest's short summary has room for the reason.
                crash.message = crash.message.removeprefix(f"{GpubenchError.__module__}.")
            if error is not None:
                self._lost_context.detect(report, error, state.case)
                self._end_if_context_lost(item, state)
            # A subtest's report decides nothing, and the test's own comes after it.
            self._failed_fixture = None if report.passed else state.fixture
            if report.when == "teardown":
                self.pytest_runtest_teardown(item)
            if call.excinfo is not None and not call.excinfo.errisinstance(pytest.skip.Exception):
                self._errors.append(call.excinfo.value)
        return report

    def pytest_assertrepr_compare(self, left: object, right: object) -> list[str] | None:
        """Explain why a result that a test expects is not what ``gpubench`` returned."""
        is_mistaken = isinstance(left, Measurement) != isinstance(right, Measurement)
        return [_NO_RESULT] if is_mistaken else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        """Keep a test that failed out of pytest-benchmark's files, before its fixture ends."""
        if (state := state_of(item)) is not None:
            state.imports.end()
        if self._failed_fixture is not None:
            pytest_benchmark.mark_failed(self._failed_fixture)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Exclude existing objects from garbage collection; free those that a failure holds.

        Notes when a benchmark starts, which is never later than its timeout does.
        """
        state = state_of(item)
        if state is not None and not is_proxy(item):
            state.started = monotonic()
            self._gc_freezer.freeze(item.path)
        try:
            result = yield
        except (KeyboardInterrupt, pytest.exit.Exception):
            # Without a report, and as its fixtures end with the session, pytest-benchmark's warning
            # of an unused fixture would be an error.
            if state is not None and state.fixture is not None:
                pytest_benchmark.mark_ended(state.fixture)
            raise
        errors, self._errors = self._errors, []
        if errors:
            release_frames(errors)
        return result

    def pytest_fixture_post_finalizer(self, fixturedef: pytest.FixtureDef[Any]) -> None:
        """Collect frozen objects, too, once a fixture of several tests has ended."""
        if fixturedef.scope != "function":
            self._gc_freezer.is_full_due = True

    @pytest.hookimpl(wrapper=True, trylast=True)  # within others
    def pytest_sessionfinish(self) -> Generator[None, object, object]:
        """Unfreeze; ignore what fixtures of several tests raise for a context known as lost."""
        gc.unfreeze()
        try:
            return (yield)
        except Exception as error:
            if not self._lost_context.explains(error):
                raise
            return None

    def _end_if_context_lost(self, item: pytest.Item, state: BenchmarkState) -> None:
        """End the session after this phase of `item`, with all fixtures torn down."""
        if self._is_replaceable or not self._lost_context.reason:
            return
        first_line = self._lost_context.reason.partition("\n")[0]
        message = (
            f"{state.case.name}: {first_line}; no benchmark can run in this process any more, so "
            "the session ends"
        )
        if not state.case.adopted:  # that runs in this process in any case
            message += (
                ". With --isolate every benchmark runs in its own processes, and the session "
                "continues"
            )
        item.session.shouldfail = message


_GROWTH_BYTES: Final = 16 << 20
"""A benchmark leaves 11 KiB (docs/evidence/scale.md), so 1,500 of them cause one full collection;
most models are larger."""


class GcFreezer:
    """Excludes long-lived objects from garbage collection (``gc.freeze``).

    Several collections run around every benchmark. Without torch and the reports of all benchmarks
    so far each takes a fraction of a millisecond, however many benchmarks came before.

    Frozen objects that become cyclic garbage are freed by the next full collection: after a fixture
    that several tests shared, for each test file, after an allocation that failed
    (:func:`.outcomes.release_frames`), and once more memory is held than after the last one, since
    a cache may have dropped a model.
    """

    def __init__(self) -> None:
        self._file: Path | None = None
        self.is_full_due = False
        """Whether frozen objects, too, are collected before the next benchmark."""
        self._last_held_bytes = 0

    def freeze(self, file: Path) -> None:
        """Freeze the objects that exist before a benchmark of `file`."""
        clear_last_exception()  # else the variables of a failed test would be frozen, too
        gc.collect()
        held_bytes = _held_bytes()
        is_full = self.is_full_due or file != self._file
        if is_full or held_bytes - self._last_held_bytes > _GROWTH_BYTES:
            gc.unfreeze()
            gc.collect()
            held_bytes = self._last_held_bytes = _held_bytes()
        self._last_held_bytes = min(self._last_held_bytes, held_bytes)
        gc.freeze()
        self._file, self.is_full_due = file, False


def _held_bytes() -> int:
    """Memory held by this process on host and GPU."""
    import psutil

    torch = imported_torch()
    device_bytes = 0
    if torch and torch.cuda.is_initialized():
        with suppress(RuntimeError):  # no test is running that a lost context could fail
            device_bytes = torch.cuda.memory_allocated()
    return int(device_bytes) + int(psutil.Process().memory_info().rss)


class LostContext:
    """Whether a benchmark has lost this process's CUDA context; `reason` is empty if none has.

    After an illegal access or an assertion in a kernel every later call of the process fails in the
    same words, also in tear-downs. The first sign is reported once, as a crash. No benchmark can
    run there any more: that needs another process.
    """

    def __init__(self) -> None:
        self.reason = ""
        self._nodeid = ""

    def explains(self, error: BaseException) -> bool:
        """Whether `error` says no more than that the context, known as lost, is still lost."""
        return bool(self.reason) and is_only_lost_context(error)

    def forgive_teardown(self, report: pytest.TestReport, error: BaseException) -> bool:
        """Turn a tear-down's error into a pass that an earlier phase of the test explains."""
        is_explained = (
            report.when == "teardown" and report.nodeid == self._nodeid and self.explains(error)
        )
        if is_explained:
            report.outcome, report.longrepr = "passed", None
            vars(report).pop("wasxfail", None)  # else it would be an unexpected pass
            text = f"the tear-down raised {type(error).__name__}: {error_text(error)}"
            report.sections.append(("Lost context", text))
        return is_explained

    def detect(self, report: pytest.TestReport, error: BaseException, case: Case) -> None:
        """Mark the `report` if `error` comes of a lost context, asking the device if need be.

        A skip becomes a failure, an expected failure stays one.
        """
        lost = lost_context(error)
        if lost is None and not isinstance(error, pytest.skip.Exception):
            lost = query_context(case.device.torch_name)
        if lost is None:
            return
        reason = crash_reason(error, lost)
        self.reason, self._nodeid = reason, report.nodeid
        report_payload.mark_context_lost(report)
        if hasattr(report, "wasxfail"):
            return
        if report.skipped:
            report_payload.override(report, "crashed", reason)
        else:
            report_payload.set_outcome(report, "crashed", reason)
