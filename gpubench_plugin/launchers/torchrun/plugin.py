"""Launcher on ranks that torchrun started, in lockstep with the other ranks.

Every rank runs a session of its own over the same benchmarks; only rank zero prints and writes.
Reports of a test are logged after all ranks have ended it, so that ``-x`` and ``--maxfail`` stop
all of them after the same test. A rank that dies or hangs ends the session on every rank.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

import pytest
from _pytest.runner import runtestprotocol

from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.core.format import listed
from gpubench_plugin.launchers.context import STATE, case_on_ranks, context_of, update_context
from gpubench_plugin.launchers.deadlines import Deadline, Timeouts, Watchdog
from gpubench_plugin.launchers.in_process import LauncherPlugin
from gpubench_plugin.launchers.outcome import ranks_text
from gpubench_plugin.launchers.output import disable_output
from gpubench_plugin.launchers.torchrun.follower import Follower
from gpubench_plugin.launchers.torchrun.peers import Peers, this_process
from gpubench_plugin.launchers.torchrun.rank import RunningTest
from gpubench_plugin.launchers.torchrun.root import RootRank
from gpubench_plugin.launchers.torchrun.store import OutcomeExchange
from gpubench_plugin.results import pytest_benchmark
from gpubench_plugin.system.timeout_clock import TimeoutClock, wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpubench_plugin.config.case import Case
    from gpubench_plugin.core.records import Json
    from gpubench_plugin.launchers.output import DeferredStream


_IDS_SHOWN: Final = 3


def difference_message(rank: int, ids: Sequence[str], root_ids: Sequence[str]) -> str:
    """Message about benchmarks `ids` of a `rank` that are not rank zero's; empty if they are."""
    if ids == root_ids:
        return ""
    has = listed(sorted(set(ids) - set(root_ids)), _IDS_SHOWN)
    lacks = listed(sorted(set(root_ids) - set(ids)), _IDS_SHOWN)
    parts = [f"{len(root_ids)} on rank 0, {len(ids)} on rank {rank}"]
    parts += [f"only rank {rank} collected {has}"] if has else []
    parts += [f"rank {rank} did not collect {lacks}"] if lacks else []
    parts += [] if has or lacks else [f"rank {rank} collected them in another order"]
    return f"the ranks collected different benchmarks: {'; '.join(parts)}"


