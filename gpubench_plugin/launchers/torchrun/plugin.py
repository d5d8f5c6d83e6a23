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
from gpubench_plugin.launchers.deadlines import Deadline, Patience
from gpubench_plugin.launchers.in_process import RunsBenchmarks, keep_out_failed
from gpubench_plugin.launchers.outcome import named
from gpubench_plugin.launchers.torchrun.follower import Follower
from gpubench_plugin.launchers.torchrun.peers import Peer, Peers
from gpubench_plugin.launchers.torchrun.rank import Running, run, session_over
from gpubench_plugin.launchers.torchrun.root import Root
from gpubench_plugin.launchers.torchrun.store import Assembly, wait_until
from gpubench_plugin.launchers.watchdog import Watchdog
from gpubench_plugin.results import pytest_benchmark

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpubench_plugin.config import Case
    from gpubench_plugin.distributed import ProcessGroup
    from gpubench_plugin.launchers.output import Valve
    from gpubench_plugin.records import Json


_RANKS_SHOWN: Final = 8
_IDS_SHOWN: Final = 3


def difference(mine: Sequence[str], of_root: Sequence[str]) -> Json:
    """What this rank collected that rank zero did not, and the other way round: the first few."""
    return {
        "count": len(mine),
        "differs": list(mine) != list(of_root),
        "has": listed(sorted(set(mine) - set(of_root)), _IDS_SHOWN),
        "lacks": listed(sorted(set(of_root) - set(mine)), _IDS_SHOWN),
    }


def message(told: Sequence[Json]) -> str:
    """The differences that the ranks `told`, in their order, for the user."""
    different = [rank for rank, one in enumerate(told) if one["differs"]]
    shown = different[:_RANKS_SHOWN]
    counts = ", ".join(f"rank {rank} selected {told[rank]['count']}" for rank in (0, *shown))
    parts = [f"the ranks collected different benchmarks: {counts}"]
    for rank in shown:
        one = told[rank]
        parts += [f"only rank {rank} has {one['has']}"] if one["has"] else []
        parts += [f"rank {rank} lacks {one['lacks']}"] if one["lacks"] else []
        if not (one["has"] or one["lacks"]):
            parts.append(f"rank {rank} has them in another order")
    if len(different) > len(shown):
        parts.append(f"and {len(different) - len(shown)} more ranks differ")
    return "; ".join(parts)


