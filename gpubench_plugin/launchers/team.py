"""The ranks of a controller: connected processes of one world size, which obey its orders.

The controller sends each rank the same order and waits for all of them. The death of a rank shows
by the end of its process, or of its connection, which a forked child would hold open; ranks that
diverge or hang, by deadlines on the controller's clock, which pauses while the controller is
stopped. There are no heartbeats: ranks that measure do nothing else.
"""

from __future__ import annotations

import math
import os
import select
import selectors
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Final

from gpubench_plugin.core.errors import GangError
from gpubench_plugin.launchers.deadlines import DEATH_SETTLE_S, Deadline, Timeouts
from gpubench_plugin.launchers.link import (
    Invitation,
    Reception,
    address_of,
    listen_tcp,
    listen_unix,
    new_token,
)
from gpubench_plugin.launchers.outcome import RankOutcome, ranks_text
from gpubench_plugin.launchers.processes import GOOD_ENDS, PeerRank, save_flights
from gpubench_plugin.launchers.report_transport import LONGEST_TEXT, decode
from gpubench_plugin.system import stacks
from gpubench_plugin.system.scratch import private_folder
from gpubench_plugin.system.timeout_clock import TimeoutClock, poll_interval_s

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    import pytest

    from gpubench_plugin.config.rounds_file import FixedRounds
    from gpubench_plugin.core.records import Json
    from gpubench_plugin.launchers.link import Link
    from gpubench_plugin.launchers.merged_reports import Phase
    from gpubench_plugin.launchers.output import LogForwarder
    from gpubench_plugin.launchers.processes import RankCommand, RankProcess
    from gpubench_plugin.launchers.ways.base import Launcher

    OnEvent = Callable[[Json], object]

_ACCEPT_S: Final = 0.1
"""How late the death of a rank before it joined may be noticed."""
_LEAVE_TIMEOUT_S: Final = 10.0
"""Long enough for fixtures of a session scope to be torn down."""
_EXIT_TIMEOUT_S: Final = 0.5
"""A process that closed its connection has its exit code soon after."""
_ANSWER_S: Final = 1.0
"""For the stack of a rank on another host."""


