"""Controller: orders the ranks to run a session's benchmarks and merges how they ended.

pytest's loop and protocol run as usual, around proxies of the tests: ``-x``, ``--maxfail``, ``-v``,
junit and other plugins see one test, and not that other processes ran it.
"""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from gpubench_plugin.config.parametrization import id_of
from gpubench_plugin.core.errors import GangError, UsageProblem
from gpubench_plugin.core.format import listed
from gpubench_plugin.launchers import merged_reports as merging
from gpubench_plugin.launchers.context import STATE, case_on_ranks, state_of
from gpubench_plugin.launchers.deadlines import Timeouts
from gpubench_plugin.launchers.in_process import InProcessLauncher, refuse_debugger
from gpubench_plugin.launchers.outcome import judge, judge_plain
from gpubench_plugin.launchers.output import LogForwarder
from gpubench_plugin.launchers.processes import RankCommand
from gpubench_plugin.launchers.proxies import is_proxy, make_proxy
from gpubench_plugin.launchers.report_transport import merged_warnings
from gpubench_plugin.launchers.team import Team
from gpubench_plugin.measure.merged_launches import disagreement, merge_launches
from gpubench_plugin.results import pytest_benchmark, report_payload
from gpubench_plugin.results.report_payload import LiveRecord
from gpubench_plugin.system.signals import STOPS

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping, Sequence

    from gpubench_plugin.config.case import Case
    from gpubench_plugin.config.rounds_file import FixedRounds
    from gpubench_plugin.core.records import Measurement
    from gpubench_plugin.launchers.merged_reports import Phase
    from gpubench_plugin.launchers.ways.base import Launcher

_SHARED_OPTION: Final = "randomly_seed"
"""Option of another plugin that counts on all ranks as in the controller (pytest-randomly)."""


@dataclass(kw_only=True)
class _Test:
    """The test that runs: its timeouts and record, and how its phases have ended so far."""

    nodeid: str
    size: int
    next_id: str | None
    timeouts: Timeouts
    rounds: FixedRounds | None = None
    record: LiveRecord = field(default_factory=LiveRecord)
    is_recorded: bool = True
    """Whether it belongs to the session, and is not measured once more to confirm a verdict."""
    has_ended: bool = False
    """Whether it has been torn down; to run it once more, it begins anew."""
    error: GangError | None = None
    """Why its ranks could not be started."""
    is_damaged: bool = False
    """Whether its ranks may have unmatched collectives."""
    is_lost: bool = False
    """Whether a rank has lost its device."""
    launches: list[Measurement] = field(default_factory=list)


