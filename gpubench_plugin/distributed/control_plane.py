"""Small messages between the ranks, through a key-value store: never over the group under test.

Every rank calls the same operations in the same order. Each operation has a number, and every
rank posts where it is; so a rank that went another way is noticed at once instead of awaited.

What the root does for one operation grows with the number of ranks, what another rank does does
not, and neither does the rate at which all ranks together ask the store while they wait.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from time import sleep
from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin.environment import WakingClock
from gpubench_plugin.errors import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta

    from torch.distributed.distributed_c10d import Store

    from gpubench_plugin.distributed.world import World
    from gpubench_plugin.records import Json

CHUNK: Final = 2**20
"""Characters per value: torch's TCPStore refuses values above 8 MiB."""

_SHORTEST_PAUSE_S: Final = 0.0002
_LONGEST_PAUSE_S: Final = 0.02
_PAUSE_PER_RANK_S: Final = 0.0005
"""Of long waits: all ranks together, if more than 40, look 2,000 times per second at most."""


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """The bytes of the values that this rank has exchanged with the store."""

    bytes_read: int = 0
    bytes_written: int = 0

    def __sub__(self, earlier: Traffic) -> Traffic:
        return Traffic(
            bytes_read=self.bytes_read - earlier.bytes_read,
            bytes_written=self.bytes_written - earlier.bytes_written,
        )


