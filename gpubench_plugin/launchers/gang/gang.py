"""A gang: worker processes of one world size, reused from benchmark to benchmark.

The controller sends each rank the same order and waits for all of them. The death of a rank shows
by the end of its process, or of its connection, which a forked child would hold open; ranks that
diverge or hang, by deadlines on the controller's clock, which pauses while the controller is
stopped. There are no heartbeats: ranks that measure do nothing else.
"""

from __future__ import annotations

import math
import secrets
import selectors
import socket
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpubench_plugin.core.errors import GangError
from gpubench_plugin.launchers import stacks
from gpubench_plugin.launchers.deadlines import DEATH_SETTLE_S, Deadline, Timeouts
from gpubench_plugin.launchers.gang.processes import RankProcesses, save_flights
from gpubench_plugin.launchers.gang.protocol import JoinInfo, Link
from gpubench_plugin.launchers.outcome import RankOutcome, ranks_text
from gpubench_plugin.launchers.report_transport import LONGEST_TEXT, decode
from gpubench_plugin.system.scratch import private_folder
from gpubench_plugin.system.timeout_clock import TimeoutClock, poll_interval_s

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    import pytest

    from gpubench_plugin.config.rounds_file import FixedRounds
    from gpubench_plugin.core.records import Json
    from gpubench_plugin.launchers.output import LogForwarder

    OnEvent = Callable[[Json], object]

_ACCEPT_S: Final = 0.1
"""How late the death of a rank before it joined may be noticed."""
_HANDSHAKE_S: Final = 5.0
"""A peer that connects and sends no token must not hold up the others."""
_LEAVE_TIMEOUT_S: Final = 10.0
"""Long enough for fixtures of a session scope to be torn down."""
_EXIT_TIMEOUT_S: Final = 0.5
"""A process that closed its connection has its exit code soon after."""


def ignored(event: Json) -> None:
    """Callback for tests whose events are not recorded."""