class TorchrunRank(LauncherPlugin):
    """Runs benchmarks together with the other ranks; adopted and ordinary tests as usual.

    `output` of a rank other than zero is deferred until there is a log.

    Raises:
        UsageProblem: torchrun has restarted the ranks.
    """

    def __init__(self, session: pytest.Session, output: DeferredStream | None):
        super().__init__(session.config)
        _refuse_restart(os.environ)
        self._output = output
        self._numbers: dict[str, int] = {}
        self._log: TextIO | None = None
        self._last_test: tuple[pytest.Item, bool] | None = None
        rank = context_of(session.config).ranks.world.rank
        self._member: RootRank | Follower = Follower(session, rank) if rank else RootRank(session)
        self._watchdog = Watchdog(self._member.exit_hung)
        self._config.add_cleanup(self._close)

    def start(self, session: pytest.Session, benchmarks: Sequence[pytest.Item]) -> None:
        """Compare the collections of all ranks, and redirect other ranks' output to their logs.

        Raises:
            UsageProblem: the ranks collected different benchmarks, or the rendezvous failed.
        """
        self._rendezvous([item for item in benchmarks if case_on_ranks(item) is not None])
        super().start(session, benchmarks)

    def _rendezvous(self, items: Sequence[pytest.Item]) -> None:
        """Connect with the other ranks and agree on the run and its resumed benchmarks."""
        import torch

        exchange = self._connect()
        self._numbers = {item.nodeid: number for number, item in enumerate(items, start=1)}
        case = items[0].stash[STATE].case
        group = self._context.ranks.process_group(
            case.configuration.distributed.backend,
            torch.device(case.device.torch_name),
            shares_device=case.shares_device,
        )
        ids = list(self._numbers)
        root_ids = group.control.publish("ids", {"ids": ids})["ids"]
        difference = difference_message(self._context.ranks.world.rank, ids, root_ids)
        records = group.control.gather("collection", {"difference": difference, **this_process()})
        proposal = None if records is None else self._proposal(records)
        published = group.control.publish("run", proposal)
        if message := published.get("difference"):
            self._member.finish()
            # Rank zero may host the store, so it must not exit first.
            group.control.wait_for_all("exit")
            raise UsageProblem(message)
        self._apply_published(published, exchange)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> bool | None:
        """Run a benchmark in lockstep with the other ranks; other tests run as usual."""
        case = case_on_ranks(item)
        if case is None:
            return None
        self._log_test(item, lambda: self._run(item, case, nextitem))
        return True

    def pytest_enter_pdb(self) -> None:
        """Disable the timeout in the debugger."""
        self._watchdog.cancel()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Ignore deaths of other ranks from now on, while the results are written."""
        self._member.finish()
        cause = session.shouldfail or session.shouldstop or f"exit status {int(exitstatus)}"
        self._member.announce_departure(str(cause))

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Leave together, after everything is written and printed."""
        self._member.leave()
        if not self._member.end_reason:  # else destroying a group with stuck ranks may hang
            self._context.ranks.close()

    def _run(
        self, item: pytest.Item, case: Case, nextitem: pytest.Item | None
    ) -> list[pytest.TestReport]:
        """Run the test on this rank and return the reports that all ranks agreed on."""
        number = self._numbers[item.nodeid]
        timeouts = Timeouts.of_case(case, self._context.settings.timeout_s)
        member = self._member
        if (reports := member.wait_for_ranks(item, number, timeouts.timeout_s)) is not None:
            return reports
        clock = TimeoutClock()
        deadline = Deadline(timeouts, clock.now())
        running = RunningTest(item=item, number=number, clock=clock, deadline=deadline)
        self._context.ranks.resynchronize(number)
        member.running = running
        with self._watchdog.guarding(timeouts.timeout_s + member.margin_s):
            if not self._recover(case):
                member.finish()
                return []
            try:
                reports = runtestprotocol(item, log=False, nextitem=nextitem)
            except (pytest.exit.Exception, KeyboardInterrupt) as exit_request:
                member.announce_exit(exit_request)
                raise
            self._context.ranks.announce(number, f"the end of {item.name}")
            reports = member.exchange_outcomes(running, reports)
        member.running = None
        self._last_test = item, any(report.failed for report in reports)
        return reports

    def _recover(self, case: Case) -> bool:
        """Whether the ranks can continue together, if need be in a new group; else end the session.

        After a failure, ranks may still have unmatched collectives. The result is the same on every
        rank.
        """
        if self._last_test is None:
            return True
        item, has_failed = self._last_test
        grace_s = case.configuration.distributed.failure_grace_s
        ranks = self._context.ranks
        if (has_failed and ranks.renew()) or ranks.is_healthy(grace_s) or ranks.renew():
            return True
        self._member.end_session(item, "left the process group in an unusable state")
        return False

    def _proposal(self, records: Sequence[Json]) -> Json:
        """Record that rank zero publishes: its run, or how the benchmarks of ranks differ."""
        if differences := [record["difference"] for record in records if record["difference"]]:
            return {"difference": differences[0]}
        context = self._context
        assert context.run is not None
        self._peers = Peers(records, context.run.path / "ranks")
        return {
            "path": str(context.run.path),
            "resumed": sorted(context.resumed),
            "folder": str(self._peers.folder),
        }

    def _connect(self) -> OutcomeExchange:
        """Connect all ranks, and name the missing ones on timeout.

        A process group would wait half an hour for a rank without benchmarks, and not name it.
        """
        from torch.distributed.distributed_c10d import PrefixStore

        from gpubench_plugin.ranks.process_group import store_for

        world, timeout_s = self._context.ranks.world, self._context.settings.timeout_s
        connection = store_for(world).clone()  # type: ignore[attr-defined] # not declared
        exchange = OutcomeExchange(world, PrefixStore("gpubench/outcomes", connection))
        exchange.announce_arrival(0)
        clock = TimeoutClock()
        deadline = timeout_s + self._member.margin_s
        if wait_until(lambda: exchange.all_arrived(0), lambda: clock.remaining(deadline)):
            return exchange
        self._member.finish()
        absent_ranks = exchange.missing_ranks(0)
        message = (
            f"{ranks_text(absent_ranks, world.size)} of {world.size} did not join within "
            f"{timeout_s:g} s (gpubench_timeout_s): were benchmarks collected there? All ranks "
            "must select the same tests"
        )
        first_present = min(set(range(world.size)).difference(absent_ranks))
        if world.rank == first_present:  # rank zero, which prints errors, may be absent
            raise pytest.UsageError(message)
        raise UsageProblem(message)

    def _apply_published(self, published: Json, exchange: OutcomeExchange) -> None:
        """Apply what rank zero published."""
        folder = Path(published["path"]) / "ranks"
        update_context(self._config, ranks_folder=folder, resumed=published["resumed"])
        if isinstance(self._member, RootRank):
            self._member.connect(exchange, self._peers)
            return
        # On a host without this file system the folder does not exist yet.
        folder.mkdir(parents=True, exist_ok=True)
        pytest_benchmark.disable_output(self._config)
        disable_output(self._config)
        path = folder / f"rank-{self._context.ranks.world.rank}.log"
        # Appended: a resumed run has a log already.
        log = path.open("a", encoding="utf-8", buffering=1)
        self._log = log
        if self._output is not None:
            self._output.release(log)
        self._member.connect(exchange, Path(published["folder"]), log)

    def _close(self) -> None:
        self._member.close()
        if self._log is not None:
            self._log.close()


def _refuse_restart(environment: Mapping[str, str]) -> None:
    """Refuse ranks restarted by torchrun: their store has stale keys (pytorch #135712, #167288)."""
    count = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
    if count != "0":
        raise UsageProblem(
            f"TORCHELASTIC_RESTART_COUNT={count}: torchrun restarted the ranks, and a "
            "benchmark cannot resume from there; start torchrun with --max-restarts=0, or "
            "run pytest --world-size=<ranks> without torchrun, which replaces failed ranks "
            "itself"
        )
