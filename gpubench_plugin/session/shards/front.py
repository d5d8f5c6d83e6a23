"""The session with ``--on``: shows, judges and records what shards measure."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from gpubench_plugin.config.parametrization import DEVICE, id_of
from gpubench_plugin.config.resolution import engine_section
from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import ResultsError, UsageProblem
from gpubench_plugin.core.records import STEP_TIME, Json
from gpubench_plugin.engines.base import Engine, Shard
from gpubench_plugin.launchers import merged_reports, report_transport
from gpubench_plugin.launchers.context import STATE, state_of
from gpubench_plugin.launchers.in_process import InProcessLauncher, refuse_debugger
from gpubench_plugin.launchers.outcome import JointVerdict, RankOutcome
from gpubench_plugin.launchers.processes import RankCommand
from gpubench_plugin.reports.text import printable
from gpubench_plugin.results import pytest_benchmark
from gpubench_plugin.session.shards.files import ShardTest, with_record
from gpubench_plugin.session.shards.nodes import is_control, outliers
from gpubench_plugin.session.shards.plan import History, cut
from gpubench_plugin.session.shards.pool import Pool

if TYPE_CHECKING:
    from gpubench_plugin.config.rounds_file import FixedRounds
    from gpubench_plugin.core.records import Measurement
    from gpubench_plugin.results.run_directory import RunDirectory

_SHARDS: Final = "shards"
"""Folder of a run in which its shards have theirs until they have ended."""


class Front(InProcessLauncher):
    """Runs all tests in shards on the engine of ``--on``, and replays their reports as they come.

    Fixtures and what other plugins do around a test act in the shards, what they do with reports
    here. The gate judges here.

    Raises:
        UsageProblem: the engine cannot be used, or another option does not go with it.
    """

    def __init__(self, config: pytest.Config):
        super().__init__(config)
        refuse_debugger(config)
        settings = self._context.settings
        if size := self._context.ranks.started_world_size:
            raise UsageProblem(f"--on: torchrun has already started {size} ranks; start it without")
        name, _, target = settings.on.partition(":")
        section = engine_section(settings, config.rootpath)
        self._engine: Engine = catalog.load("engines", name, key="--on")(target, section)
        self._capacity = self._engine.describe()
        self._items: dict[str, pytest.Item] = {}
        self._left: set[str] = set()
        """Ids of the benchmarks and other tests that have not been replayed."""
        self._step_s: dict[str, dict[str, float]] = {}

    def start(self, session: pytest.Session, benchmarks: Sequence[pytest.Item]) -> None:
        """Take all tests of the session."""
        self._items = {item.nodeid: item for item in session.items}
        self._left = {id_of(item) for item in session.items}

    def pytest_report_collectionfinish(self) -> str:
        """Header line about the engine."""
        return f"shards: {self._capacity.text}"

    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run the tests in shards, then what others have added here."""
        if session.testsfailed and not session.config.option.continue_on_collection_errors:
            return None  # pytest's own loop tells it
        run = self._context.run
        assert run is not None
        mine = [item for item in session.items if item.nodeid in self._items]
        fixed = {s.case.id: f for i in mine if (s := state_of(i)) and (f := s.case.fixed_rounds)}
        try:
            with self._tests_of(run.path / _SHARDS, mine, fixed, run) as tests:
                for test in tests:
                    self._replay(test)
                    _end_if_asked(session)
        except UsageProblem as error:
            raise pytest.UsageError(str(error)) from None
        except ResultsError as error:
            session.shouldfail = f"cannot write results: {error}"
            _end_if_asked(session)
        with suppress(OSError):  # kept for a shard that did not end by itself
            (run.path / _SHARDS).rmdir()
        others = [item for item in session.items if item.nodeid not in self._items]
        for item, next_item in zip(others, [*others[1:], None], strict=False):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=next_item)
            _end_if_asked(session)
        return True

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Name nodes that are not like the others."""
        for line in outliers(self._step_s):
            terminalreporter.write_line(printable(line), yellow=True)

    def pytest_unconfigure(self) -> None:
        """Release the engine, however the session ended."""
        self._engine.close()

    def remeasure(
        self, items: Sequence[pytest.Item], rounds: Mapping[str, FixedRounds]
    ) -> Iterator[Measurement]:
        """Measure `items` once more without reporting to pytest; `rounds` to time by their ids."""
        run = self._context.run
        assert run is not None
        with (
            tempfile.TemporaryDirectory(dir=run.path, prefix="relaunch-") as folder,
            self._tests_of(Path(folder), items, rounds, None) as tests,
        ):
            for test in tests:
                case = self._items[test.nodeid].stash[STATE].case
                reason = test.failure or "it has no record"
                yield test.record or case.unmeasured("crashed", reason)

    @contextmanager
    def _tests_of(
        self,
        folder: Path,
        items: Sequence[pytest.Item],
        rounds: Mapping[str, FixedRounds],
        run: RunDirectory | None,
    ) -> Iterator[Iterator[ShardTest]]:
        """Tests of new shards, and of those that `folder` has already, as they finish.

        What ends the session before the shards cancels them. The end of its terminal does not,
        where they outlive the session, which may be resumed.
        """
        config, settings = self._config, self._context.settings
        ids = {item.nodeid: id_of(item) for item in items}
        history = History.of(settings.results_dir, {*ids.values()})
        command = RankCommand.of_session(config, folder).command
        has_cache = config.pluginmanager.hasplugin("cacheprovider")
        extra = ["-o", "cache_dir=$GPUBENCH_SHARD/cache"] if has_cache else []
        if (seed := config.getoption("randomly_seed", None)) is not None:  # of pytest-randomly
            extra.append(f"--randomly-seed={seed}")
        shard = Shard(
            folder=folder,
            options=tuple(command[1 : command.index("-m")]),
            arguments=(*command[command.index("-m") + 2 :], *extra),
            rootdir=config.rootpath,
            cwd=config.invocation_params.dir,
        )
        pool = Pool(
            config=config,
            engine=self._engine,
            shard=shard,
            benchmarks={i.nodeid: id_of(i) for i in items if state_of(i) is not None},
            rounds=rounds,
            expected_s={i: s for i, b in ids.items() if (s := history.durations_s.get(b))},
            on_event=self._on_event,
            tell=self._context.tell or (lambda text: None),
            on_end=lambda files: None if run is None else files.move_into(run),
        )
        taken = pool.adopt(ids)
        try:
            self._submit([item for item in items if item.nodeid not in taken], pool, history)
            yield pool.run()
        except BaseException as error:
            if not (self._engine.outlives_session and "SIGHUP" in str(error)):
                pool.cancel()
            raise

    def _submit(self, items: Sequence[pytest.Item], pool: Pool, history: History) -> None:
        """Submit shards of equal duration, and others of what may not run beside anything.

        On several hosts they begin with the controls, which tell whether their nodes are equal.
        """
        capacity, shards = self._capacity, self._engine.section.shards
        plans = []
        for is_alone, count in ((False, shards or capacity.slots), (True, capacity.hosts)):
            own = [item for item in items if self._runs_alone(item, history) is is_alone]
            controls = [i.nodeid for i in own if is_control(i)] if capacity.hosts > 1 else []
            for part in cut([item.nodeid for item in own], pool.expected_s, count):
                ids = tuple(dict.fromkeys([*controls, *part]))
                plans.append(replace(pool.shard, ids=ids, is_alone=is_alone))
        pool.submit(plans)

    def _runs_alone(self, item: pytest.Item, history: History) -> bool:
        """Whether nothing may run beside the test on its host.

        Without a mark that is so on a CPU, of several ranks, of data that workers load, of what is
        no benchmark, and of steps for which a GPU was found to wait for Python.
        """
        if self._capacity.slots == self._capacity.hosts:
            return False
        state = state_of(item)
        if state is None or state.case.adopted:
            return True
        case = state.case
        if case.mark.exclusive is not None:
            return case.mark.exclusive
        device = case.params.get(DEVICE, self._context.settings.devices[0])
        on_cpu = device == "cpu" or not (case.uses_torch and self._capacity.gpus)
        data = case.configuration.data
        is_loading = data.workers > 0 or data.source != "synthetic"
        return on_cpu or case.world_size > 1 or is_loading or case.id in history.launch_bound

    def _replay(self, test: ShardTest) -> None:
        item = self._items.get(test.nodeid)
        if test.record is not None and (step := test.record.metrics.get(STEP_TIME)):
            self._step_s.setdefault(test.record.name, {})[test.node] = step.value
        if item is None or id_of(item) not in self._left:
            return
        self._left.remove(id_of(item))
        outcome = RankOutcome(rank=0, state="ended", warnings=tuple(test.warnings))
        for warning in report_transport.merged_warnings([outcome]):
            self._config.hook.pytest_warning_recorded.call_historic(kwargs=warning)
        if test.failure:
            phases = {str(report.when) for report in test.reports}
            outcome = RankOutcome(rank=0, state="died", details=test.failure, output=test.output)
            verdict = JointVerdict(outcome="crashed", reason=test.failure)
            test.reports += merged_reports.last_reports(item, outcome, verdict, phases)
        for result in test.results:  # measured by pytest-benchmark, of what is no benchmark here
            pytest_benchmark.add_result(self._config, result)
        if test.record is not None:
            results = self._context.fixture_metadata
            pytest_benchmark.store_foreign_result(self._config, test.record, results)
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in with_record(test):
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _on_event(self, node: str, benchmark: str, event: Json) -> None:
        if self._context.journal is not None and benchmark in self._left:
            where = {"node": node} if node and event["event"] == "phase" else {}
            self._context.journal(benchmark, {**event, **where})


def _end_if_asked(session: pytest.Session) -> None:
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