class Gang:
    """`size` ranks running the pytest `command` in `folder`; started by the constructor.

    `run` is the run directory; `forwarder` shows the output of the ranks.

    Raises:
        GangError: a rank exited, or timed out, before all had joined.
    """

    def __init__(
        self,
        size: int,
        *,
        config: pytest.Config,
        command: Sequence[str],
        folder: Path,
        run: Path,
        timeouts: Timeouts,
        forwarder: LogForwarder | None = None,
    ):
        self.size = size
        self._config = config
        self._run = run
        self._forwarder = forwarder
        self._order_number = 0
        self._on_event: OnEvent = ignored
        self._links: dict[int, Link] = {}
        self._scratch = private_folder()
        self._selector = selectors.DefaultSelector()
        self._cleanup = ExitStack()
        self._cleanup.callback(self._scratch.remove)
        self._cleanup.callback(self._disconnect)
        if forwarder is not None:
            self._cleanup.callback(forwarder.finish)
        self._join_info = JoinInfo(folder=self._scratch.path, token=secrets.token_hex(16))
        try:
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(self._join_info.socket))
                listener.listen(size)
                self._processes = RankProcesses(
                    size,
                    command=command,
                    join_info=self._join_info,
                    logs=run / "ranks",
                    folder=folder,
                )
                self._cleanup.callback(self._processes.kill)
                if forwarder is not None:
                    forwarder.follow(self._processes.logs, self._processes.log_offsets)
                clock = TimeoutClock()
                join_deadline = Deadline.to_join(timeouts, clock.now())
                self._accept_ranks(listener, clock, join_deadline)
            self._await_collections(clock, join_deadline)
        except OSError as error:
            self.kill()
            raise GangError(f"could not start the gang of {size}: {error}") from error
        except BaseException:
            self.kill()
            raise

    @property
    def is_idle(self) -> bool:
        """Whether every rank is connected and idle."""
        return bool(self._links) and all(connection.is_open for connection in self._links.values())

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

    def is_healthy(self, timeout_s: float) -> bool:
        """Whether the idle ranks can still communicate; kills the gang if one does not answer."""
        self._order_number += 1
        for connection in self._links.values():
            connection.send({"health_timeout_s": timeout_s, "number": self._order_number})
        clock = TimeoutClock()
        deadline = clock.now() + 4 * timeout_s  # ranks take up to three of them
        answers: dict[int, bool] = {}
        for rank, message in self._messages(clock, lambda: deadline):
            if message is None or message.get("number") != self._order_number:
                break
            answers[rank] = message["healthy"]
            if len(answers) == self.size:
                return all(answers.values())
        self.kill()
        return False

    def run(
        self,
        nodeid: str,
        next_nodeid: str | None,
        timeouts: Timeouts,
        rounds: FixedRounds | None = None,
        on_event: OnEvent = ignored,
    ) -> list[RankOutcome]:
        """Run one test on every rank; return the outcomes in rank order.

        `next_nodeid` is the gang's next test, so that fixtures of both live on; `rounds` are those
        to time, None where the stopping rule decides; `on_event` is called with each event that
        rank zero sends meanwhile. Kills the gang if not every rank finished.
        """
        self._order_number += 1
        self._on_event = on_event
        order: Json = {"run": nodeid, "next": next_nodeid, "number": self._order_number}
        if rounds is not None:
            order["rounds"] = asdict(rounds)
        clock = TimeoutClock()
        deadline = Deadline(timeouts, clock.now())
        for connection in self._links.values():
            connection.send(order)
        outcomes: dict[int, RankOutcome] = {}
        for rank, message in self._messages(clock, lambda: deadline.at):
            if message is None:
                break
            if message.get("number") != self._order_number:
                return self._give_up(outcomes, "answered out of order")
            outcomes[rank] = outcome = decode(self._config, rank, message)
            if len(outcomes) == self.size:
                return [outcomes[rank] for rank in range(self.size)]
            deadline.rank_ended(clock.now(), passed=outcome.passed, skipped=outcome.skipped)
        return self._give_up(outcomes, deadline.message)

    def close(self) -> None:
        """Shut down the ranks, killing those that do not exit."""
        if self.is_idle:
            for connection in self._links.values():
                connection.send({"finish": True})
            self._processes.wait(_LEAVE_TIMEOUT_S)
        self.kill()

    def kill(self) -> None:
        """Kill all ranks and remove their shared files."""
        self._cleanup.close()

    def _disconnect(self) -> None:
        for connection in self._links.values():
            connection.close()
        self._links.clear()
        self._selector.close()

    def _accept_ranks(
        self, listener: socket.socket, clock: TimeoutClock, join_deadline: Deadline
    ) -> None:
        """Accept connections from all ranks that know the token."""
        while len(self._links) < self.size:
            remaining_s = clock.remaining(join_deadline.at)
            listener.settimeout(_ACCEPT_S)
            try:
                accepted, _ = listener.accept()
            except TimeoutError:
                self._check_alive()
                if remaining_s <= 0:
                    raise self._join_error(self._links, join_deadline.message) from None
                continue
            accepted.settimeout(_HANDSHAKE_S)
            connection = Link(accepted)
            hello = connection.receive() or {}
            token = str(hello.get("token")).encode()
            if not secrets.compare_digest(token, self._join_info.token.encode()):
                connection.close()
                continue
            accepted.settimeout(None)
            rank = int(hello["rank"])
            self._links[rank] = connection
            self._selector.register(connection, selectors.EVENT_READ, rank)
            if (pidfd := self._processes.pidfds.get(rank)) is not None:
                self._selector.register(pidfd, selectors.EVENT_READ, rank)

    def _await_collections(self, clock: TimeoutClock, join_deadline: Deadline) -> None:
        """Send the run directory, and wait until all ranks have collected their tests."""
        for connection in self._links.values():
            connection.send({"run_directory": str(self._run)})
        ready: set[int] = set()
        for rank, message in self._messages(clock, lambda: join_deadline.at):
            if message is None:
                break
            ready.add(rank)
            if len(ready) == self.size:
                return
            join_deadline.rank_joined(clock.now())
        self._check_alive()
        raise self._join_error(ready, join_deadline.message)

    def _join_error(self, joined: Collection[int], limit_text: str) -> GangError:
        """GangError about the ranks that did not join, with their stacks."""
        missing = set(range(self.size)).difference(joined)
        message = (
            f"{ranks_text(missing, self.size)} did not join the gang of {self.size} {limit_text}"
        )
        stacks_by_rank = stacks.request(self._join_info.folder, self._processes.running_pids)
        return GangError(message, self._output(min(missing)), hang=True, stacks=stacks_by_rank)

    def _check_alive(self) -> None:
        for rank in range(self.size):
            if exit_text := self._exit_text(rank):
                message = (
                    f"{self._name(rank)} {exit_text} while the gang of {self.size} was starting"
                )
                was_killed = not self._processes.has_exited(rank)
                raise GangError(message, self._output(rank), killed=was_killed)

    def _messages(
        self, clock: TimeoutClock, deadline: Callable[[], float]
    ) -> Iterator[tuple[int, Json | None]]:
        """Messages of the ranks as they arrive; None for a rank's end or a timeout.

        Before a timeout, everything that has arrived is read.
        """
        # The selector does not know of messages that are buffered already.
        for rank, connection in self._links.items():
            answers = self._answers(connection.buffered())
            yield from ((rank, answer) for answer in answers)
        remaining_s = math.inf
        selected: list[tuple[selectors.SelectorKey, int]] = []
        while remaining_s > 0 or selected:
            remaining_s = clock.remaining(deadline())
            pause = remaining_s if self._forwarder is None else self._forwarder()
            selected = self._selector.select(min(poll_interval_s(remaining_s), pause))
            for key, _ in selected:
                rank, connection = key.data, self._links[key.data]
                has_died = key.fileobj is not connection
                if has_died:
                    self._selector.unregister(key.fileobj)
                was_open = connection.is_open
                if not was_open:
                    continue
                messages = connection.drain() if has_died else connection.read_available()
                if not connection.is_open:
                    self._selector.unregister(connection)
                yield from ((rank, message) for message in self._answers(messages))
                if not connection.is_open:
                    yield rank, None
        yield -1, None

    def _answers(self, messages: Iterable[Json]) -> Iterator[Json]:
        """The `messages` that are no events; those of the running test are passed on at once."""
        for message in messages:
            if "event" not in message:
                yield message
            elif message.get("number") == self._order_number:
                self._on_event(message["event"])

    def _give_up(self, outcomes: dict[int, RankOutcome], message: str) -> list[RankOutcome]:
        """Collect the stacks of the ranks that still run the test, then kill the gang."""
        has_dead = any(not connection.is_open for connection in self._links.values())
        if has_dead:
            self._collect_deaths()
        exit_texts = {rank: self._exit_text(rank) for rank in self._links}
        running_pids = self._processes.running_pids
        stuck_pids = {rank: pid for rank, pid in running_pids.items() if rank not in outcomes}
        stacks_by_rank = stacks.request(self._join_info.folder, stuck_pids)
        flights = save_flights(self._join_info, self._run / "ranks") if not has_dead else []
        final_outcomes = []
        for rank in range(self.size):
            outcome = outcomes.get(rank, RankOutcome(rank=rank, state="stuck", details=message))
            if exit_texts[rank]:
                outcome = replace(outcome, state="died", details=exit_texts[rank])
            stack, output = stacks_by_rank.get(rank, ""), self._output(rank, flights)
            final_outcomes.append(replace(outcome, stack=stack, output=output))
        self.kill()
        return final_outcomes

    def _name(self, rank: int) -> str:
        return ranks_text([rank], self.size)

    def _exit_text(self, rank: int) -> str:
        """Exit text of the rank; empty while it runs."""
        connection = self._links.get(rank)
        if connection is None or connection.is_open:
            return self._processes.exit_text(rank)
        exit_text = self._processes.exit_text(rank, _EXIT_TIMEOUT_S)
        return exit_text or "disconnected from the controller"

    def _collect_deaths(self) -> None:
        """Collect the deaths that follow the first, which may have caused it."""
        for _ in self._messages(TimeoutClock(), lambda: DEATH_SETTLE_S):
            pass

    def _output(self, rank: int, flights: Sequence[Path] = ()) -> str:
        """Tail of a rank's output since the gang started, with its flight recording."""
        text = self._processes.output_tail(rank, LONGEST_TEXT)
        recordings = [
            f"flight recorder: {path}" for path in flights if path.name.endswith(f"-{rank}")
        ]
        return "\n".join([text.rstrip(), *recordings]).strip()
