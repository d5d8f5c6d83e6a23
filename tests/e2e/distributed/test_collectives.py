"""What every collective must keep, shipped or plugged in, and what the shipped ones count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubench_plugin.workloads.collectives.base import Collective

COLLECTIVES = catalog.choices("collectives")
RANKS = 3
ASKED = {"100B": 100, "1KiB": 2**10, "100KiB": 100 * 2**10}
"""The sizes that ``ranks/collectives.py`` runs; the last is longer than the values' period."""


def make(name: str, *, rank: int = 0, world_size: int, size_bytes: int = 2**20) -> Collective:
    made: Collective = catalog.load("collectives", name)(
        rank=rank, world_size=world_size, size_bytes=size_bytes, device=torch.device("cpu")
    )
    return made


@pytest.mark.exhaustive
def test_three_ranks_exchange_what_they_must_and_notice_when_they_do_not(
    torchrun: Callable[..., list[Any]],
) -> None:
    """Right runs of any size pass on every rank, spoilt ones fail on at least one.

    Spoilt is: nothing happens, rank zero gives zeros, parts are in another order, one element is
    wrong, and after a right check the timed calls do nothing.
    """
    ranks = torchrun("collectives.py", RANKS)
    for name in COLLECTIVES:
        collectives = [
            make(name, rank=rank, world_size=RANKS, size_bytes=size)
            for size in ASKED.values()
            for rank in range(RANKS)
        ]
        expected = [
            {
                "collective": name,
                "verified_elements": collective.expected_output().numel(),
                "collective_bytes": collective.size_bytes,
                "bus_factor": collective.bus_factor,
            }
            for collective in collectives
        ]
        found = [rank[name] for rank in ranks]
        assert expected == [
            run for runs in zip(*(f["measured"] for f in found), strict=True) for run in runs
        ]
        halves = [collectives[rank + RANKS] for rank in range(RANKS)]
        assert [run["collective_bytes"] for f in found for run in f["measured_in_16_bits"]] == [
            half.size_bytes for half in halves for _ in range(2)
        ]
        for spoiler in found[0]["spoilt"]:
            assert any(name in f["spoilt"][spoiler] for f in found), (name, spoiler)
        assert any(name in f["idle"] for f in found), name


@pytest.mark.parametrize("name", COLLECTIVES)
def test_message_is_the_largest_buffer_in_whole_aligned_parts(name: str) -> None:
    """On three ranks less than one part of a size is left out, and no buffer is larger."""
    collective = make(name, world_size=3, size_bytes=10_000)
    buffers = (collective.make_input(), collective.expected_output())
    assert name == collective.name
    assert collective.size_bytes == max(buffer.nbytes for buffer in buffers)
    assert 0 <= 10_000 - collective.size_bytes < 16 * collective.parts
    assert collective.part * collective.make_input().itemsize % 16 == 0
    assert all(buffer.is_contiguous() for buffer in buffers)


@pytest.mark.parametrize("name", COLLECTIVES)
def test_message_too_small_to_be_divided_is_refused(name: str) -> None:
    """Less than 16 bytes a part cannot be exchanged; the message says how much it takes."""
    least = 16 * make(name, world_size=4).parts
    make(name, world_size=4, size_bytes=least)
    with pytest.raises(Unsupported, match=f"4 ranks need at least {least}"):
        make(name, world_size=4, size_bytes=least - 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("ranks", [2, 8, 100])
def test_sums_are_exact_in_every_type(ranks: int, dtype: torch.dtype) -> None:
    """What is to be received is an integer that the type has, and no rank of few gives zeros."""
    sums = catalog.load("collectives", "all-reduce")(
        rank=0, world_size=ranks, size_bytes=2**14, device=torch.device("cpu"), dtype=dtype
    )
    exact = sum(sums.values(rank, count=sums.count).double() for rank in range(ranks))
    assert sums.expected_output().dtype == dtype
    assert sums.expected_output().double().equal(exact)
    assert ranks > 8 or all(sums.values(rank, count=9).count_nonzero() for rank in range(ranks))


def test_sums_that_are_not_exact_are_refused() -> None:
    """The reason names the number of ranks and what to do; other collectives go on."""
    asked = {"rank": 0, "world_size": 129, "size_bytes": 2**14, "device": torch.device("cpu")}
    catalog.load("collectives", "all-gather")(**asked, dtype=torch.bfloat16)
    with pytest.raises(Unsupported, match=r"sums over 129 ranks are not exact in .*fp32"):
        catalog.load("collectives", "all-reduce")(**asked, dtype=torch.bfloat16)


@pytest.mark.parametrize(
    ("name", "on_two", "on_eight"),
    [
        ("all-gather", 1 / 2, 7 / 8),
        ("all-reduce", 1, 14 / 8),
        ("all-to-all", 1 / 2, 7 / 8),
        ("all-to-all-uneven", 2 / 3, 35 / 36),
        ("broadcast", 1, 1),
        ("reduce-scatter", 1 / 2, 7 / 8),
        ("send-recv", 1, 1),
    ],
)
def test_bus_factors(name: str, on_two: float, on_eight: float) -> None:
    """The factors are those of nccl-tests' document; the uneven one's is what leaves a rank.

    Source: https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md
    """
    factors = [make(name, world_size=ranks).bus_factor for ranks in (2, 8)]
    assert [on_two, on_eight] == pytest.approx(factors)


def test_uneven_exchange_is_uneven_between_pairs_and_even_between_ranks() -> None:
    """A rank has pieces of all lengths to give and receives pieces of all lengths."""
    parts = make("all-to-all-uneven", world_size=4).parts_between  # type: ignore[attr-defined] # of AllToAll
    assert [[parts(i, j) for j in range(4)] for i in range(4)] == [
        [1, 2, 3, 4],
        [4, 1, 2, 3],
        [3, 4, 1, 2],
        [2, 3, 4, 1],
    ]


def test_values_differ_by_rank_and_place_and_their_sums_are_exact() -> None:
    """No two ranks or neighbours have the same values, and 4096 ranks' sums fit into fp32."""
    collective = make("all-reduce", world_size=2)
    first, second = (collective.values(rank, count=5000) for rank in (0, 1))
    assert torch.equal(first + second, collective.values(0, 1, count=5000))
    assert torch.equal(first[4090:4100], collective.values(0, start=4090, count=10))
    assert int((first == second).sum()) == int((first == 0).sum())
    assert not (first[1:] == first[:-1]).any()
    assert float(collective.values(*range(4096), count=4093).max()) < 2**24