class Controller(InProcessLauncher):
    """Runs benchmarks on the ranks of `launcher`, one team at a time.

    Other tests run in this process, unless the launcher runs all on the ranks. The ranks write into
    `run` until :meth:`start` sets the run directory.

    Raises:
        UsageProblem: a debugger is asked for.
    """

    def __init__(self, config: pytest.Config, launcher: Launcher, run: Path = Path()):
        super().__init__(config)
        refuse_debugger(config)
        self.launcher = launcher
        self.replaces_ranks = launcher.replaces_ranks
        self._run = run
        self._team: Team | None = None
        self._test: _Test | None = None
        self._nextitem: pytest.Item | None = None
        self._merged: pytest.TestReport | None = None
        self._raised: BaseException | None = None
        self._stacks: list[tuple[str, str]] = []
        self._last_test_name = ""
        self._was_damaged = self._has_closed = False
        self._start_errors: dict[int, GangError] = {}
        self._startable: set[int] = set()
        self._warned: set[str] = set()
        self._output = (
            LogForwarder(sys.stdout.write) if config.getoption("capture", "no") == "no" else None
        )

    def start(self, session: pytest.Session, benchmarks: Sequence[pytest.Item]) -> None:
        """Make proxies of the tests that run on ranks, sorted so that every team starts once.

        Raises:
            UsageProblem: the ranks that somebody else has started do not join.
        """
        for item in session.items:
            if self.launcher.runs_all or case_on_ranks(item) is not None:
                make_proxy(item, self.order)
        if self.replaces_ranks:
            # Tests in this process come first, so that their fixtures end before the ranks start.
            session.items.sort(key=lambda i: case.world_size if (case := case_on_ranks(i)) else 0)
        if run := self._context.run:
            self._run = run.path
        if not self.replaces_ranks:
            timeouts = Timeouts.of_case(None, self._context.settings.timeout_s)
            try:
                self._team = self._start(self._context.ranks.world.size, timeouts)
            except GangError as error:
                raise UsageProblem(str(error)) from error
            self._compare_collections(self._team, [id_of(item) for item in benchmarks])

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        """Start the ranks before another plugin's timeout of the test begins."""
        if not is_proxy(item):
            return (yield from super().pytest_runtest_protocol(item, nextitem))
        self._nextitem = nextitem
        self._prepare(item, nextitem)
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        """After the last test in this process, tear down all fixtures before the ranks start."""
        if not is_proxy(item) and nextitem is not None and is_proxy(nextitem):
            item.session._setupstate.teardown_exact(None)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Report of a phase as the ranks ended it, with what other plugins have added to it."""
        if not is_proxy(item):
            return (yield)
        report = yield
        merged, self._merged = self._merged, None
        error = None if call.excinfo is None else call.excinfo.value
        if merged is not None and (error is None or error is self._raised):
            vars(report).update(vars(merged))
            return report
        if state_of(item) is not None:
            report_payload.attach(report, call, LiveRecord())
        if call.excinfo is not None and self._stacks:  # they say more than this process's own
            report.longrepr = call.excinfo.exconly()
        report.sections += self._stacks
        self._stacks = []
        return report

    @pytest.hookimpl(wrapper=True, trylast=True)  # within pytest-cov's, which combines afterwards
    def pytest_runtestloop(self) -> Generator[None, object, object]:
        """Shut down the ranks."""
        try:
            return (yield)
        finally:
            self.close()

    def pytest_unconfigure(self) -> None:
        """Kill remaining processes, however the session ended."""
        if self._team is not None:
            self._team.kill()

    def order(self, item: pytest.Item, phase: Phase) -> None:
        """Run a phase of the test on the ranks; raises unless it passes on all of them."""
        case = case_on_ranks(item)
        if case is not None and (skip := self._skip(case)):
            if phase == "setup":
                raise skip
            return
        if phase == "setup" and self._test is not None and self._test.has_ended:  # it is repeated
            self._prepare(item, self._nextitem)
        self._merged = self._phase(item, phase)
        if self._merged is None or self._merged.passed:
            if phase == "teardown" and case is not None:
                self._store()
            return
        self._raised = merging.exception_of(self._merged)
        raise self._raised

    def remeasure(
        self, items: Sequence[pytest.Item], rounds: Mapping[str, FixedRounds]
    ) -> Iterator[Measurement]:
        """Measure `items` in fresh processes without reporting to pytest.

        Those of one world size share a team. `rounds` to time by node id. A benchmark that could
        not be measured has another outcome, with its reason.
        """
        sorted_items = sorted(items, key=lambda item: item.stash[STATE].case.world_size)
        try:
            for item, next_item in pairwise([*sorted_items, None]):
                assert item is not None
                self._prepare(item, next_item, rounds.get(id_of(item)), is_recorded=False)
                reports = [self._phase(item, "setup")]
                if reports[0] is None or reports[0].passed:
                    reports.append(self._phase(item, "call"))
                reports.append(self._phase(item, "teardown"))
                payloads = [report_payload.with_outcome(r) for r in reports if r is not None]
                yield report_payload.measurement_of(item.stash[STATE].case, payloads)
        finally:
            self.close()

    def _skip(self, case: Case) -> BaseException | None:
        return case.skip_reason(self._context.ranks.started_world_size)

    def _prepare(
        self,
        item: pytest.Item,
        nextitem: pytest.Item | None,
        rounds: FixedRounds | None = None,
        *,
        is_recorded: bool = True,
    ) -> None:
        """Begin a test, with the ranks that it needs."""
        self._merged, self._raised, self._stacks = None, None, []
        case = case_on_ranks(item)
        if case is not None and self._skip(case):
            return
        launches = self._context.settings.launches
        journal = self._context.journal if is_recorded and case is not None else None
        self._test = test = _Test(
            nodeid=item.nodeid,
            size=self._context.ranks.world.size if case is None else case.world_size,
            next_id=self._next_id(item, nextitem),
            timeouts=Timeouts.of_case(case, self._context.settings.timeout_s),
            rounds=rounds or (None if case is None else case.fixed_rounds),
            is_recorded=is_recorded,
            record=LiveRecord(
                benchmark=id_of(item), journal=journal, launch=1 if launches > 1 else None
            ),
        )
        try:
            self._team = self._team_for(item, test)
        except GangError as error:
            if test.size not in self._startable:
                self._start_errors[test.size] = GangError(str(error), hang=error.hang)
            test.error = error

    def _phase(self, item: pytest.Item, phase: Phase) -> pytest.TestReport | None:
        """Run a phase on the ranks; None where there are none, or no more."""
        test = self._test
        assert test is not None
        test.has_ended |= phase == "teardown"
        if phase == "call" and test.error is not None:
            return merging.start_error_report(item, test.error)
        if self._team is None or not self._team.is_idle:
            return None
        is_left = phase != "setup" and not self._team.runs_test  # after a launch that failed
        report = None if is_left else self._run_phase(item, phase)
        if phase == "call" and report is not None:
            return self._repeated(item, test, report)
        if phase == "teardown":
            self._end_test(item, test)
        return report

    def _run_phase(self, item: pytest.Item, phase: Phase) -> pytest.TestReport:
        """Run a phase once, on the current team."""
        test, team = self._test, self._team
        assert test is not None
        assert team is not None
        try:
            if phase == "setup":
                team.begin(test.timeouts, test.rounds, test.record.log)
            outcomes = team.run(phase, test.nodeid, test.next_id)
        except BaseException as error:
            self._interrupted(item, error)
            raise
        for warning in merged_warnings(outcomes):
            self._config.hook.pytest_warning_recorded.call_historic(kwargs=warning)
        for outcome in outcomes:
            if outcome.exit is not None:
                self._drop()
                prefix = f"rank {outcome.rank}: " if len(outcomes) > 1 else ""
                pytest.exit(f"{prefix}{outcome.exit}", returncode=outcome.exit_code)
        for outcome in outcomes:
            for name, reason in outcome.stops.items():
                setattr(item.session, name, reason)
        verdict = judge_plain(outcomes) if case_on_ranks(item) is None else judge(outcomes)
        test.is_damaged |= not verdict.agree or not all(o.is_clean for o in outcomes)
        test.is_lost |= any(outcome.context_lost for outcome in outcomes)
        if not team.is_idle:
            self._lose(item, f"{item.name}: {verdict.reason}")
        report, others = merging.merge_phase(item, phase, outcomes, verdict)
        if test.is_recorded:
            for other in others:
                item.ihook.pytest_runtest_logreport(report=other)
            for result in outcomes[0].results:  # measured by pytest-benchmark itself
                metadata = pytest_benchmark.add_result(self._config, result)
                self._context.fixture_metadata[id_of(item)] = metadata
        return report

    def _repeated(
        self, item: pytest.Item, test: _Test, report: pytest.TestReport
    ) -> pytest.TestReport:
        """Measure in fresh teams as often as asked for; the report has the merged measurement."""
        while (measurement := _measurement(report)) and measurement.outcome == "measured":
            test.launches.append(measurement)
            if len(test.launches) == self._context.settings.launches:
                if reason := disagreement(test.launches):
                    report_payload.override(report, "failed", reason)
                    test.launches.clear()
                else:
                    report_payload.read(report)["measurement"] = merge_launches(test.launches)
                break
            report = self._run_phase(item, "teardown")
            if report.passed:
                self.close()
                test.record.launch = len(test.launches) + 1
                try:
                    self._team = self._team_for(item, test)
                except GangError as error:
                    return merging.start_error_report(item, error)
                report = self._run_phase(item, "setup")
            if report.passed:
                report = self._run_phase(item, "call")
        report.when = "call"
        return report

    def _end_test(self, item: pytest.Item, test: _Test) -> None:
        """Keep the ranks for the next test, unless that needs others."""
        team = self._team
        self._last_test_name, self._was_damaged = item.name, test.is_damaged
        if team is None:
            return
        settings = self._context.settings
        needs_fresh_team = settings.isolate or settings.launches > 1
        if test.is_lost:  # the ranks cannot leave together
            self._lose(item, f"{item.name}: a rank has lost its device")
        elif self.replaces_ranks and (needs_fresh_team or (test.is_damaged and test.size > 1)):
            self.close()

    def _store(self) -> None:
        """Add what was measured to pytest-benchmark's results."""
        launches = [] if self._test is None else self._test.launches
        if len(launches) == self._context.settings.launches:
            results = self._context.fixture_metadata
            pytest_benchmark.store_foreign_result(self._config, merge_launches(launches), results)

    def _interrupted(self, item: pytest.Item, error: BaseException) -> None:
        """Collect the ranks' stacks for the test that an `error` in this process fails."""
        team = self._team
        assert team is not None
        if isinstance(error, KeyboardInterrupt | pytest.exit.Exception):
            self._drop()
            return
        outcomes = team.abandon({}, f"was stopped by {type(error).__name__}")
        self._stacks = merging.stack_sections(item, outcomes)
        self._lose(item, f"{item.name}: {type(error).__name__} in the controller")

    def _lose(self, item: pytest.Item, reason: str) -> None:
        """Give up the ranks; a session that cannot replace them ends after this test."""
        self._drop()
        if not self.replaces_ranks:
            item.session.shouldfail = (
                f"{reason}; these ranks cannot be replaced, so the session ends. With pytest "
                f"--world-size={self._context.ranks.world.size} (without torchrun) pytest starts "
                "the ranks, replaces them and continues"
            )

    def is_expected(self, number: int) -> bool:
        """Whether others who started the ranks end them all since one has ended, noticed or not."""
        team = self._team
        are_ending = self._has_closed if team is None else team.has_lost_ranks
        return number in STOPS and are_ending and not self.replaces_ranks

    def _drop(self) -> None:
        """Kill the ranks, or leave them until the results are written if others started them."""
        if self._team is not None:
            self._team.give_up()
            if self._config.pluginmanager.hasplugin("_cov"):
                self._warn_once("--cov: without the data of ranks that died or had to be killed")
            if self.replaces_ranks:
                self._team.kill()
                self._team = None

    def _team_for(self, item: pytest.Item, test: _Test) -> Team:
        """The ranks that run the test; a team of another size or in a bad state is closed first."""
        if test.size in self._start_errors:
            raise self._start_errors[test.size]
        team = self._team
        if team is not None and team.size != test.size:
            self.close()
        elif team is not None and (cause := self._unusable_reason(item, team)):
            if not self.replaces_ranks:
                self._lose(item, cause)
                raise item.session.Failed(item.session.shouldfail)
            self._warn_once(f"{cause}; started a new gang of {team.size}")
            self.close()
        if self._team is None:
            test.record.enter("start")
            self._team = self._started(test)
        return self._team

    def _unusable_reason(self, item: pytest.Item, team: Team) -> str:
        """Reason the team cannot run another benchmark; empty if it can."""
        if lost := team.lost_ranks():
            return f"between two benchmarks, {lost}"
        case = case_on_ranks(item)
        if case is None or team.size == 1:
            return ""
        grace_s = case.configuration.distributed.failure_grace_s
        if not team.is_healthy(grace_s, damaged=self._was_damaged):
            return f"{self._last_test_name} left the process group in an unusable state"
        return ""

    def _started(self, test: _Test) -> Team:
        """Start the ranks, retrying once if one was killed."""
        try:
            return self._start(test.size, test.timeouts)
        except GangError as error:
            if not error.was_killed:
                raise
            self._warn_once(f"{error}; started a new gang of {test.size}")
            return self._start(test.size, test.timeouts)

    def _start(self, size: int, timeouts: Timeouts) -> Team:
        seed = self._config.getoption(_SHARED_OPTION, None)
        options = {} if seed is None else {_SHARED_OPTION: seed}
        team = Team(
            size,
            config=self._config,
            launcher=self.launcher,
            call=RankCommand.of_session(self._config, self._run / "ranks"),
            welcome={"run_directory": str(self._run), "options": options},
            timeouts=replace(timeouts, timeout_s=self._context.settings.timeout_s),
            forwarder=self._output,
        )
        self._startable.add(size)  # a later failure to start may be transient
        return team

    def _next_id(self, item: pytest.Item, nextitem: pytest.Item | None) -> str | None:
        """Node id of the next test on the same ranks, for which shared fixtures live on."""
        settings = self._context.settings
        if nextitem is None or settings.isolate or settings.launches > 1:
            return None
        if self.launcher.runs_all:
            return nextitem.nodeid
        case, next_case = case_on_ranks(item), case_on_ranks(nextitem)
        assert case is not None
        if next_case is None or next_case.world_size != case.world_size or next_case.skip_reason():
            return None
        return nextitem.nodeid

    def _compare_collections(self, team: Team, ids: Sequence[str]) -> None:
        """Warn of benchmarks that only some ranks have collected, in whatever order."""
        for rank, collected in team.collected.items():
            if extra := sorted({*collected}.difference(ids)):
                self._warn_once(f"only rank {rank} collected {listed(extra, 3)}, which is not run")

    def _warn_once(self, text: str) -> None:
        """Warn once, bypassing Python's filters, which may turn warnings into errors."""
        if text not in self._warned:
            self._warned.add(text)
            category = pytest.PytestWarning
            message = warnings.WarningMessage(category(text), category, __file__, 1, line="")
            note = {"warning_message": message, "when": "runtest", "nodeid": "", "location": None}
            self._config.hook.pytest_warning_recorded.call_historic(kwargs=note)

    def close(self) -> None:
        """Shut down the current ranks, or leave broken ones that others started for the end."""
        if self._team is not None and (self.replaces_ranks or self._team.is_idle):
            faults = self._team.close()
            self._team, self._has_closed = None, True
            if faults:
                self._warn_once(f"after their last test, {faults}")


def _measurement(report: pytest.TestReport) -> Measurement | None:
    """The measurement of a launch that passed."""
    return report_payload.read(report).get("measurement") if report.passed else None
