"""Exchange of test outcomes through the key-value store, with bounded waits.

Tests have numbers. While it waits, rank zero polls two counters, however many ranks there are.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Final

from gpubench_plugin.system.timeout_clock import wait_until

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store

    from gpubench_plugin.core.records import Json
    from gpubench_plugin.ranks.world import World

_KEYS: Final = ("arrived", "root", "ended", "failed", "given up", "verdict")
"""Keys of a test in the store, beside the ranks' records."""


class OutcomeExchange:
    """Exchange between the ranks of `world` through `store`.

    The connection is dedicated, so that a stuck process group does not block it. Each method raises
    torch's ``DistError``, a ``RuntimeError``, once the process that hosts the store has ended.
    """

    def __init__(self, world: World, store: Store):
        self._world = world
        self.size = world.size
        self._store = store
        self._previous_number = 0

    def announce_arrival(self, number: int) -> None:
        """Announce that this rank reached the test; 0 is the rendezvous."""
        self._store.set(f"at/{self._world.rank}", str(number))
        self._store.add(f"{number}/arrived", 1)

    def all_arrived(self, number: int) -> bool:
        """Whether every rank has reached the test."""
        return self._store.add(f"{number}/arrived", 0) == self.size

    def missing_ranks(self, number: int) -> list[int]:
        """Ranks that have not reached the test."""
        keys = {rank: f"at/{rank}" for rank in range(self.size)}
        return [
            rank
            for rank, key in keys.items()
            if not (self._store.check([key]) and int(self._store.get(key)) >= number)
        ]

    def announce_departure(self, rank: int, cause: str) -> None:
        """Announce that `rank` will run no more tests; the first cause stays."""
        if not self._store.check([f"departed/{rank}"]):
            self._store.set(f"departed/{rank}", cause)
            self._store.add("departed", 1)

    def has_departed(self) -> bool:
        """Whether any rank has departed."""
        return self._store.add("departed", 0) > 0

    def departed_text(self) -> str:
        """Departed ranks with reasons; empty if none."""
        keys = {rank: f"departed/{rank}" for rank in range(self.size)}
        return "; ".join(
            f"rank {rank} left the session: {self._store.get(key).decode()}"
            for rank, key in keys.items()
            if self._store.check([key])
        )

    def publish_outcome(self, number: int, record: Json, *, failed: bool) -> None:
        """Publish this rank's outcome record and count it."""
        self._store.set(f"{number}/{self._world.rank}", json.dumps(record))
        if failed:
            self._store.add(f"{number}/failed", 1)
        self._store.add(f"{number}/ended", 1)

    def ended(self, number: int) -> tuple[int, int]:
        """Number of ranks that finished the test, and of those that failed."""
        return self._store.add(f"{number}/ended", 0), self._store.add(f"{number}/failed", 0)

    def records(self, number: int) -> dict[int, Json]:
        """Records of the ranks that published one."""
        keys = {rank: f"{number}/{rank}" for rank in range(self.size)}
        if self.ended(number)[0] < self.size:
            keys = {rank: key for rank, key in keys.items() if self._store.check([key])}
        texts = self._store.multi_get(list(keys.values())) if keys else []
        return {rank: json.loads(text) for rank, text in zip(keys, texts, strict=True)}

    def give_up(self, number: int, cause: str) -> None:
        """Announce that this rank has stopped waiting for the others."""
        self._store.set(f"{number}/given up", cause)

    def give_up_reason(self, number: int) -> str:
        """Reason a rank has stopped waiting, if any has."""
        key = f"{number}/given up"
        return self._store.get(key).decode() if self._store.check([key]) else ""

    def announce(self, number: int, verdict: Json) -> None:
        """Rank zero: announce the test's verdict, deleting the previous one."""
        self._store.set(f"{number}/verdict", json.dumps(verdict))
        for key in (*_KEYS, *range(self.size)):
            self._store.delete_key(f"{self._previous_number}/{key}")
        self._previous_number = number

    def verdict(self, number: int) -> Json | None:
        """Verdict announced by rank zero, if any."""
        key = f"{number}/verdict"
        if not self._store.check([key]):
            return None
        verdict: Json = json.loads(self._store.get(key))
        return verdict

    def mark(self, name: str) -> None:
        """Set a marker that every rank can see."""
        self._store.set(name, "")

    def is_marked(self, name: str) -> bool:
        """Whether the marker is set."""
        return bool(self._store.check([name]))

    def wait_until_written(self) -> None:
        """Wait until rank zero has written everything."""
        wait_until(lambda: self.is_marked("written"), lambda: math.inf)
