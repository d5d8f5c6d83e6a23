"""What ranks say to each other through a store; here the ranks are threads around a real one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from torch import distributed as dist

from gpubench_plugin.core.errors import MeasurementError
from gpubench_plugin.ranks.control_plane import ControlPlane
from gpubench_plugin.ranks.world import World
from tests.support.messages import mentions

if TYPE_CHECKING:
    from collections.abc import Callable

    Part = Callable[[ControlPlane, int], Any]


class Ranks:
    """Some ranks around one store."""

    def __init__(self, size: int, timeout_s: float = 60):
        self.store = dist.HashStore()
        self.planes = [
            ControlPlane(
                dist.PrefixStore("control", self.store),
                World(rank=rank, local_rank=rank, size=size, local_size=size),
                timeout=timedelta(seconds=timeout_s),
            )
            for rank in range(size)
        ]

    def play(self, *parts: Part) -> list[Any]:
        """Every rank plays its part, the last ones the last part; what each returned or raised."""
        with ThreadPoolExecutor(len(self.planes)) as pool:
            futures = [
                pool.submit(parts[min(rank, len(parts) - 1)], plane, rank)
                for rank, plane in enumerate(self.planes)
            ]
        return [future.exception() or future.result() for future in futures]

    @property
    def keys(self) -> int:
        return self.store.num_keys()


def test_collect_gives_the_root_one_record_at_a_time() -> None:
    """Rank zero takes them in the order of ranks, and has let go of each before the next."""
    ranks = Ranks(3)
    seen: list[tuple[int, int]] = []

    def part(plane: ControlPlane, rank: int) -> None:
        records = plane.collect("tag", {"rank": rank})
        seen.extend((record["rank"], ranks.keys) for record in records)

    assert ranks.play(part) == [None] * 3
    assert [rank for rank, _ in seen] == [0, 1, 2]
    assert seen[-1][1] == 3  # the place of each rank, no record


def test_traffic_is_counted() -> None:
    """What a rank reads does not depend on how much the others send; the root reads it all."""

    def part(plane: ControlPlane, rank: int) -> tuple[int, int]:
        plane.gather("tag", {"text": "x" * 10_000})
        plane.publish("verdict", {"text": "y" * 100})
        return plane.traffic["bytes_read"], plane.traffic["bytes_written"]

    (root_read, root_written), *others = Ranks(3).play(part)
    assert 20_000 < root_read < 30_000
    assert 100 < root_written < 1_000
    for read, written in others:
        assert 100 < read < 10_000
        assert 10_000 < written < 11_000


def test_large_and_foreign_text_arrives() -> None:
    """Of a MiB, in letters outside ASCII, in the order of ranks, under one tag again and again."""
    text = {"text": "größer ✓ " * 2**17, "none": None, "nested": [1, [2.5, "x"]]}

    def part(plane: ControlPlane, rank: int) -> list[Any]:
        gathered = [plane.gather("tag", {"n": n, "rank": rank, **text}) for n in range(2)]
        return [*gathered, plane.publish("tag", {"said by": rank})]

    first, second = ([{"n": n, "rank": rank, **text} for rank in (0, 1)] for n in (0, 1))
    told = {"said by": 0}
    assert Ranks(2).play(part) == [[first, second, told], [None, None, told]]


def test_no_message_stays_in_the_store() -> None:
    """A session of any length leaves only the place of each rank."""

    def part(plane: ControlPlane, rank: int) -> None:
        plane.gather("tag", {"text": "x" * 3000})
        plane.publish("tag", {"text": "x" * 3000})
        plane.gather("end", {})

    ranks = Ranks(3)
    assert ranks.play(part) == [None] * 3
    assert ranks.keys == 3


def test_a_rank_that_went_elsewhere_is_noticed() -> None:
    """Ranks that take different ways are told so at once, with both places, not after minutes."""

    def elsewhere(plane: ControlPlane, rank: int) -> object:
        plane.gather("another test", {})
        return plane.publish("another verdict")

    def root(plane: ControlPlane, rank: int) -> object:
        with pytest.raises(MeasurementError) as first:
            plane.gather("samples", {})
        with pytest.raises(MeasurementError):
            plane.gather("report", {})
        return str(first.value)

    said, other = Ranks(2).play(root, elsewhere)
    assert said.startswith("ranks are out of step: rank 1 is at ")
    assert said.endswith("while rank 0 waits for it at gather 'samples'")
    assert isinstance(other, MeasurementError)
    places = ("rank 0 is at gather 'report'", "rank 1 waits for it at publish 'another verdict'")
    assert mentions(other, "out of step", *places)


def test_a_rank_that_never_comes_is_named() -> None:
    """Waiting ends with the name of who is missing and where it was last."""

    def absent(plane: ControlPlane, rank: int) -> None:
        plane.gather("first", {})

    def root(plane: ControlPlane, rank: int) -> None:
        plane.gather("first", {})
        plane.gather("second", {})

    error, _ = Ranks(2, timeout_s=0.2).play(root, absent)
    assert mentions(error, "0.2 s", "rank 1 at gather 'second'; ", "last", "gather 'first'")
