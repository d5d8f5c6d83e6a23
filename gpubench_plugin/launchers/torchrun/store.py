"""How a test ended on every rank, said through the store; no rank is waited for without an end.

A number names each test. What costs rank zero time as long as it waits is two counters, however
many ranks there are.
"""

from __future__ import annotations

import json
import math
from time import sleep
from typing import TYPE_CHECKING, Final

from gpubench_plugin.environment import WakingClock, is_stopped

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch.distributed.distributed_c10d import Store

    from gpubench_plugin.distributed import World
    from gpubench_plugin.records import Json

_SHORTEST_PAUSE_S: Final = 0.0005
_LONGEST_PAUSE_S: Final = 0.02
_KEYS: Final = ("begun", "root", "ended", "failed", "given up", "verdict")
"""What the store holds of a test beside the records of the ranks."""


class Assembly:
    """The ranks of `world` around `store`, a connection that nothing else uses.

    So whoever is stuck in an operation of the process group does not hold up these. Each method
    raises torch's ``DistError``, a ``RuntimeError``, where the process that kept it has ended.
    """

    def __init__(self, world: World, store: Store):
        self._world = world
        self.size = world.size
        self._store = store
        self._before = 0
        self._neighbours: dict[int, int] = {}

    def introduce(self, pid: int, place: str) -> None:
        """Say which process this rank is, before it comes to the first meeting."""
        self._store.set(f"process/{self._world.rank}", f"{pid} {place}")

    def learn_neighbours(self, place: str) -> None:
        """Take down the processes of the other ranks of this host, which all have come.

        Launchers number the ranks of a host in a row. One that does not is believed to have none.
        """
        first = self._world.rank - self._world.local_rank
        for rank in range(max(0, first), min(first + self._world.local_size, self.size)):
            pid, _, where = self._store.get(f"process/{rank}").decode().partition(" ")
            if where == place and rank != self._world.rank:
                self._neighbours[rank] = int(pid)

    def clock(self) -> WakingClock:
        """A clock that stands still while this rank, or another one of this host, is stopped."""
        return WakingClock(stopped=lambda: any(map(is_stopped, self._neighbours.values())))

    def begin(self, number: int) -> None:
        """Say that this rank has come to the test; to the first meeting, with the number zero."""
        self._store.set(f"at/{self._world.rank}", str(number))
        self._store.add(f"{number}/begun", 1)

    def all_began(self, number: int) -> bool:
        """Whether every rank has come to the test."""
        return self._store.add(f"{number}/begun", 0) == self.size

    def absent(self, number: int) -> list[int]:
        """The ranks that have not come to the test."""
        keys = {rank: f"at/{rank}" for rank in range(self.size)}
        return [
            rank
            for rank, key in keys.items()
            if not (self._store.check([key]) and int(self._store.get(key)) >= number)
        ]

    def part(self, rank: int, why: str) -> None:
        """Say that `rank` comes to no test any more; what was said first stays."""
        if not self._store.check([f"parted/{rank}"]):
            self._store.set(f"parted/{rank}", why)
            self._store.add("parted", 1)

    def has_parted(self) -> bool:
        """Whether any rank comes to no test any more."""
        return self._store.add("parted", 0) > 0

    def parted(self) -> str:
        """Which ranks have left the session, and why; empty if none has."""
        keys = {rank: f"parted/{rank}" for rank in range(self.size)} if self.has_parted() else {}
        return "; ".join(
            f"rank {rank} left the session: {self._store.get(key).decode()}"
            for rank, key in keys.items()
            if self._store.check([key])
        )

    def post(self, number: int, record: Json, *, failed: bool) -> None:
        """Say how the test ended on this rank: `record` stays, and is counted."""
        self._store.set(f"{number}/{self._world.rank}", json.dumps(record))
        if failed:
            self._store.add(f"{number}/failed", 1)
        self._store.add(f"{number}/ended", 1)

    def ended(self, number: int) -> tuple[int, int]:
        """How many ranks have ended the test, and how many of them failed."""
        return self._store.add(f"{number}/ended", 0), self._store.add(f"{number}/failed", 0)

    def posts(self, number: int) -> dict[int, Json]:
        """The record of each rank that has posted one."""
        keys = {rank: f"{number}/{rank}" for rank in range(self._world.size)}
        if self.ended(number)[0] < self._world.size:
            keys = {rank: key for rank, key in keys.items() if self._store.check([key])}
        texts = self._store.multi_get(list(keys.values())) if keys else []
        return {rank: json.loads(text) for rank, text in zip(keys, texts, strict=True)}

    def give_up(self, number: int, why: str) -> None:
        """Say that this rank waits for the others no longer."""
        self._store.set(f"{number}/given up", why)

    def given_up(self, number: int) -> str:
        """Why a rank waits for the others no longer, if one has said so."""
        key = f"{number}/given up"
        return self._store.get(key).decode() if self._store.check([key]) else ""

    def announce(self, number: int, verdict: Json) -> None:
        """Rank zero: tell all ranks what the test's end is. The test before is forgotten."""
        self._store.set(f"{number}/verdict", json.dumps(verdict))
        for key in (*_KEYS, *range(self.size)):
            self._store.delete_key(f"{self._before}/{key}")
        self._before = number

    def verdict(self, number: int) -> Json | None:
        """What rank zero has announced, if it has."""
        key = f"{number}/verdict"
        if not self._store.check([key]):
            return None
        told: Json = json.loads(self._store.get(key))
        return told

    def mark(self, name: str) -> None:
        """Say that something has happened."""
        self._store.set(name, "")

    def is_marked(self, name: str) -> bool:
        """Whether somebody has said that it has happened."""
        return bool(self._store.check([name]))

    def wait_until_written(self) -> None:
        """Return once rank zero has marked that it has written everything."""
        wait_until(lambda: self.is_marked("written"), lambda: math.inf)
        self._store.add("left", 1)

    def wait_until_others_left(self, patience_s: float) -> None:
        """Rank zero: return once all others have heard of the mark, or after that time."""
        clock = WakingClock()
        others = self.size - 1
        wait_until(lambda: self._store.add("left", 0) == others, lambda: clock.left(patience_s))


def wait_until(done: Callable[[], bool], left: Callable[[], float]) -> bool:
    """Whether `done` came true before nothing was `left` (seconds); it is asked again and again.

    And once more when time is over: this process may have been stopped since the last time.
    """
    pause = _SHORTEST_PAUSE_S
    while not done():
        remaining = left()
        if remaining <= 0:
            return done()
        sleep(min(pause, remaining))
        pause = min(2 * pause, _LONGEST_PAUSE_S)
    return True
