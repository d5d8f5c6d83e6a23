"""Gang controller: runs one test item on all ranks and merges their outcomes.

pytest's own loop goes on as always; ``-x``, ``--maxfail``, ``-v``, junit and the rest see the
reports made here and never learn that other processes ran the tests.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.environment import interpreter_options
from gpubench_plugin.errors import GangError
from gpubench_plugin.launchers import report_payload
from gpubench_plugin.launchers import reports as merging
from gpubench_plugin.launchers.context import STATE, BenchmarkState, case_on_ranks
from gpubench_plugin.launchers.deadlines import Timeouts
from gpubench_plugin.launchers.gang.gang import Gang
from gpubench_plugin.launchers.gang.launches import merge_launches
from gpubench_plugin.launchers.in_process import InProcess
from gpubench_plugin.launchers.outcome import RankOutcome, judge, ranks_text
from gpubench_plugin.launchers.output import LogForwarder
from gpubench_plugin.launchers.rank_reports import warning_from_json
from gpubench_plugin.results import pytest_benchmark

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gpubench_plugin.config import Case, FixedRounds
    from gpubench_plugin.records import Measurement


class GangController(InProcess):
    """Runs benchmarks on gangs, one gang at a time; adopted and ordinary tests in this process.

    `run` is the folder into which the ranks write, unless it is started: then that of the run.
    """

    def __init__(self, config: pytest.Config, run: Path = Path()):
        super().__init__(config)
        self._run = run
        self._gang: Gang | None = None
        self._last = ""
        self._unstartable: dict[int, GangError] = {}
        self._startable: set[int] = set()
        self._said: set[str] = set()
        self._output = (
            LogForwarder(sys.stdout.write) if config.getoption("capture") == "no" else None
        )

    def start(self, session: pytest.Session, benchmarks: Sequence[pytest.Item]) -> None:
        """As in one process, but in an order in which every gang is started once."""
        # What needs no gang runs before, so that its fixtures end first.
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
        hook = item.ihook
        if case is None:
            if nextitem is None or case_on_ranks(nextitem) is None:
                return None
            # The last test in this process: what its fixtures hold is let go before the gangs.
            hook.pytest_runtest_protocol(item=item, nextitem=None)
            return True
        hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in self._reports(item, case, nextitem):
            hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    @pytest.hookimpl(tryfirst=True, specname="pytest_sessionfinish")
    def pytest_close_gang(self) -> None:
        """Let the ranks go."""
        self.close()

    def pytest_unconfigure(self) -> None:
        """Kill remaining processes, however the session ended."""
        self._kill()
        super().pytest_unconfigure()

    def launch_again(
        self, items: Sequence[pytest.Item], rounds: Mapping[str, FixedRounds]
    ) -> Iterator[Measurement]:
        """Measure `items` in fresh processes without reporting to pytest.

        Those of one world size run one after the other in the same gang. What was not measured has
        another outcome, and says why. `rounds`, by node id, are those to be timed.
        """
        ordered = sorted(items, key=lambda item: item.stash[STATE].case.world_size)
        try:
            for item, following in pairwise([*ordered, None]):
                assert item is not None
                case = replace(item.stash[STATE].case, fixed_rounds=rounds.get(item.nodeid))
                reports, measurement = self._launches(item, case, following)
                payloads = [report_payload.with_outcome(report) for report in reports]
                yield measurement or report_payload.measurement_of(case, payloads)
        finally:
            self.close()

    def _reports(
        self, item: pytest.Item, case: Case, nextitem: pytest.Item | None
    ) -> list[pytest.TestReport]:
        if refusal := case.skip_reason():
            return merging.skip_reports(item, refusal)
        reports, merged = self._launches(item, case, nextitem)
        if merged is None:
            return reports
        call = next(report for report in reports if report.when == "call")
        report_payload.read(call)["measurement"] = merged
        carrier = pytest_benchmark.store_foreign_result(self._config, item, merged)
        if carrier is not None:
            self._context.carried[item.nodeid] = carrier
        return reports

    def _launches(
        self, item: pytest.Item, case: Case, nextitem: pytest.Item | None
    ) -> tuple[list[pytest.TestReport], Measurement | None]:
        """Reports of the last launch and the merged measurement; None if a launch failed."""
        measured: list[Measurement] = []
        reports: list[pytest.TestReport] = []
        for _ in range(self._context.settings.launches):
            reports = self._launch(item, case, nextitem)
            measurement = _measurement(reports)
            if measurement is None:  # failed, skipped, or nothing to measure: no use to go on
                return reports, None
            measured.append(measurement)
        return reports, merge_launches(measured)

    def _launch(
        self, item: pytest.Item, case: Case, nextitem: pytest.Item | None
    ) -> list[pytest.TestReport]:
        """Run the benchmark once, on the current gang or a fresh one."""
        fresh = self._context.settings.isolate or self._context.settings.launches > 1
        following = None if fresh else _next_on_gang(case, nextitem)
        patience = Timeouts.of_case(case, self._context.settings.timeout_s)
        try:
            gang = self._gang_of(case)
            endings = gang.run(item.nodeid, following, patience, case.fixed_rounds)
            self._last = item.name
        except GangError as error:
            if case.world_size not in self._startable:
                self._unstartable[case.world_size] = GangError(str(error), hang=error.hang)
            return merging.start_error_reports(item, error)
        except BaseException:
            self._kill()
            raise
        verdict = judge(endings)
        # After a failure nobody knows what the ranks still have to say to each other.
        harmed = not verdict.agree or not all(ending.is_clean for ending in endings)
        if fresh or (harmed and case.world_size > 1) or not gang.is_idle:
            self.close()
        self._warn(endings)
        self._leave_if_asked(endings)
        return merging.merge_reports(item, endings, verdict)

    def _gang_of(self, case: Case) -> Gang:
        """The running gang of the case's world size; another one is closed first."""
        if case.world_size in self._unstartable:
            raise self._unstartable[case.world_size]
        gang = self._gang
        if gang is not None and gang.size == case.world_size and (why := self._unfit(gang, case)):
            self._say(f"{why}; started a new gang of {gang.size}")
            self.close()
        elif gang is not None and gang.size != case.world_size:
            self.close()
        if self._gang is None:
            self._gang = self._started(case)
        return self._gang

    def _unfit(self, gang: Gang, case: Case) -> str:
        """Why the gang cannot run another benchmark; empty if it can."""
        if lost := gang.lost_ranks():
            return f"between two benchmarks, {lost}"
        if gang.size > 1 and not gang.is_healthy(case.configuration.distributed.failure_grace_s):
            return f"{self._last} left the process group in an unusable state"
        return ""

    def _started(self, case: Case) -> Gang:
        """Start a gang, retrying once if a rank was killed."""
        try:
            return self._start(case)
        except GangError as error:
            if not error.was_killed:
                raise
            self._say(f"{error}; started a new gang of {case.world_size}")
        return self._start(case)

    def _start(self, case: Case) -> Gang:
        invocation = self._config.invocation_params
        default = Timeouts.of_case(case, self._context.settings.timeout_s)
        gang = Gang(
            case.world_size,
            timeouts=replace(default, timeout_s=self._context.settings.timeout_s),
            config=self._config,
            command=[*_python(invocation.dir), "-m", "pytest", *map(str, invocation.args)],
            folder=invocation.dir,
            run=self._run,
            forwarder=self._output,
        )
        self._startable.add(gang.size)  # if one does not start later, the next may do
        self._compare(gang)
        return gang

    def _compare(self, gang: Gang) -> None:
        """Warn about tests that only some ranks collected."""
        counts = {rank: told["count"] for rank, told in gang.collected.items()}
        if len({told["digest"] for told in gang.collected.values()}) > 1:
            said = ", ".join(f"{count} on rank {rank}" for rank, count in counts.items())
            self._say(
                f"the ranks of the gang of {gang.size} collected different benchmarks: "
                f"{said}; those that not every rank collected are mismatched_ranks"
            )

    def _say(self, text: str) -> None:
        """Warn once, bypassing Python's filters, which may turn warnings into errors."""
        if text not in self._said:
            self._said.add(text)
            category = pytest.PytestWarning
            message = warnings.WarningMessage(category(text), category, __file__, 1)
            told = {"warning_message": message, "when": "runtest", "nodeid": "", "location": None}
            self._config.hook.pytest_warning_recorded.call_historic(kwargs=told)

    def _warn(self, endings: Sequence[RankOutcome]) -> None:
        """Forward the warnings of the ranks without duplicates."""
        ranks: dict[str, list[int]] = {}
        told = {}
        for ending in endings:
            for warning in ending.warnings:
                told[key := str(warning)] = warning
                ranks.setdefault(key, []).append(ending.rank)
        for key, warning in told.items():
            of = "all ranks" if len(ranks[key]) == len(endings) else ranks_text(ranks[key])
            self._config.hook.pytest_warning_recorded.call_historic(
                kwargs=warning_from_json(warning, of)
            )

    def _leave_if_asked(self, endings: Sequence[RankOutcome]) -> None:
        for ending in endings:
            if ending.exit is not None:
                self._kill()
                pytest.exit(f"rank {ending.rank}: {ending.exit}", returncode=ending.exit_code)

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
    """Command of an equivalent interpreter; it imports from `folder` only if this one does.

    `pytest`, the command, does not.
    """
    imports_from_it = not {"", str(folder)}.isdisjoint(sys.path)
    options = [] if imports_from_it else ["-P"]
    return [sys.executable, *interpreter_options(), *options]


def _next_on_gang(case: Case, nextitem: pytest.Item | None) -> str | None:
    """The gang's next test, whose shared fixtures need no teardown."""
    next_case = None if nextitem is None else case_on_ranks(nextitem)
    same_gang = next_case is not None and next_case.world_size == case.world_size
    return (
        next_case.id
        if same_gang and next_case is not None and next_case.skip_reason() is None
        else None
    )


def _measurement(reports: Sequence[pytest.TestReport]) -> Measurement | None:
    """The measurement, if all phases passed."""
    if not all(report.passed for report in reports):
        return None
    calls = (report_payload.read(report) for report in reports if report.when == "call")
    return next((payload["measurement"] for payload in calls if "measurement" in payload), None)
