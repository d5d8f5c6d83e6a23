"""Gang controller: runs one test item on all ranks and merges their outcomes.

pytest's loop runs as usual: ``-x``, ``--maxfail``, ``-v`` and junit see the merged reports, and not
that other processes ran the tests.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.core.errors import GangError
from gpubench_plugin.environment.system_facts import interpreter_options
from gpubench_plugin.launchers import merged_reports as merging
from gpubench_plugin.launchers import report_payload
from gpubench_plugin.launchers.context import STATE, BenchmarkState, case_on_ranks
from gpubench_plugin.launchers.deadlines import Timeouts
from gpubench_plugin.launchers.gang.gang import Gang
from gpubench_plugin.launchers.gang.merged_launches import merge_launches
from gpubench_plugin.launchers.in_process import InProcessLauncher
from gpubench_plugin.launchers.outcome import RankOutcome, judge, ranks_text
from gpubench_plugin.launchers.output import LogForwarder
from gpubench_plugin.launchers.report_payload import LiveRecord
from gpubench_plugin.launchers.report_transport import warning_from_json
from gpubench_plugin.results import pytest_benchmark

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpubench_plugin.config.case import Case
    from gpubench_plugin.config.rounds_file import FixedRounds
    from gpubench_plugin.core.records import Json, Measurement


class GangController(InProcessLauncher):
    """Runs benchmarks on gangs, one gang at a time; adopted and ordinary tests in this process.

    The ranks write into `run` until :meth:`start` sets the run directory.
    """

    def __init__(self, config: pytest.Config, run: Path = Path()):
        super().__init__(config)
        self._run = run
        self._gang: Gang | None = None
        self._last_test_name = ""
        self._start_errors: dict[int, GangError] = {}
        self._startable: set[int] = set()
        self._warned: set[str] = set()
        self._output = (
            LogForwarder(sys.stdout.write) if config.getoption("capture", "no") == "no" else None
        )

    def start(self, session: pytest.Session, benchmarks: Sequence[pytest.Item]) -> None:
        """Sort the tests so that every gang is started once."""
        # Tests in this process come first, so that their fixtures end before the gangs start.
        session.items.sort(key=_world_size)
        super().start(session, benchmarks)
        if run := self._context.run:
            self._run = run.path

    def _is_run_here(self, state: BenchmarkState) -> bool:
        return state.case.adopted

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> bool | None:
        """Run a benchmark on a gang of its world size; other tests run in this process."""
        case = case_on_ranks(item)
        if case is None:
            if nextitem is None or case_on_ranks(nextitem) is None:
                return None
            # The last test in this process: tear down all fixtures before the gangs start.
            item.ihook.pytest_runtest_protocol(item=item, nextitem=None)
            return True
        self._log_test(item, lambda: self._reports(item, case, nextitem))
        return True

    @pytest.hookimpl(tryfirst=True, specname="pytest_sessionfinish")
    def pytest_close_gang(self) -> None:
        """Shut down the ranks."""
        self.close()

    def pytest_unconfigure(self) -> None:
        """Kill remaining processes, however the session ended."""
        self._kill()
        super().pytest_unconfigure()

    def remeasure(
        self, items: Sequence[pytest.Item], rounds: Mapping[str, FixedRounds]
    ) -> Iterator[Measurement]:
        """Measure `items` in fresh processes without reporting to pytest.

        Those of one world size share a gang. `rounds` to time by node id. A benchmark that could
        not be measured has another outcome, with its reason.
        """
        sorted_items = sorted(items, key=lambda item: item.stash[STATE].case.world_size)
        try:
            for item, next_item in pairwise([*sorted_items, None]):
                assert item is not None
                case = replace(item.stash[STATE].case, fixed_rounds=rounds.get(item.nodeid))
                reports, measurement = self._launches(item, case, next_item, is_recorded=False)
                payloads = [report_payload.with_outcome(report) for report in reports]
                yield measurement or report_payload.measurement_of(case, payloads)
        finally:
            self.close()

    def _reports(
        self, item: pytest.Item, case: Case, nextitem: pytest.Item | None
    ) -> list[pytest.TestReport]:
        if skip := case.skip_reason():
            return merging.skip_reports(item, skip)
        reports, measurement = self._launches(item, case, nextitem)
        if measurement is None:
            return reports
        report_payload.read(_call(reports))["measurement"] = measurement
        metadata = pytest_benchmark.store_foreign_result(self._config, measurement)
        if metadata is not None:
            self._context.fixture_metadata[item.nodeid] = metadata
        return reports

    def _launches(
        self,
        item: pytest.Item,
        case: Case,
        nextitem: pytest.Item | None,
        *,
        is_recorded: bool = True,
    ) -> tuple[list[pytest.TestReport], Measurement | None]:
        """Reports of the last launch and the merged measurement; None if a launch failed."""
        measurements: list[Measurement] = []
        reports: list[pytest.TestReport] = []
        launches = self._context.settings.launches
        for number in range(1, launches + 1):
            record = LiveRecord(
                benchmark=item.nodeid,
                journal=self._context.journal if is_recorded else None,
                launch=number if launches > 1 else None,
            )
            reports = self._launch(item, case, nextitem, record)
            measurement = _measurement(reports)
            if measurement is None:  # failed, skipped, or nothing to measure
                return reports, None
            measurements.append(measurement)
        if reason := _disagreement(measurements):
            report_payload.override(_call(reports), "failed", reason)
            return reports, None
        return reports, merge_launches(measurements)

    def _launch(
        self, item: pytest.Item, case: Case, nextitem: pytest.Item | None, record: LiveRecord
    ) -> list[pytest.TestReport]:
        """Run the benchmark once, on the current gang or a fresh one, journalling by `record`."""
        needs_fresh_gang = self._context.settings.isolate or self._context.settings.launches > 1
        next_item = None if needs_fresh_gang else _next_on_gang(case, nextitem)
        timeouts = Timeouts.of_case(case, self._context.settings.timeout_s)
        try:
            gang = self._gang_for(case, record)
            outcomes = gang.run(
                item.nodeid, next_item, timeouts, case.fixed_rounds, on_event=record.log
            )
            self._last_test_name = item.name
        except GangError as error:
            if case.world_size not in self._startable:
                self._start_errors[case.world_size] = GangError(str(error), hang=error.hang)
            return merging.start_error_reports(item, error)
        except BaseException:
            self._kill()
            raise
        verdict = judge(outcomes)
        # After a failure, ranks may still have unmatched collectives.
        is_damaged = not verdict.agree or not all(outcome.is_clean for outcome in outcomes)
        if any(outcome.context_lost for outcome in outcomes):
            self._kill()  # a tear-down would wait for a device that is gone
        elif needs_fresh_gang or (is_damaged and case.world_size > 1) or not gang.is_idle:
            self.close()
        self._forward_warnings(outcomes)
        self._exit_if_requested(outcomes)
        return merging.merge_reports(item, outcomes, verdict)

    def _gang_for(self, case: Case, record: LiveRecord) -> Gang:
        """The running gang of the case's world size; another one is closed first."""
        if case.world_size in self._start_errors:
            raise self._start_errors[case.world_size]
        gang = self._gang
        if gang is not None and gang.size != case.world_size:
            self.close()
        elif gang is not None and (cause := self._unusable_reason(gang, case)):
            self._warn_once(f"{cause}; started a new gang of {gang.size}")
            self.close()
        if self._gang is None:
            record.enter("start")
            self._gang = self._started(case)
        return self._gang

    def _unusable_reason(self, gang: Gang, case: Case) -> str:
        """Reason the gang cannot run another benchmark; empty if it can."""
        if lost := gang.lost_ranks():
            return f"between two benchmarks, {lost}"
        if gang.size > 1 and not gang.is_healthy(case.configuration.distributed.failure_grace_s):
            return f"{self._last_test_name} left the process group in an unusable state"
        return ""

    def _started(self, case: Case) -> Gang:
        """Start a gang, retrying once if a rank was killed."""
        try:
            return self._start(case)
        except GangError as error:
            if not error.was_killed:
                raise
            self._warn_once(f"{error}; started a new gang of {case.world_size}")
            return self._start(case)

    def _start(self, case: Case) -> Gang:
        invocation = self._config.invocation_params
        timeout_s = self._context.settings.timeout_s
        gang = Gang(
            case.world_size,
            timeouts=replace(Timeouts.of_case(case, timeout_s), timeout_s=timeout_s),
            config=self._config,
            command=[*_python(invocation.dir), "-m", "pytest", *map(str, invocation.args)],
            folder=invocation.dir,
            run=self._run,
            forwarder=self._output,
        )
        self._startable.add(gang.size)  # a later failure to start may be transient
        return gang

    def _warn_once(self, text: str) -> None:
        """Warn once, bypassing Python's filters, which may turn warnings into errors."""
        if text not in self._warned:
            self._warned.add(text)
            category = pytest.PytestWarning
            message = warnings.WarningMessage(category(text), category, __file__, 1)
            note = {"warning_message": message, "when": "runtest", "nodeid": "", "location": None}
            self._config.hook.pytest_warning_recorded.call_historic(kwargs=note)

    def _forward_warnings(self, outcomes: Sequence[RankOutcome]) -> None:
        """Forward the warnings of the ranks without duplicates."""
        ranks_by_warning: dict[str, tuple[Json, list[int]]] = {}
        for outcome in outcomes:
            for warning in outcome.warnings:
                ranks_by_warning.setdefault(str(warning), (warning, []))[1].append(outcome.rank)
        for warning, ranks in ranks_by_warning.values():
            some = "all ranks" if len(ranks) == len(outcomes) else ranks_text(ranks, len(outcomes))
            prefix = f"[{some}] " if len(outcomes) > 1 else ""
            self._config.hook.pytest_warning_recorded.call_historic(
                kwargs=warning_from_json(warning, prefix)
            )

    def _exit_if_requested(self, outcomes: Sequence[RankOutcome]) -> None:
        for outcome in outcomes:
            if outcome.exit is not None:
                self._kill()
                prefix = f"rank {outcome.rank}: " if len(outcomes) > 1 else ""
                pytest.exit(f"{prefix}{outcome.exit}", returncode=outcome.exit_code)

    def close(self) -> None:
        """Shut down the current gang."""
        if self._gang is not None:
            self._gang.close()
            self._gang = None

    def _kill(self) -> None:
        if self._gang is not None:
            self._gang.kill()
            self._gang = None


