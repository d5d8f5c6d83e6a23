"""Control messages between ranks through a key-value store, never the group under test.

Every rank calls the same operations in the same order. Each operation has a number, and every rank
publishes its position, so that a rank out of step is noticed at once.

Per operation, the work of the root grows with the number of ranks; that of another rank does not,
nor does the rate at which all waiting ranks together poll the store.
"""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from gpubench_plugin.core.errors import MeasurementError
from gpubench_plugin.system.timeout_clock import LONGEST_PAUSE_S, TimeoutClock, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import timedelta

    from torch.distributed.distributed_c10d import Store

    from gpubench_plugin.core.records import Json
    from gpubench_plugin.ranks.world import World

OUT_OF_STEP: Final = "ranks are out of step"
_PAUSE_PER_RANK_S: Final = 0.0005
"""At the end of long waits, more than 40 ranks together poll 2,000 times per second at most."""


class ControlPlane:
    """Gather, publish and wait through `store`; messages are JSON.

    Each operation raises :class:`MeasurementError` if a rank that it waits for is in another
    operation, or does not arrive within `timeout` or the operation's shorter one. A message has
    8 MiB at most, the limit of torch's TCPStore. `traffic` counts what this rank exchanged.
    """

    def __init__(self, store: Store, world: World, *, timeout: timedelta):
        self._store = store
        self._world = world
        self._timeout_s = timeout.total_seconds()
        shared_pause_s = 0.0 if world.is_root else world.size * _PAUSE_PER_RANK_S
        self._longest_pause_s = max(LONGEST_PAUSE_S, shared_pause_s)
        self._operations = 0
        self._published: list[str] = []
        self.traffic = {"bytes_read": 0, "bytes_written": 0}

    def gather(self, tag: str, record: Json) -> list[Json] | None:
        """All records in rank order on rank zero; None elsewhere, without waiting."""
        records = list(self.collect(tag, record))
        return records if self._world.is_root else None

    def collect(self, tag: str, record: Json, *, timeout_s: float | None = None) -> Iterator[Json]:
        """Like :meth:`gather`, but one record at a time on rank zero, which must take them all."""
        key, description = self._begin("gather", tag)
        if self._world.is_root:
            return self._collected(key, record, description, timeout_s)
        self._set(f"{key}/{self._world.rank}", record)
        return iter(())

    def _collected(
        self, key: str, record: Json, description: str, timeout_s: float | None
    ) -> Iterator[Json]:
        obsolete, self._published = self._published, []
        # The root's own record, too, has the types of JSON.
        yield json.loads(json.dumps(record))
        for rank in range(1, self._world.size):
            rank_key = f"{key}/{rank}"
            self._await(rank_key, rank, description, timeout_s)
            record = self._get(rank_key)
            self._store.delete_key(rank_key)
            yield record
        # Every rank that sent its record has read what was published before.
        for published in obsolete:
            self._store.delete_key(published)

    def publish(
        self, tag: str, record: Json | None = None, *, timeout_s: float | None = None
    ) -> Json:
        """Broadcast rank zero's record, without waiting on rank zero; other ranks pass none."""
        key, description = self._begin("publish", tag)
        if self._world.is_root:
            self._set(key, record)
            self._published.append(key)
        else:
            self._await(key, 0, description, timeout_s)
        return self._get(key)

    def decide(self, tag: str, decision: bool, *, timeout_s: float) -> bool:
        """Broadcast rank zero's `decision`, or False on all ranks if it is late.

        The first rank that writes decides, also for a rank that was stopped meanwhile.
        """
        key, description = self._begin("decide", tag)
        if self._world.is_root:
            self._published.append(key)
        else:
            decision = False
            with suppress(MeasurementError):
                self._await(key, 0, description, timeout_s)
        return bool(json.loads(self._store.compare_set(key, "", json.dumps(decision))))

    def announce(self, location: str) -> None:
        """Publish that this rank reached `location`, without waiting."""
        self._begin("arrival", location)

    def resynchronize(self, operation: int) -> None:
        """Continue with the given operation number, so that ranks are in step again."""
        self._operations = operation - 1

    def _begin(self, operation: str, tag: str) -> tuple[str, str]:
        """Announce the next operation; return its key and description."""
        self._operations += 1
        description = f"{operation} {tag!r}"
        location = {"number": self._operations, "description": description}
        self._set(f"at/{self._world.rank}", location)
        return f"{self._operations} {description}", description

    def _set(self, key: str, record: Json | None) -> None:
        text = json.dumps(record)
        self._store.set(key, text)
        self.traffic["bytes_written"] += len(text)  # JSON is ASCII

    def _get(self, key: str) -> Json:
        text = self._store.get(key)
        self.traffic["bytes_read"] += len(text)
        record: Json = json.loads(text)
        return record

    def _await(self, key: str, rank: int, description: str, timeout_s: float | None) -> None:
        """Wait until `rank` has written `key`.

        Polls, since torch prints a warning when its own wait times out.
        """
        limit_s = self._timeout_s if timeout_s is None else min(timeout_s, self._timeout_s)
        clock = TimeoutClock()

        def is_written() -> bool:
            if self._store.check([key]):
                return True
            number, location = self._position(rank)
            is_out_of_step = number > self._operations or (
                number == self._operations and location != description
            )
            # It may have written the key and continued since the first check.
            if is_out_of_step and not self._store.check([key]):
                raise MeasurementError(
                    f"{OUT_OF_STEP}: rank {rank} is at {location} while rank "
                    f"{self._world.rank} waits for it at {description}"
                )
            return False

        if not wait_until(is_written, lambda: clock.remaining(limit_s), self._longest_pause_s):
            raise MeasurementError(
                f"timed out after {limit_s:g} s waiting for rank {rank} at {description}; "
                f"its last known position was {self._position(rank)[1]}"
            )

    def _position(self, rank: int) -> tuple[int, str]:
        if not self._store.check([f"at/{rank}"]):
            return 0, "the start"
        location = self._get(f"at/{rank}")
        return int(location["number"]), str(location["description"])
