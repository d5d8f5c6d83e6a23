"""Small messages between the ranks, through a key-value store: never over the group under test.

Every rank calls the same operations in the same order. Each operation has a number, and every
rank posts where it is; so a rank that went another way is noticed at once instead of awaited.
"""

from __future__ import annotations

import json
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin.errors import MeasurementError

if TYPE_CHECKING:
    from datetime import timedelta

    from torch.distributed.distributed_c10d import Store

    from gpubench_plugin.distributed.world import World
    from gpubench_plugin.records import Json

CHUNK: Final = 2**20
"""Characters per value: torch's TCPStore refuses values above 8 MiB."""

_SHORTEST_PAUSE_S: Final = 0.0002
_LONGEST_PAUSE_S: Final = 0.02


class ControlPlane:
    """Gather, publish and wait through `store`; all messages are JSON.

    Each operation raises :class:`MeasurementError` where a rank that it needs is in another
    operation, or does not come within `timeout`.
    """

    def __init__(self, store: Store, world: World, *, timeout: timedelta):
        self._store = store
        self._world = world
        self._timeout_s = timeout.total_seconds()
        self._operations = 0

    def gather(self, tag: str, record: Json) -> list[Json] | None:
        """Every rank's record in the order of ranks, on rank zero; None on the others at once."""
        key, doing = self._begin("gather", tag)
        if not self._world.is_root:
            self._put(f"{key}/{self._world.rank}", record)
            return None
        # The root's own record takes the same way through JSON, so that all are alike.
        mine: Json = json.loads(json.dumps(record))
        return [mine, *(self._take(f"{key}/{rank}", rank, doing) for rank in self._others)]

    def publish(self, tag: str, record: Json | None = None) -> Json:
        """Rank zero's record, on every rank; the others need not give one."""
        key, doing = self._begin("publish", tag)
        if not self._world.is_root:
            self._await(key, 0, doing)
            told = self._read(key)
            self._store.set(f"{key}/read/{self._world.rank}", "")
            return told
        if record is None:
            raise ValueError(f"rank zero has nothing to publish as {tag!r}")
        parts = self._put(key, record)
        mine = self._read(key)
        for rank in self._others:
            self._await(f"{key}/read/{rank}", rank, doing)
            self._store.delete_key(f"{key}/read/{rank}")
        self._delete(key, parts)
        return mine

    def wait_for_all(self, tag: str) -> None:
        """Return once every rank is here; rank zero, who may host the store, returns last."""
        self.gather(tag, {})
        self.publish(tag, {})

    def skip_to(self, operation: int) -> None:
        """Go on with the operation of that number, whatever was left out before it.

        So ranks that parted meet again at a place that all of them come to.
        """
        self._operations = operation - 1

    @property
    def _others(self) -> range:
        return range(1, self._world.size)

    def _begin(self, operation: str, tag: str) -> tuple[str, str]:
        """Post where this rank is; the key of the operation's messages and what it does."""
        self._operations += 1
        doing = f"{operation} {tag!r}"
        self._store.set(f"at/{self._world.rank}", json.dumps([self._operations, doing]))
        return f"{self._operations} {doing}", doing

    def _put(self, key: str, record: Json) -> int:
        text = json.dumps(record)
        parts = [text[start : start + CHUNK] for start in range(0, len(text), CHUNK)]
        for number, part in enumerate(parts):
            self._store.set(f"{key}/{number}", part)
        # Written last: whoever sees it can read all parts.
        self._store.set(key, str(len(parts)))
        return len(parts)

    def _take(self, key: str, rank: int, doing: str) -> Json:
        self._await(key, rank, doing)
        record = self._read(key)
        self._delete(key, int(self._store.get(key)))
        return record

    def _read(self, key: str) -> Json:
        parts = range(int(self._store.get(key)))
        record: Json = json.loads(b"".join(self._store.get(f"{key}/{part}") for part in parts))
        return record

    def _delete(self, key: str, parts: int) -> None:
        for part in range(parts):
            self._store.delete_key(f"{key}/{part}")
        self._store.delete_key(key)

    def _await(self, key: str, rank: int, doing: str) -> None:
        """Return once `rank` has written `key`.

        This asks again and again: torch prints a warning wherever its own wait runs out.
        """
        deadline = monotonic() + self._timeout_s
        pause = _SHORTEST_PAUSE_S
        while not self._store.check([key]):
            number, other = self._position(rank)
            elsewhere = number > self._operations or (number == self._operations and other != doing)
            # It may have written the key and gone on since the first look.
            if elsewhere and not self._store.check([key]):
                raise MeasurementError(
                    f"the ranks are out of step: rank {rank} is at {other} while rank "
                    f"{self._world.rank} waits for it at {doing}"
                )
            if monotonic() > deadline:
                raise MeasurementError(
                    f"rank {rank} did not come to {doing} within {self._timeout_s:g} s; "
                    f"it was last at {other}"
                )
            sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)

    def _position(self, rank: int) -> tuple[int, str]:
        if not self._store.check([f"at/{rank}"]):
            return 0, "its start"
        at: list[Any] = json.loads(self._store.get(f"at/{rank}"))
        return int(at[0]), str(at[1])
