"""A gang: the ranks of one world size, kept alive from one benchmark to the next.

The controller sends each rank the same order and waits for all of them. A rank that dies is
noticed by the end of its process, or of its connection, which a child that it forked would hold
open; ranks that part, or never end, by deadlines on the controller's own clock, which stands still
while the controller or a rank is stopped. Nothing beats on the ranks: while they measure they only
measure.
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

from gpubench_plugin.environment import WakingClock, is_stopped, nap_s
from gpubench_plugin.errors import GangError
from gpubench_plugin.launchers import stacks
from gpubench_plugin.launchers.deadlines import Deadline, Muster, Patience
from gpubench_plugin.launchers.gang.processes import Launcher, keep_flights
from gpubench_plugin.launchers.gang.protocol import Invitation, Wire
from gpubench_plugin.launchers.outcome import Ending, named
from gpubench_plugin.launchers.rank_reports import LONGEST_TEXT, decode
from gpubench_plugin.launchers.scratch import private_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    import pytest

    from gpubench_plugin.config import FrozenRounds
    from gpubench_plugin.launchers.output import Output
    from gpubench_plugin.records import Json

SETTLE_S: Final = 0.05
"""The first end of a connection is not always the first death: others follow within this time."""
_FAREWELL_S: Final = 10.0
_EXIT_S: Final = 0.5


class Gang:
    """`size` ranks that run `command`, a pytest, in `folder`, started by constructing this.

    `output` passes on what the ranks write, where the user wants to see it.

    Raises:
        GangError: a rank ended, or did not come, before all had joined.
    """

    def __init__(
        self,
        size: int,
        *,
        config: pytest.Config,
        command: Sequence[str],
        folder: Path,
        run: Path,
        patience: Patience,
        output: Output | None = None,
    ):
        self.size = size
        self._config = config
        self._run = run
        self._shown = output
        self._numbers = 0
        self._wires: dict[int, Wire] = {}
        self._private = private_folder()
        self._selector = selectors.DefaultSelector()
        self._cleanup = ExitStack()
        self._cleanup.callback(self._private.remove)
        self._cleanup.callback(self._hang_up)
        if output is not None:
            self._cleanup.callback(output.finish)
        self._invitation = Invitation(folder=self._private.path, token=secrets.token_hex(16))
        try:
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(str(self._invitation.socket))
                listener.listen(size)
                self._launcher = Launcher(
                    size,
                    command=command,
                    invitation=self._invitation,
                    logs=run / "ranks",
                    folder=folder,
                )
                self._cleanup.callback(self._launcher.kill)
                if output is not None:
                    output.follow(self._launcher.logs, self._launcher.beginnings)
                clock = self._clock()
                muster = Muster(patience, clock.now())
                self._welcome(listener, clock, muster)
            self.collected = self._gather_collections(clock, muster)
        except OSError as error:
            self.kill()
            raise GangError(f"the gang of {size} could not be started: {error}") from error
        except BaseException:
            self.kill()
            raise

    @property
    def is_whole(self) -> bool:
        """Whether every rank waits for the next order."""
        return bool(self._wires) and all(wire.is_open for wire in self._wires.values())

    def lost(self) -> str:
        """Which ranks have ended since the last benchmark, and how; nothing while all wait."""
        # Between benchmarks a rank says nothing: what can be read is an end.
        if not self._wires or (self.is_whole and not self._selector.select(0)):
            return ""
        self._settle()
        return "; ".join(
            f"{named([rank])} {self._end_of(rank)}"
            for rank, wire in self._wires.items()
            if not wire.is_open
        )

    def is_sound(self, within_s: float) -> bool:
        """Whether the ranks, between two benchmarks, still meet in their process group.

        A gang in which not every rank can answer has been killed.
        """
        self._numbers += 1
        for wire in self._wires.values():
            wire.send({"soundness": within_s, "number": self._numbers})
        clock = self._clock()
        until = clock.now() + 4 * within_s  # the ranks take it up to three times, one after another
        answers: dict[int, bool] = {}
        for rank, message in self._messages(clock, lambda: until):
            if message is None or message.get("number") != self._numbers:
                break
            answers[rank] = message["sound"]
            if len(answers) == self.size:
                return all(answers.values())
        self.kill()
        return False

    def run(
        self,
        nodeid: str,
        following: str | None,
        patience: Patience,
        rounds: FrozenRounds | None = None,
    ) -> list[Ending]:
        """Run one test on every rank; what became of it, in the order of ranks.

        `following` is the test that this gang will run next, so that fixtures both need live on;
        `rounds` are those that the test is timed in, None where its rule decides.
        When not every rank came to the end, the gang has been killed.
        """
        self._numbers += 1
        order: Json = {"run": nodeid, "following": following, "number": self._numbers}
        if rounds is not None:
            order["rounds"] = asdict(rounds)
        clock = self._clock()
        deadline = Deadline(patience, clock.now())
        for wire in self._wires.values():
            wire.send(order)
        endings: dict[int, Ending] = {}
        for rank, message in self._messages(clock, lambda: deadline.at):
            if message is None:
                break
            if message.get("number") != self._numbers:  # not what was asked, or not by the rank
                return self._give_up(endings, "answered out of turn")
            endings[rank] = ending = self._ending(rank, message)
            if len(endings) == self.size:
                return [endings[rank] for rank in range(self.size)]
            deadline.rank_ended(clock.now(), passed=ending.passed, skipped=ending.skipped)
        return self._give_up(endings, deadline.why)

    def close(self) -> None:
        """Let the ranks end in order, and kill those that do not."""
        if self.is_whole:
            for wire in self._wires.values():
                wire.send({"finish": True})
            self._launcher.wait(_FAREWELL_S)
        self.kill()

    def kill(self) -> None:
        """End all ranks, whatever they are doing, and remove what they shared."""
        self._cleanup.close()

    def _hang_up(self) -> None:
        for wire in self._wires.values():
            wire.close()
        self._wires.clear()
        self._selector.close()

    def _clock(self) -> WakingClock:
        """A clock that stands still while this process, or a rank, is stopped."""
        return WakingClock(stopped=lambda: any(map(is_stopped, self._launcher.living.values())))

    def _welcome(self, listener: socket.socket, clock: WakingClock, muster: Muster) -> None:
        """Accept every rank that knows the token."""
        while len(self._wires) < self.size:
            left = clock.left(muster.at)
            listener.settimeout(0.1)  # to notice a rank that ended before it came
            try:
                end, _ = listener.accept()
            except TimeoutError:
                self._require_living()
                if left <= 0:
                    raise self._not_come(self._wires, muster.why) from None
                continue
            end.settimeout(5.0)
            wire = Wire(end)
            hello = wire.receive() or {}
            token = str(hello.get("token")).encode()
            if not secrets.compare_digest(token, self._invitation.token.encode()):
                wire.close()
                continue
            end.settimeout(None)
            self._watch(int(hello["rank"]), wire)

    def _watch(self, rank: int, wire: Wire) -> None:
        """From now on hear what the rank says, and of its end."""
        self._wires[rank] = wire
        self._selector.register(wire, selectors.EVENT_READ, rank)
        if rank in self._launcher.deaths:
            self._selector.register(self._launcher.deaths[rank], selectors.EVENT_READ, rank)

    def _gather_collections(self, clock: WakingClock, muster: Muster) -> dict[int, Json]:
        """What each rank says of its collection, once all have told."""
        for wire in self._wires.values():
            wire.send({"run_directory": str(self._run)})
        told: dict[int, Json] = {}
        for rank, message in self._messages(clock, lambda: muster.at):
            if message is None:
                break
            told[rank] = message
            if len(told) == self.size:
                return dict(sorted(told.items()))
            muster.rank_came(clock.now())
        self._require_living()
        raise self._not_come(told, muster.why)

    def _not_come(self, here: Collection[int], why: str) -> GangError:
        """That some ranks are not `here` yet, and where all of them are."""
        missing = set(range(self.size)).difference(here)
        said = f"{named(missing)} did not come to the gang of {self.size} {why}"
        living = self._launcher.living
        where = stacks.ask(living, {rank: self._invitation.stack(rank) for rank in living})
        return GangError(said, self._output(min(missing)), hang=True, stacks=where)

    def _require_living(self) -> None:
        for rank in range(self.size):
            if end := self._end_of(rank):
                said = f"rank {rank} {end} while the gang of {self.size} started"
                by_itself = self._launcher.exited(rank)
                raise GangError(said, self._output(rank), killed=not by_itself)

    def _messages(
        self, clock: WakingClock, deadline: Callable[[], float]
    ) -> Iterator[tuple[int, Json | None]]:
        """Each rank's messages as they come; the end of a rank, or of time, is a None.

        Time is not over before everything that is there has been read.
        """
        for rank, read in self._wires.items():  # of what has been read the selector knows nothing
            yield from ((rank, message) for message in read.waiting())
        left = math.inf
        ready: list[tuple[selectors.SelectorKey, int]] = []
        while left > 0 or ready:
            left = clock.left(deadline())
            pause = left if self._shown is None else self._shown()
            ready = self._selector.select(min(nap_s(left), pause))
            for key, _ in ready:
                rank, wire = key.data, self._wires[key.data]
                died = key.fileobj is not wire
                if died:
                    self._selector.unregister(key.fileobj)
                is_news = wire.is_open  # not yet ended
                if not is_news:
                    continue
                messages = wire.rest() if died else wire.available()
                if not wire.is_open:
                    self._selector.unregister(wire)
                yield from ((rank, message) for message in messages)
                if not wire.is_open:
                    yield rank, None
        yield -1, None

    def _ending(self, rank: int, message: Json) -> Ending:
        if "absent" in message:
            return Ending(rank=rank, state="absent", told=message["absent"])
        return decode(self._config, rank, message)

    def _give_up(self, endings: dict[int, Ending], why: str) -> list[Ending]:
        """Find out where everybody is, then end the gang."""
        dead = any(not wire.is_open for wire in self._wires.values())
        if dead:
            self._settle()
        ends = {rank: self._end_of(rank) for rank in self._wires}
        living = self._launcher.living
        if stopped := [rank for rank, pid in living.items() if is_stopped(pid)]:
            why = f"{why}; stopped by a signal or a debugger: {named(stopped)}"
        where = stacks.ask(living, {rank: self._invitation.stack(rank) for rank in living})
        flights = keep_flights(self._invitation, self._run / "ranks") if not dead else []
        found = []
        for rank in range(self.size):
            ending = endings.get(rank, Ending(rank=rank, state="stuck", told=why))
            if ends[rank]:
                ending = replace(ending, state="died", told=ends[rank])
            found.append(
                replace(ending, stack=where.get(rank, ""), output=self._output(rank, flights))
            )
        self.kill()
        return found

    def _end_of(self, rank: int) -> str:
        """How the rank came to its end, or nothing while it lives."""
        wire = self._wires.get(rank)
        if wire is None or wire.is_open:
            return self._launcher.ended(rank)
        return self._launcher.ended(rank, _EXIT_S) or "left its controller"

    def _settle(self) -> None:
        """Hear of the other deaths that belong to the first."""
        for _ in self._messages(WakingClock(), lambda: SETTLE_S):
            pass

    def _output(self, rank: int, flights: Sequence[Path] = ()) -> str:
        """The end of what a rank wrote outside of tests since the gang started."""
        text = self._launcher.last_words(rank, LONGEST_TEXT)
        kept = [f"flight recorder: {path}" for path in flights if path.name.endswith(f"-{rank}")]
        return "\n".join([text.rstrip(), *kept]).strip()