class Team:
    """`size` ranks started by `launcher` with the command `call`; complete once constructed.

    `welcome` is told to each rank that joins; `forwarder` shows the output of the ranks.

    Raises:
        GangError: a rank exited, or timed out, before all had joined.
    """

    def __init__(
        self,
        size: int,
        *,
        config: pytest.Config,
        launcher: Launcher,
        call: RankCommand,
        welcome: Json,
        timeouts: Timeouts,
        forwarder: LogForwarder | None = None,
    ):
        self.size = size
        self.collected: dict[int, list[str]] = {}
        """Ids of the tests that each rank has collected."""
        self._config = config
        self._logs = call.logs
        self._forwarder = forwarder
        self._number = self._order_number = 0
        self._in_test: set[int] = set()
        self._clock = TimeoutClock()
        self._until, self._phase_began = math.inf, 0.0
        self._on_event: OnEvent = lambda _: None
        self._links: dict[int, Link] = {}
        self._processes: dict[int, RankProcess] = {}
        self._peers: dict[int, PeerRank] = {}  # the ranks themselves, perhaps below a wrapper
        self._pidfds: dict[int, int] = {}
        self._scratch = private_folder()
        self._selector = selectors.DefaultSelector()
        self._cleanup = ExitStack()
        self._cleanup.callback(self._scratch.remove)
        self._cleanup.callback(self._disconnect)
        if forwarder is not None:
            self._cleanup.callback(forwarder.finish)
        try:
            self._start(launcher, call, welcome, timeouts)
        except OSError as error:
            self.kill()
            raise GangError(f"could not start the gang of {size}: {error}") from error
        except BaseException:
            self.kill()
            raise

    @property
    def is_idle(self) -> bool:
        """Whether every rank is connected."""
        return bool(self._links) and all(connection.is_open for connection in self._links.values())

    @property
    def runs_test(self) -> bool:
        """Whether any rank is between the setup and the tear-down of a test."""
        return bool(self._in_test)

    @property
    def has_lost_ranks(self) -> bool:
        """Whether a rank has ended, noticed or not; asked in signal handlers, too."""
        poll = select.poll()
        for descriptor in self._pidfds.values():
            poll.register(descriptor, select.POLLIN)
        return not self.is_idle or bool(poll.poll(0))

    def lost_ranks(self) -> str:
        """Describe ranks that ended since the last benchmark; empty if none."""
        # Between benchmarks a rank sends nothing: a readable connection has ended.
        if not self._links or (self.is_idle and not self._selector.select(0)):
            return ""
        self._collect_deaths()
        return "; ".join(
            f"{self._name(rank)} {self._exit_text(rank)}"
            for rank, connection in self._links.items()
            if not connection.is_open
        )

    def is_healthy(self, timeout_s: float, *, damaged: bool = False) -> bool:
        """Whether the idle ranks can communicate, after a test that may have `damaged` their group.

        Ranks that cannot be replaced make a new one.
        """
        self._number += 1
        self._send({"health_timeout_s": timeout_s, "damaged": damaged})
        clock = TimeoutClock()
        deadline = clock.now() + 8 * timeout_s  # ranks take up to three of them, and renew
        answers: dict[int, bool] = {}
        for rank, message in self._messages(clock, lambda: deadline):
            if message is None or message.get("order") != self._order_number:
                break
            answers[rank] = message["healthy"]
            if len(answers) == self.size:
                return all(answers.values())
        self.give_up()
        return False

    def begin(self, timeouts: Timeouts, rounds: FixedRounds | None, on_event: OnEvent) -> None:
        """Begin another test; `on_event` is called with each event that rank zero sends.

        `rounds` are those to time, None where the stopping rule decides.
        """
        self._number += 1
        self._in_test = set()
        self._timeouts = timeouts
        self._rounds: Json = {} if rounds is None else {"rounds": asdict(rounds)}
        self._clock = TimeoutClock()
        self._until = timeouts.timeout_s
        self._on_event = on_event

    def run(self, phase: Phase, nodeid: str, next_nodeid: str | None = None) -> list[RankOutcome]:
        """Run a phase of the test on every rank; return the outcomes in rank order.

        `next_nodeid` is the ranks' next test, so that fixtures of both live on. Ranks that have
        not collected the test run no more than its setup. If not every rank finished,
        :attr:`is_idle` is False afterwards.
        """
        self._phase_began = self._clock.now()
        deadline = Deadline(self._timeouts, self._phase_began, until=self._until)
        order = {"phase": phase, "run": nodeid, "next": next_nodeid, **self._rounds}
        ranks = {*self._links} if phase == "setup" else {*self._in_test}
        self._send(order, ranks)
        outcomes: dict[int, RankOutcome] = {}
        for rank, message in self._messages(self._clock, lambda: deadline.at):
            if message is None:
                break
            if message.get("order") != self._order_number:
                return self.abandon(outcomes, "answered out of order")
            outcomes[rank] = outcome = decode(self._config, rank, message)
            if outcome.state == "ended":
                (self._in_test.discard if phase == "teardown" else self._in_test.add)(rank)
            if ranks <= outcomes.keys():
                return [outcomes[rank] for rank in sorted(outcomes)]
            deadline.rank_ended(self._clock.now(), passed=outcome.passed, skipped=outcome.skipped)
        return self.abandon(outcomes, deadline.message)

    def abandon(self, outcomes: Mapping[int, RankOutcome], message: str) -> list[RankOutcome]:
        """Outcomes with the stacks of the ranks that still run the test; the team is finished."""
        has_dead = any(not connection.is_open for connection in self._links.values())
        if has_dead:
            self._collect_deaths()
        exit_texts = {rank: self._exit_text(rank) for rank in self._links}
        running = [rank for rank, process in self._processes.items() if not process.exit_text()]
        stuck = [rank for rank in running if rank not in outcomes]
        waited_s = self._clock.now() - self._phase_began
        stacks_by_rank = self._stacks(stuck)
        flights = [] if has_dead else save_flights(self._scratch.path, self._logs)
        final_outcomes = []
        for rank in range(self.size):
            unended = RankOutcome(rank=rank, state="stuck", details=message, duration_s=waited_s)
            outcome = outcomes.get(rank, unended)
            if exit_texts.get(rank):
                outcome = replace(outcome, state="died", details=exit_texts[rank])
            stack, output = stacks_by_rank.get(rank, ""), self._output(rank, flights)
            final_outcomes.append(replace(outcome, stack=stack, output=output))
        self.give_up()
        return final_outcomes

    def give_up(self) -> None:
        """Order nothing more, as ranks are in no known state."""
        for connection in self._links.values():
            connection.is_open = False

    def close(self) -> str:
        """Shut down the ranks, killing those that do not exit; which of them did not end well."""
        faults = []
        if self.is_idle:
            self._send({"finish": True})
            clock = TimeoutClock()
            departed = self._departed({r for r, peer in self._peers.items() if not peer.pid}, clock)
            for rank, process in self._processes.items():
                exit_text = process.exit_text(clock.remaining(_LEAVE_TIMEOUT_S))
                if exit_text not in GOOD_ENDS and rank not in departed:
                    fault = exit_text or f"did not exit within {_LEAVE_TIMEOUT_S:g} s"
                    faults.append(f"{self._name(rank)} {fault}")
        self.kill()
        return "; ".join(faults)

    def _departed(self, ranks: Collection[int], clock: TimeoutClock) -> set[int]:
        """Those of the `ranks`, on other hosts, that disconnect in time; no more is known there."""
        departed: set[int] = set()
        for rank, message in self._messages(clock, lambda: _LEAVE_TIMEOUT_S) if ranks else ():
            if message is None and rank in ranks:
                departed.add(rank)
            if rank < 0 or departed == ranks:
                break
        return departed

    def kill(self) -> None:
        """Kill all ranks and remove their shared files; idempotent."""
        self._cleanup.close()

    def _start(
        self, launcher: Launcher, call: RankCommand, welcome: Json, timeouts: Timeouts
    ) -> None:
        host = launcher.host()
        listeners = [listen_unix(str(self._scratch.path / "controller"))]
        if host is not None:
            listeners.append(listen_tcp(host))
        invitation = Invitation(
            addresses=tuple(map(address_of, listeners)),
            token=new_token(),
            runs_all=launcher.runs_all,
        )
        reception = Reception(invitation.token, listeners)
        try:
            for rank, process in launcher.start(self.size, invitation, call):
                self._processes[rank] = process
                self._cleanup.callback(process.kill)
            if self._forwarder is not None:
                self._forwarder.follow(
                    {rank: p.log for rank, p in self._processes.items() if p.log is not None}
                )
            clock = TimeoutClock()
            join_deadline = Deadline.to_join(timeouts, clock.now())
            self._admit(reception, clock, join_deadline)
        finally:
            reception.close()
        self._await_collections(welcome, clock, join_deadline)

    def _disconnect(self) -> None:
        for connection in self._links.values():
            connection.close()
        self._links.clear()
        self._selector.close()
        for descriptor in self._pidfds.values():
            os.close(descriptor)
        self._pidfds.clear()

    def _admit(self, reception: Reception, clock: TimeoutClock, join_deadline: Deadline) -> None:
        """Take in all ranks."""
        while len(self._links) < self.size:
            remaining_s = clock.remaining(join_deadline.at)
            pause_s = min(_ACCEPT_S, poll_interval_s(remaining_s))
            for connection, hello in reception.admitted(pause_s):
                rank = int(hello["rank"])
                if not 0 <= rank < self.size:
                    connection.close()
                    continue
                if (earlier := self._links.pop(rank, None)) is not None:  # it gave that one up
                    self._selector.unregister(earlier)
                    earlier.close()
                self._links[rank] = connection
                self._selector.register(connection, selectors.EVENT_READ, rank)
                self._peers[rank] = peer = PeerRank(hello)
                self._watch(rank, peer.pid)
                self._processes.setdefault(rank, peer)
            self._check_alive()
            if len(self._links) < self.size and remaining_s <= 0:
                raise self._join_error(self._links, join_deadline.message)

    def _watch(self, rank: int, pid: int | None) -> None:
        """Notice the end of the process at once (Linux 5.3 or newer, and not in every sandbox)."""
        if pid is not None and rank not in self._pidfds:
            with suppress(AttributeError, OSError):
                self._pidfds[rank] = os.pidfd_open(pid)
                self._selector.register(self._pidfds[rank], selectors.EVENT_READ, rank)

    def _await_collections(
        self, welcome: Json, clock: TimeoutClock, join_deadline: Deadline
    ) -> None:
        """Welcome all ranks, and wait until they have collected their tests."""
        self._send({"welcome": welcome})
        for rank, message in self._messages(clock, lambda: join_deadline.at):
            if message is None:
                break
            self.collected[rank] = message["collected"]
            if len(self.collected) == self.size:
                return
            join_deadline.rank_joined(clock.now())
        self._check_alive()
        raise self._join_error(self.collected, join_deadline.message)

    def _join_error(self, joined: Collection[int], limit_text: str) -> GangError:
        """GangError about the ranks that did not join, with their stacks."""
        missing = set(range(self.size)).difference(joined)
        message = f"{ranks_text(missing, self.size)} of {self.size} did not join {limit_text}"
        if missing.isdisjoint(self._processes):
            message += ": were benchmarks collected there? All ranks must select the same tests"
        present = [rank for rank in self._processes if not self._exit_text(rank)]
        return GangError(
            message, self._output(min(missing)), hang=True, stacks=self._stacks(present)
        )

    def _check_alive(self) -> None:
        for rank in sorted(self._processes):
            if exit_text := self._exit_text(rank):
                message = (
                    f"{self._name(rank)} {exit_text} while the gang of {self.size} was starting"
                )
                was_killed = self._processes[rank].was_killed
                raise GangError(message, self._output(rank), killed=was_killed)

    def _send(self, order: Json, ranks: Collection[int] | None = None) -> None:
        self._order_number += 1
        order |= {"order": self._order_number, "number": self._number}
        for rank, connection in self._links.items():
            if ranks is None or rank in ranks:
                connection.send(order)

    def _messages(
        self, clock: TimeoutClock, deadline: Callable[[], float]
    ) -> Iterator[tuple[int, Json | None]]:
        """Messages of the ranks as they arrive; None for a rank's end or a timeout.

        Before a timeout, everything that has arrived is read.
        """
        # The selector does not know of messages that are buffered already.
        for rank, connection in self._links.items():
            yield from ((rank, answer) for answer in self._answers(connection.buffered()))
        remaining_s = math.inf
        selected: list[tuple[selectors.SelectorKey, int]] = []
        while remaining_s > 0 or selected:
            remaining_s = clock.remaining(deadline())
            pause = remaining_s if self._forwarder is None else self._forwarder()
            selected = self._selector.select(min(poll_interval_s(remaining_s), pause))
            arrived: list[tuple[int, Json | None]] = []
            for key, _ in selected:
                rank, connection = key.data, self._links[key.data]
                has_died = key.fileobj is not connection
                if has_died:
                    self._selector.unregister(key.fileobj)
                if not connection.is_open:
                    continue
                messages = connection.read_available()
                connection.is_open &= not has_died  # a forked process may hold it open
                arrived += [(rank, message) for message in self._answers(messages)]
                if not connection.is_open:
                    self._selector.unregister(connection)
                    arrived.append((rank, None))
            # Only now: what rank zero logged is passed on even if the first of them ends the team.
            yield from arrived
        yield -1, None

    def _answers(self, messages: Iterable[Json]) -> Iterator[Json]:
        """The `messages` that are no events; those of the running test are passed on at once."""
        for message in messages:
            if "event" not in message:
                yield message
            elif message.get("number") == self._number:
                self._on_event(message["event"])

    def _stacks(self, ranks: Iterable[int]) -> dict[int, str]:
        """Stacks of the `ranks`: by a signal on this host, else by their listening threads."""
        pids: dict[int, int] = {}
        remote: set[int] = set()
        for rank in ranks:
            process = self._peers.get(rank) or self._processes.get(rank)
            if process is not None and process.pid is not None:
                pids[rank] = process.pid
            elif rank in self._links and self._links[rank].is_open:
                remote.add(rank)
        stacks_by_rank = stacks.request(self._scratch.path, pids)
        if not remote:
            return stacks_by_rank
        self._send({"stack": True}, remote)
        for rank, message in self._messages(TimeoutClock(), lambda: _ANSWER_S):
            if message is not None and "stack" in message:
                stacks_by_rank[rank] = message["stack"]
            if remote <= stacks_by_rank.keys():
                break
        return stacks_by_rank

    def _name(self, rank: int) -> str:
        return ranks_text([rank], self.size)

    def _exit_text(self, rank: int) -> str:
        """Exit text of the rank; empty while it runs."""
        connection, process = self._links.get(rank), self._processes[rank]
        if connection is None or connection.is_open:
            return process.exit_text()
        exit_text = process.exit_text(_EXIT_TIMEOUT_S)
        return exit_text or f"disconnected from the controller{process.where}"

    def _collect_deaths(self) -> None:
        """Collect the deaths that follow the first, which may have caused it."""
        for _ in self._messages(TimeoutClock(), lambda: DEATH_SETTLE_S):
            pass

    def _output(self, rank: int, flights: Sequence[Path] = ()) -> str:
        """Tail of a rank's output since the team started, with its flight recording."""
        process = self._processes.get(rank)
        text = "" if process is None else process.output_tail(LONGEST_TEXT)
        recordings = [
            f"flight recorder: {path}" for path in flights if path.name.endswith(f"-{rank}")
        ]
        return "\n".join([text.rstrip(), *recordings]).strip()
