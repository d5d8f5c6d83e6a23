"""How ranks meet and join the default group on CUDA, with functions of torch replaced."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import distributed as dist

from gpubench_plugin.config.sections import DistributedSection
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.ranks import process_group
from gpubench_plugin.ranks.process_group import ProcessGroup
from gpubench_plugin.ranks.world import STORE, World
from gpubench_plugin.training.parallelism import ddp

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Any]]:
    """What torch is asked for on a host with two devices, in order."""
    calls: list[tuple[str, Any]] = []
    monkeypatch.setattr(process_group, "store_for", lambda _: dist.HashStore())
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", lambda device: calls.append(("set", str(device))))
    monkeypatch.setattr(dist, "is_nccl_available", lambda: True)
    monkeypatch.setattr(dist, "is_initialized", lambda: False)  # an earlier test may have left one

    def init(backend: str, **options: Any) -> None:
        calls.append((backend, options["device_id"]))

    monkeypatch.setattr(dist, "init_process_group", init)
    control = SimpleNamespace(size=lambda: 2, rank=lambda: 1)
    monkeypatch.setattr(
        dist, "new_group", lambda **options: calls.append(("new", options["backend"])) or control
    )
    monkeypatch.setattr(dist, "destroy_process_group", lambda _: None)
    return calls


def test_nccl_of_one_rank_is_not_bound(calls: list[tuple[str, Any]]) -> None:
    """One rank has nobody to connect to: its device is set, and there is no group for control."""
    with closing(ProcessGroup(World(), device=torch.device("cuda"))) as group:
        assert (group.backend, str(group.device)) == ("nccl", "cuda:0")
    assert calls == [("set", "cuda:0"), ("nccl", None)]


def test_nccl_of_several_ranks_is_bound_to_the_rank_s_device(calls: list[tuple[str, Any]]) -> None:
    """The device is set first, then NCCL is bound to it, and control messages go by gloo."""
    world = World(rank=1, local_rank=1, size=2, local_size=2)
    with closing(ProcessGroup(world, device=torch.device("cuda"))) as group:
        assert group.agreement.world_size == 2
    device = torch.device("cuda", 1)
    assert calls == [("set", "cuda:1"), ("nccl", device), ("new", "gloo")]


def test_ranks_that_share_a_device_use_gloo_unbound(calls: list[tuple[str, Any]]) -> None:
    """NCCL takes one rank per device."""
    world = World(rank=1, local_rank=1, size=2, local_size=2)
    with closing(ProcessGroup(world, device=torch.device("cuda"), shares_device=True)) as group:
        assert group.backend == "gloo"
    assert calls == [("set", "cuda:0"), ("gloo", None), ("new", "gloo")]


@pytest.mark.parametrize(("device", "ids"), [("cuda:1", [1]), ("cpu", None)])
def test_ddp_takes_the_rank_s_device(
    device: str, ids: list[int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DDP copies inputs to the device of the rank, on a CPU to none."""
    wrapped: list[Any] = []
    monkeypatch.setattr(
        ddp, "DistributedDataParallel", lambda _, **options: wrapped.append(options["device_ids"])
    )
    group: Any = SimpleNamespace(device=torch.device(device), world=World(size=2))
    ddp.DDP(group, DistributedSection()).wrap(torch.nn.Linear(1, 1))
    assert wrapped == [ids]


def test_store_that_nobody_hosts_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its address."""

    def store(*_: object, **__: object) -> None:
        raise dist.DistNetworkError("refused")

    monkeypatch.setattr(dist, "TCPStore", store)
    monkeypatch.setenv("MASTER_ADDR", "::1")
    monkeypatch.setenv("MASTER_PORT", "1")
    process_group._shared_store.cache_clear()
    with pytest.raises(UsageProblem, match=r"MASTER_ADDR=::1 MASTER_PORT=1: .*: refused"):
        process_group.store_for(World(size=2, local_size=2))


def test_store_of_a_gang_is_its_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It has what control messages need, and processes that a test starts do not inherit it."""
    monkeypatch.setenv(STORE, str(tmp_path / "store"))
    process_group._shared_store.cache_clear()
    mine = process_group.store_for(World(size=2, local_size=2))
    process_group._shared_store.cache_clear()
    other = dist.FileStore(str(tmp_path / "store"))

    assert STORE not in os.environ
    assert not mine.check(["a"])
    assert other.compare_set("a", "", "1") == mine.compare_set("a", "", "2") == b"1"
    mine.set("a", "3")
    assert other.get("a") == b"3"
    mine.delete_key("a")
    assert not other.check(["a"])
    assert (mine.add("n", 2), other.add("n", 3)) == (2, 5)
