"""A rank that torchrun started: it meets the others, and agrees with them on each verdict.

Every rank runs a session of its own over the same benchmarks. Rank zero alone prints and writes.
What a rank logs of a test waits until all have ended it: so ``-x`` and ``--maxfail`` stop all of
them after the same test. A rank that dies or hangs ends the session, on every rank.
"""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final, TextIO

import pytest

from gpubench_plugin.environment import listed, open_to_write
from gpubench_plugin.errors import UsageProblem
from gpubench_plugin.launchers import report_payload, secondary
from gpubench_plugin.launchers.context import STATE, case_on_ranks, context_of, update_context
from gpubench_plugin.launchers.deadlines import Deadline, Timeouts
from gpubench_plugin.launchers.in_process import RunsBenchmarks, exclude_failed
from gpubench_plugin.launchers.outcome import ranks_text
from gpubench_plugin.launchers.torchrun.follower import Follower
from gpubench_plugin.launchers.torchrun.peers import Peer, Peers
from gpubench_plugin.launchers.torchrun.rank import RunningTest, run, session_end_message
from gpubench_plugin.launchers.torchrun.root import RootRank
from gpubench_plugin.launchers.torchrun.store import OutcomeExchange, wait_until
from gpubench_plugin.launchers.watchdog import Watchdog
from gpubench_plugin.results import pytest_benchmark

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpubench_plugin.config import Case
    from gpubench_plugin.distributed import ProcessGroup
    from gpubench_plugin.launchers.output import DeferredStream
    from gpubench_plugin.records import Json


_RANKS_SHOWN: Final = 8
_IDS_SHOWN: Final = 3


def difference(own_ids: Sequence[str], root_ids: Sequence[str]) -> Json:
    """First differences between this rank's collection and rank zero's."""
    return {
        "count": len(own_ids),
        "differs": list(own_ids) != list(root_ids),
        "has": listed(sorted(set(own_ids) - set(root_ids)), _IDS_SHOWN),
        "lacks": listed(sorted(set(root_ids) - set(own_ids)), _IDS_SHOWN),
    }


def message(reports: Sequence[Json]) -> str:
    """Message about the collection differences that the ranks reported."""
    differing_ranks = [rank for rank, report in enumerate(reports) if report["differs"]]
    shown_ranks = differing_ranks[:_RANKS_SHOWN]
    counts = ", ".join(f"{reports[rank]['count']} on rank {rank}" for rank in (0, *shown_ranks))
    parts = [f"the ranks collected different benchmarks: {counts}"]
    for rank in shown_ranks:
        report = reports[rank]
        parts += [f"only rank {rank} collected {report['has']}"] if report["has"] else []
        parts += [f"rank {rank} did not collect {report['lacks']}"] if report["lacks"] else []
        if not (report["has"] or report["lacks"]):
            parts.append(f"rank {rank} collected them in another order")
    if len(differing_ranks) > len(shown_ranks):
        parts.append(f"and {len(differing_ranks) - len(shown_ranks)} more ranks differ")
    return "; ".join(parts)


