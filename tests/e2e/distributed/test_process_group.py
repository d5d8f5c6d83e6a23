"""Joining and leaving the ranks: two real ones, and a world of one."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import distributed as dist

from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.ranks import process_group
from gpubench_plugin.ranks.process_group import ProcessGroup, backend_for, rank_device
from gpubench_plugin.ranks.ranks import RankSession
from gpubench_plugin.ranks.world import World
from tests.e2e.distributed.ranks.listeners import listeners, on_loopback

if TYPE_CHECKING:
    from collections.abc import Callable


pytestmark = pytest.mark.followed

CPU = torch.device("cpu")

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@linux
def test_two_ranks_meet_talk_and_leave(torchrun: Callable[[str], list[Any]]) -> None:
    """Records arrive in the order of ranks, rank zero's word holds, no port is open to others."""
    said_by_all = {
        "published": {"from": 0},
        "decided": 7,
        "total": 3.0,
        "backend": "gloo",
        "off_loopback": [],
        "left": True,
        "sound": [True, False, False],  # with a barrier half done, with a group destroyed
    }
    root = {
        "gathered": [{"rank": 0}, {"rank": 1}],
        "again": [{"twice": 0}, {"twice": 1}],
        "second": [{"second": 0}, {"second": 1}],
    }
    assert [{**said_by_all, **root}, {**said_by_all, **dict.fromkeys(root)}] == torchrun("meet.py")


@linux
def test_world_of_one_opens_no_port_to_others() -> None:
    """A single rank has no store with a port; what gloo itself opens stays on loopback."""
    before = listeners()
    with closing(ProcessGroup(World(), device=CPU)):
        opened = listeners() - before
    assert all(map(on_loopback, opened))
    assert len(opened) <= 1


def test_world_of_one_has_collectives_and_talks_to_itself() -> None:
    """A benchmark of collectives runs on one rank, and the records come back."""
    with closing(ProcessGroup(World(), device=CPU)) as group:
        total = torch.ones(3)
        dist.all_reduce(total)
        assert torch.ones(3).equal(total)
        assert group.control.gather("tag", {"a": (1, 2)}) == [{"a": [1, 2]}]
        assert group.control.publish("tag", {"b": 1}) == {"b": 1}
        assert (group.agreement.world_size, group.agreement.decide(5)) == (1, 5)
        group.agreement.barrier()


def test_world_of_one_whose_group_a_benchmark_destroyed_gets_another() -> None:
    """What is left of the first is closed without an error."""
    ranks = RankSession({})
    first = ranks.process_group("auto", CPU)
    assert first.is_healthy(0.0)
    dist.destroy_process_group()
    assert not first.is_healthy(0.0)

    second = ranks.process_group("auto", CPU)

    assert second is not first
    assert second.is_joined
    ranks.close()
    assert not dist.is_initialized()


def test_group_of_the_projects_own_is_not_replaced() -> None:
    """Neither is one of a library that can hold up the device; there is none: nothing to do."""
    ranks = RankSession({})
    assert (ranks.is_healthy(0.0), ranks.renew()) == (True, True)
    mine = ranks.process_group("auto", CPU)
    assert ranks.renew()
    assert ranks._group is not mine
    ranks.close()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        theirs = ranks.process_group("auto", CPU)
        assert not ranks.renew()
        assert ranks._group is theirs
    finally:
        ranks.close()
        dist.destroy_process_group()


def test_environment_is_as_before() -> None:
    """The interface set for gloo is unset again, and a group can be joined after another."""
    before = dict(os.environ)
    for _ in range(2):
        ProcessGroup(World(), device=CPU).close()
    assert before == dict(os.environ)
    assert not dist.is_initialized()


def test_interface_chosen_by_the_user_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """GLOO_SOCKET_IFNAME is left alone where it is set."""
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    with closing(ProcessGroup(World(), device=CPU)):
        pass
    assert os.environ["GLOO_SOCKET_IFNAME"] == "lo"


def test_existing_default_group_is_used_and_left_alive() -> None:
    """A group made by a conftest serves, and outlives ours."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    theirs = dist.group.WORLD
    try:
        with closing(ProcessGroup(World(), device=CPU)):
            assert dist.group.WORLD is theirs
        assert dist.group.WORLD is theirs
    finally:
        dist.destroy_process_group()


def test_existing_default_group_of_other_ranks_is_refused() -> None:
    """A default group that contradicts the environment is said, with both."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises(
            UsageProblem, match=r"rank 0 of 1, but the environment says rank 1 of 2"
        ):
            process_group._check_existing(World(rank=1, size=2))
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize(
    ("device", "configured", "shared", "expected"),
    [
        ("cpu", "auto", False, "gloo"),
        ("mps", "auto", False, "gloo"),
        ("cuda", "auto", False, "nccl"),
        ("cuda", "auto", True, "gloo"),
        ("cuda", "gloo", False, "gloo"),
        ("cuda", "nccl", False, "nccl"),
        ("xpu", "auto", False, "xccl"),
    ],
)
def test_backend_fits_the_device(
    device: str, configured: str, shared: bool, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each accelerator has its own library, which takes one rank per device; all else is gloo."""
    monkeypatch.setattr(dist, "is_nccl_available", lambda: True)
    monkeypatch.setattr(dist, "is_xccl_available", lambda: True)
    assert expected == backend_for(torch.device(device), configured, shares_device=shared)


@pytest.mark.parametrize(
    ("device", "shared", "said"),
    [
        ("cpu", False, "requires cuda, not cpu"),
        ("cuda", False, "built without it"),
        ("cuda", True, "requires one device per rank"),
    ],
)
def test_nccl_where_it_cannot_work_is_refused(
    device: str, shared: bool, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message names the key and what is allowed."""
    monkeypatch.setattr(dist, "is_nccl_available", lambda: False)
    with pytest.raises(UsageProblem, match=rf"backend='nccl'.*{said}.*allowed: auto, gloo"):
        backend_for(torch.device(device), "nccl", shares_device=shared)


@pytest.mark.parametrize(
    ("device", "world", "shared", "expected"),
    [
        ("cuda", World(rank=5, local_rank=1, size=8, local_size=4), False, "cuda:1"),
        ("cuda:3", World(), False, "cuda:3"),
        ("cpu", World(rank=5, local_rank=1, size=8, local_size=4), False, "cpu"),
        ("cuda", World(rank=1, local_rank=1, size=2, local_size=2), True, "cuda:0"),
        ("cuda:0", World(rank=1, local_rank=1, size=2, local_size=2), True, "cuda:0"),
    ],
)
def test_ranks_are_bound_by_local_rank(
    device: str, world: World, shared: bool, expected: str
) -> None:
    """Unless they share a device: the one that is named, else the first."""
    found = rank_device(torch.device(device), world, shares_device=shared)
    assert found == torch.device(expected)


def test_one_device_for_several_ranks_is_refused() -> None:
    """Which the message says how to share."""
    with pytest.raises(UsageProblem, match="device cuda:0: a single device for 3 ranks; use cuda"):
        rank_device(torch.device("cuda:0"), World(rank=2, local_rank=2, size=3, local_size=3))