class TorchrunRank(RunsBenchmarks):
    """One of several ranks in a session of torchrun's; adopted and ordinary tests run as ever.

    `output` holds back what a rank other than zero prints until there is a log.

    Raises:
        UsageProblem: torchrun has started the ranks a second time.
    """

    def __init__(self, session: pytest.Session, output: Valve | None):
        super().__init__(session.config)
        _refuse_restart(os.environ)
        self._output = output
        self._order: dict[str, int] = {}
        self._log: TextIO | None = None
        self._last: tuple[pytest.Item, bool] | None = None
        rank = context_of(session.config).ranks.world.rank
        self._member: Root | Follower = Follower(session, rank) if rank else Root(session)
        self._watchdog = Watchdog(self._member.end_hung)
        self._config.add_cleanup(self._close)

    def start(self, session: pytest.Session, benchmarks: Sequence[pytest.Item]) -> None:
        """Compare the collections of all ranks, and send the output of the others to their log.

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
            shared=case.shares_device,
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
        """Run a benchmark in step with the other ranks; another test runs as always."""
        case = case_on_ranks(item)
        if case is None:
            return None
        hook = item.ihook
        hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for report in self._run(item, case, nextitem):
            keep_out_failed(item, report)
            hook.pytest_runtest_logreport(report=report)
            report_payload.drop(report)
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def pytest_enter_pdb(self) -> None:
        """Whoever debugs has all the time."""
        self._watchdog.leave_alone()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Whatever happens to other ranks now: the results are written."""
        self._member.finish()
        why = session.shouldfail or session.shouldstop or f"exit status {int(exitstatus)}"
        self._member.part(str(why))

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Leave together, after everything is written and printed."""
        self._member.leave()
        if not self._member.over:  # else a group with stuck ranks may be impossible to leave
            self._context.ranks.close()

    def _run(
        self, item: pytest.Item, case: Case, nextitem: pytest.Item | None
    ) -> list[pytest.TestReport]:
        """Run it here, and return what all ranks make of it."""
        number = self._order[item.nodeid]
        patience = Patience.with_case(case, self._context.settings.timeout_s)
        member = self._member
        if (reports := member.begin(item, number, patience.timeout_s)) is not None:
            return reports
        clock = member.assembly.clock()
        deadline = Deadline(patience, clock.now())
        running = Running(item=item, number=number, clock=clock, deadline=deadline)
        self._context.ranks.meet(number)
        member.running = running
        with self._watchdog.guarding(patience.timeout_s + member.margin_s, clock):
            if broken := self._not_mended(case):
                member.finish()
                member.over = item.session.shouldfail = broken
                return []
            try:
                reports = run(item, nextitem)
            except (pytest.exit.Exception, KeyboardInterrupt) as error:
                member.tell_exit(error)
                raise
            self._context.ranks.arrive(number, f"the end of {item.name}")
            agreed = member.agree(running, reports)
        member.running = None
        self._last = item, any(report.failed for report in agreed)
        return agreed

    def _not_mended(self, case: Case) -> str:
        """Why the ranks cannot go on together, or nothing: they can, perhaps in a new group.

        After a failure nobody knows what the ranks still have to say to each other. Every rank
        comes to the same.
        """
        if self._last is None:
            return ""
        item, failed = self._last
        grace_s = case.configuration.distributed.failure_grace_s
        ranks = self._context.ranks
        if (failed and ranks.renew()) or ranks.is_sound(grace_s) or ranks.renew():
            return ""
        reason = "left the ranks' process group in disorder"
        return session_over(item, reason, ranks.world.size)

    def _proposal(self, told: Sequence[Json]) -> Json:
        """What rank zero publishes: where the run is, or its benchmarks if others have others."""
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

    def _assemble(self) -> Assembly:
        """The ranks, all of which have benchmarks.

        A process group would wait half an hour for one that has none, and not name it.
        """
        from torch.distributed.distributed_c10d import PrefixStore

        from gpubench_plugin.distributed import store_for

        world, patience_s = self._context.ranks.world, self._context.settings.timeout_s
        connection = store_for(world).clone()  # type: ignore[attr-defined] # not declared
        assembly = Assembly(world, PrefixStore("gpubench/assembly", connection))
        here = Peer.this_process()
        assembly.introduce(here.pid, here.place)
        assembly.begin(0)
        clock = assembly.clock()
        within_s = patience_s + self._member.margin_s
        if wait_until(lambda: assembly.all_began(0), lambda: clock.left(within_s)):
            assembly.learn_neighbours(here.place)
            return assembly
        self._member.finish()
        absent = assembly.absent(0)
        message = (
            f"{named(absent)} of {world.size} did not come within {patience_s:g} s "
            "(gpubench_timeout_s): did it collect benchmarks? All ranks must select the same"
        )
        first = min(set(range(world.size)).difference(absent))
        if world.rank == first:  # rank zero, which says such things, may not be there
            raise pytest.UsageError(message)
        raise UsageProblem(message)

    def _follow(self, agreed: Json, assembly: Assembly) -> None:
        """Take up what rank zero has published."""
        folder = Path(agreed["path"]) / "ranks"
        update_context(self._config, ranks_folder=folder, resumed=agreed["resumed"])
        if isinstance(self._member, Root):
            self._member.meet(assembly, self._peers)
            return
        # On another host without this file system the folder is made there.
        folder.mkdir(parents=True, exist_ok=True)
        pytest_benchmark.mute(self._config)
        secondary.leave_files_to_root(self._config)
        path = folder / f"rank-{self._context.ranks.world.rank}.log"
        log = os.fdopen(open_to_write(path, append=True), "a", encoding="utf-8", buffering=1)
        self._log = log  # of a resumed run, too
        if self._output is not None:
            self._output.release(log)
        self._member.meet(assembly, Path(agreed["folder"]), log)

    def _close(self) -> None:
        self._member.close()
        if self._log is not None:
            self._log.close()


def _refuse_restart(environment: Mapping[str, str]) -> None:
    """Ranks that torchrun started again would meet what they left in the store before."""
    count = environment.get("TORCHELASTIC_RESTART_COUNT", "0")
    if count != "0":
        raise UsageProblem(
            f"TORCHELASTIC_RESTART_COUNT={count}: torchrun has started the ranks again, and a "
            "benchmark cannot go on from there; start torchrun with --max-restarts=0, or run "
            "pytest --world-size=<ranks> without torchrun, which replaces ranks itself"
        )