class TorchrunRank(RunsBenchmarks):
    """One of several ranks in a session of torchrun's; adopted and ordinary tests run as ever.

    `output` holds back what a rank other than zero prints until there is a log.

    Raises:
        UsageProblem: torchrun has started the ranks a second time.
    """

    def __init__(self, session: pytest.Session, output: DeferredStream | None):
        super().__init__(session.config)
        _refuse_restart(os.environ)
        self._output = output
        self._order: dict[str, int] = {}
        self._log: TextIO | None = None
        self._last: tuple[pytest.Item, bool] | None = None
        rank = context_of(session.config).ranks.world.rank
        self._member: RootRank | Follower = Follower(session, rank) if rank else RootRank(session)
        self._watchdog = Watchdog(self._member.exit_hung)
        self._config.add_cleanup(self._close)

    def start(self, session: pytest.Session, benchmarks: Sequence[pytest.Item]) -> None:
        """Compare the collections of all ranks, and redirect other ranks' output to their logs.

        Raises:
            UsageProblem: the ranks collected different benchmarks, or cannot meet.
        """
        self._meet([item for item in benchmarks if case_on_ranks(item) is not None])
        super().start(session, benchmarks)

    def _meet(self, items: Sequence[pytest.Item]) -> None:
        """Agree with the other ranks on the run, and on which `items` it has already."""
        import torch

        assembly = self._assemble()
        self._order = {item.nodeid: number for number, item in enumerate(items, start=1)}
        case = items[0].stash[STATE].case
        group = self._context.ranks.process_group(
            case.configuration.distributed.backend,
            torch.device(case.device.torch_name),
            shares_device=case.shares_device,
        )
        digest = secondary.digest_of(self._order)
        mine = {"digest": digest, **asdict(Peer.this_process())}
        told = group.control.gather("collection", mine)
        proposal = None if told is None else self._proposal(told)
        agreed = group.control.publish("run", proposal)
        if "ids" in agreed:
            self._member.finish()
            raise self._difference(group, agreed["ids"])
        self._follow(agreed, assembly)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> bool | None:
        """Run a benchmark in lockstep with the other ranks; other tests run as usual."""
        case = case_on_ranks(item)
        if case is None:
            return None
        hook = item.ihook
        hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in self._run(item, case, nextitem):
            exclude_failed(item, report)
            hook.pytest_runtest_logreport(report=report)
            report_payload.drop(report)
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def pytest_enter_pdb(self) -> None:
        """Disable the timeout in the debugger."""
        self._watchdog.cancel()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """From now on ignore other ranks' deaths: the results are written."""
        self._member.finish()
        why = session.shouldfail or session.shouldstop or f"exit status {int(exitstatus)}"
        self._member.announce_departure(str(why))

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Leave together, after everything is written and printed."""
        self._member.leave()
        if not self._member.end_reason:  # else a group with stuck ranks may be impossible to leave
            self._context.ranks.close()

    def _run(
        self, item: pytest.Item, case: Case, nextitem: pytest.Item | None
    ) -> list[pytest.TestReport]:
        """Run the test here and return the reports all ranks agreed on."""
        number = self._order[item.nodeid]
        patience = Timeouts.of_case(case, self._context.settings.timeout_s)
        member = self._member
        if (reports := member.wait_for_ranks(item, number, patience.timeout_s)) is not None:
            return reports
        clock = member.assembly.clock()
        deadline = Deadline(patience, clock.now())
        running = RunningTest(item=item, number=number, clock=clock, deadline=deadline)
        self._context.ranks.resynchronize(number)
        member.running = running
        with self._watchdog.guarding(patience.timeout_s + member.margin_s, clock):
            if broken := self._not_mended(case):
                member.finish()
                member.end_reason = item.session.shouldfail = broken
                return []
            try:
                reports = run(item, nextitem)
            except (pytest.exit.Exception, KeyboardInterrupt) as error:
                member.announce_exit(error)
                raise
            self._context.ranks.announce(number, f"the end of {item.name}")
            agreed = member.exchange_outcomes(running, reports)
        member.running = None
        self._last = item, any(report.failed for report in agreed)
        return agreed

    def _not_mended(self, case: Case) -> str:
        """Why the ranks cannot continue together, even with a new group; empty if they can.

        After a failure nobody knows what the ranks still have to say to each other. Every rank
        comes to the same.
        """
        if self._last is None:
            return ""
        item, failed = self._last
        grace_s = case.configuration.distributed.failure_grace_s
        ranks = self._context.ranks
        if (failed and ranks.renew()) or ranks.is_healthy(grace_s) or ranks.renew():
            return ""
        reason = "left the process group in an unusable state"
        return session_end_message(item, reason, ranks.world.size)

    def _proposal(self, told: Sequence[Json]) -> Json:
        """Record rank zero publishes: run directory, or its benchmarks if others differ."""
        if any(other["digest"] != told[0]["digest"] for other in told):
            return {"ids": list(self._order)}
        context = self._context
        assert context.run is not None
        self._peers = Peers(told, context.run.path / "ranks")
        return {
            "path": str(context.run.path),
            "resumed": sorted(context.resumed),
            "folder": str(self._peers.folder),
        }

    def _difference(self, group: ProcessGroup, of_root: Sequence[str]) -> UsageProblem:
        told = group.control.gather("difference", difference(list(self._order), of_root))
        said = None if told is None else {"message": message(told)}
        published = group.control.publish("difference", said)
        # Rank zero, who may host the store, must not go first.
        group.control.wait_for_all("parting")
        return UsageProblem(published["message"])

    def _assemble(self) -> OutcomeExchange:
        """Connect all ranks, all of which have benchmarks.

        A process group would wait half an hour for one that has none, and not name it.
        """
        from torch.distributed.distributed_c10d import PrefixStore

        from gpubench_plugin.distributed import store_for

        world, patience_s = self._context.ranks.world, self._context.settings.timeout_s
        connection = store_for(world).clone()  # type: ignore[attr-defined] # not declared
        assembly = OutcomeExchange(world, PrefixStore("gpubench/assembly", connection))
        here = Peer.this_process()
        assembly.publish_process(here.pid, here.place)
        assembly.announce_arrival(0)
        clock = assembly.clock()
        within_s = patience_s + self._member.margin_s
        if wait_until(lambda: assembly.all_arrived(0), lambda: clock.remaining(within_s)):
            assembly.read_local_processes(here.place)
            return assembly
        self._member.finish()
        absent = assembly.missing_ranks(0)
        message = (
            f"{ranks_text(absent)} of {world.size} did not join within {patience_s:g} s "
            "(gpubench_timeout_s): were benchmarks collected there? All ranks must select "
            "the same tests"
        )
        first = min(set(range(world.size)).difference(absent))
        if world.rank == first:  # rank zero, which says such things, may not be there
            raise pytest.UsageError(message)
        raise UsageProblem(message)

    def _follow(self, agreed: Json, assembly: OutcomeExchange) -> None:
        """Apply what rank zero published."""
        folder = Path(agreed["path"]) / "ranks"
        update_context(self._config, ranks_folder=folder, resumed=agreed["resumed"])
        if isinstance(self._member, RootRank):
            self._member.connect(assembly, self._peers)
            return
        # On another host without this file system the folder is made there.
        folder.mkdir(parents=True, exist_ok=True)
        pytest_benchmark.disable_output(self._config)
        secondary.leave_files_to_root(self._config)
        path = folder / f"rank-{self._context.ranks.world.rank}.log"
        log = os.fdopen(open_to_write(path, append=True), "a", encoding="utf-8", buffering=1)
        self._log = log  # of a resumed run, too
        if self._output is not None:
            self._output.release(log)
        self._member.connect(assembly, Path(agreed["folder"]), log)

    def _close(self) -> None:
        self._member.close()
        if self._log is not None:
            self._log.close()


def _refuse_restart(environment: Mapping[str, str]) -> None:
    """Refuse ranks restarted by torchrun, which would find stale keys in the store."""
    count = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
    if count != "0":
        raise UsageProblem(
            f"TORCHELASTIC_RESTART_COUNT={count}: torchrun restarted the ranks, and a "
            "benchmark cannot resume from there; start torchrun with --max-restarts=0, or "
            "run pytest --world-size=<ranks> without torchrun, which replaces failed ranks "
            "itself"
        )