def _world_size(item: pytest.Item) -> int:
    case = case_on_ranks(item)
    return 0 if case is None else case.world_size


def _python(folder: Path) -> list[str]:
    """Command of an equivalent interpreter, which imports from `folder` only if this one does.

    The command ``pytest`` does not, but ``python -m pytest`` would.
    """
    safe_path = ["-P"] if {"", str(folder)}.isdisjoint(sys.path) else []
    return [sys.executable, *interpreter_options(), *safe_path]


def _next_on_gang(case: Case, nextitem: pytest.Item | None) -> str | None:
    """Node id of the gang's next test, for which shared fixtures live on."""
    next_case = None if nextitem is None else case_on_ranks(nextitem)
    if next_case is None or next_case.world_size != case.world_size or next_case.skip_reason():
        return None
    return next_case.id


def _call(reports: Sequence[pytest.TestReport]) -> pytest.TestReport:
    """The report of the test itself, between its set-up and its tear-down."""
    return next(report for report in reports if report.when == "call")


def _disagreement(launches: Sequence[Measurement]) -> str:
    """Settings that differ between launches, as batch sizes do that each fitted; empty if none."""
    keys = dict.fromkeys(key for launch in launches for key in launch.settings)
    values = {key: [launch.settings.get(key) for launch in launches] for key in keys}
    texts = [
        f"{key}={', '.join(map(str, settings))}"
        for key, settings in values.items()
        if any(value != settings[0] for value in settings)
    ]
    return f"the launches differ, state a number: {'; '.join(texts)}" if texts else ""


def _measurement(reports: Sequence[pytest.TestReport]) -> Measurement | None:
    """The measurement, if all phases passed."""
    if not all(report.passed for report in reports):
        return None
    calls = (report_payload.read(report) for report in reports if report.when == "call")
    return next((payload["measurement"] for payload in calls if "measurement" in payload), None)