class ControlPlane:
    """Gather, publish and wait through `store`; all messages are JSON.

    Each operation raises :class:`MeasurementError` where a rank that it needs is in another
    operation, or does not come within `timeout`, or the shorter time that the operation is given.
    """

    def __init__(self, store: Store, world: World, *, timeout: timedelta):
        self._store = store
        self._world = world
        self._timeout_s = timeout.total_seconds()
        of_all_s = 0.0 if world.is_root else world.size * _PAUSE_PER_RANK_S
        self._longest_pause_s = max(_LONGEST_PAUSE_S, of_all_s)
        self._operations = 0
        self._published: dict[str, int] = {}
        self._bytes_read = 0
        self._bytes_written = 0

    @property
    def traffic(self) -> Traffic:
        """What this rank has read and written so far."""
        return Traffic(bytes_read=self._bytes_read, bytes_written=self._bytes_written)

    def gather(self, tag: str, record: Json) -> list[Json] | None:
        """Every rank's record in the order of ranks, on rank zero; None on the others at once."""
        gathered = list(self.collect(tag, record))
        return gathered if self._world.is_root else None

    def collect(self, tag: str, record: Json, *, within_s: float | None = None) -> Iterator[Json]:
        """Like :meth:`gather`, but the root holds one record at a time; the others get none.

        The root has to take them all.
        """
        key, doing = self._begin("gather", tag)
        if self._world.is_root:
            return self._collected(key, record, doing, within_s)
        self._put(f"{key}/{self._world.rank}", record)
        return iter(())

    def _collected(
        self, key: str, record: Json, doing: str, within_s: float | None
    ) -> Iterator[Json]:
        earlier, self._published = self._published, {}
        # The root's own record takes the same way through JSON, so that all are alike.
        yield json.loads(json.dumps(record))
        for rank in range(1, self._world.size):
            of_rank = f"{key}/{rank}"
            self._await(of_rank, rank, doing, within_s)
            record, parts = self._read(of_rank)
            self._delete(of_rank, parts)
            yield record
        # Whoever sent something now has read what was published before: nobody need confirm it.
        for published, parts in earlier.items():
            self._delete(published, parts)

    def publish(
        self, tag: str, record: Json | None = None, *, within_s: float | None = None
    ) -> Json:
        """Rank zero's record, on every rank; the others need not give one.

        Rank zero goes on at once.
        """
        key, doing = self._begin("publish", tag)
        if not self._world.is_root:
            self._await(key, 0, doing, within_s)
        elif record is None:
            raise ValueError(f"rank zero has nothing to publish as {tag!r}")
        else:
            self._published[key] = self._put(key, record)
        return self._read(key)[0]

    def decide(
        self, tag: str, decision: Json | None = None, *, otherwise: Json, within_s: float
    ) -> Json:
        """Rank zero's `decision`, on every rank; `otherwise` on every one where it comes too late.

        Whoever writes first decides, so that a rank that was stopped meanwhile finds itself among
        ranks of the same mind.
        """
        key, doing = self._begin("decide", tag)
        if self._world.is_root:
            self._published[key] = 0
            return self._settled(key, decision)
        try:
            self._await(key, 0, doing, within_s)
        except MeasurementError:
            return self._settled(key, otherwise)
        decided: Json = json.loads(self._get(key))
        return decided

    def _settled(self, key: str, decision: Json | None) -> Json:
        """What is written under `key`: `decision`, unless another rank was first."""
        settled: Json = json.loads(self._store.compare_set(key, "", json.dumps(decision)))
        return settled

    def wait_for_all(self, tag: str) -> None:
        """Return once every rank is here; rank zero, who may host the store, returns last."""
        self.gather(tag, {})
        self.publish(tag, {})
        self.gather(tag, {})

    def arrive(self, place: str) -> None:
        """Show the others that this rank has come to `place`, and wait for nobody."""
        self._begin("arrive at", place)

    def skip_to(self, operation: int) -> None:
        """Go on with the operation of that number, whatever was left out before it.

        So ranks that parted meet again at a place that all of them come to.
        """
        self._operations = operation - 1

    def _begin(self, operation: str, tag: str) -> tuple[str, str]:
        """Post where this rank is; the key of the operation's messages and what it does."""
        self._operations += 1
        doing = f"{operation} {tag!r}"
        self._set(f"at/{self._world.rank}", json.dumps([self._operations, doing]))
        return f"{self._operations} {doing}", doing

    def _put(self, key: str, record: Json) -> int:
        """Write a record; the number of parts beyond the first, which stands in the key itself."""
        text = json.dumps(record)
        first, *more = [text[at : at + CHUNK] for at in range(0, len(text), CHUNK)]
        for number, part in enumerate(more):
            self._set(f"{key}/{number}", part)
        # Written last: whoever sees it can read all parts.
        self._set(key, f"{len(more)} {first}")
        return len(more)

    def _read(self, key: str) -> tuple[Json, int]:
        parts, _, first = self._get(key).partition(b" ")
        more = [self._get(f"{key}/{number}") for number in range(int(parts))]
        return json.loads(b"".join((first, *more))), int(parts)

    def _delete(self, key: str, parts: int) -> None:
        for part in range(parts):
            self._store.delete_key(f"{key}/{part}")
        self._store.delete_key(key)

    def _set(self, key: str, text: str) -> None:
        self._store.set(key, text)
        self._bytes_written += len(text)  # JSON is ASCII

    def _get(self, key: str) -> bytes:
        value: bytes = self._store.get(key)
        self._bytes_read += len(value)
        return value

    def _await(self, key: str, rank: int, doing: str, within_s: float | None) -> None:
        """Return once `rank` has written `key`.

        This asks again and again: torch prints a warning wherever its own wait runs out.
        """
        timeout_s = self._timeout_s if within_s is None else min(within_s, self._timeout_s)
        clock = WakingClock()
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
            if clock.left(timeout_s) <= 0 and not self._store.check([key]):
                raise MeasurementError(
                    f"rank {rank} did not come to {doing} within {timeout_s:g} s; "
                    f"it was last at {other}"
                )
            sleep(pause)
            pause = min(2 * pause, self._longest_pause_s)

    def _position(self, rank: int) -> tuple[int, str]:
        if not self._store.check([f"at/{rank}"]):
            return 0, "its start"
        at: list[Any] = json.loads(self._get(f"at/{rank}"))
        return int(at[0]), str(at[1])
