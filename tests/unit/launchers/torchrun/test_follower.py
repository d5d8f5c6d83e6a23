"""How a rank other than zero ends, in a process that is no rank."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from torch import distributed as dist

from gpubench_plugin.launchers.torchrun.follower import Follower
from gpubench_plugin.launchers.torchrun.store import OutcomeExchange
from gpubench_plugin.ranks.world import World

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[tuple[OutcomeExchange, Follower]]:
    """Rank zero's view of two ranks, and the other one."""
    monkeypatch.setattr("gpubench_plugin.launchers.torchrun.follower.die_with_parent", lambda: None)
    store = dist.HashStore()
    root, other = (
        OutcomeExchange(World(rank=rank, size=2, local_size=2), store) for rank in range(2)
    )
    follower = Follower(request.session, 1)
    with (tmp_path / "rank-1.log").open("w") as log:
        follower.connect(other, tmp_path / "nowhere", log)
        yield root, follower
        follower.close()


def test_a_rank_leaves_once_rank_zero_has_written(ranks: tuple[OutcomeExchange, Follower]) -> None:
    """The store may go with the first that leaves, and torchrun ends all once one is gone."""
    root, follower = ranks
    order: list[str] = []

    def leave() -> None:
        follower.leave()
        order.append("left")

    leaving = threading.Thread(target=leave)
    leaving.start()
    leaving.join(0.03)  # long enough for one that does not wait
    order.append("written")
    root.mark("written")
    leaving.join(60)
    assert order == ["written", "left"]


def test_a_rank_whose_session_broke_off_waits_for_nobody(
    ranks: tuple[OutcomeExchange, Follower], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank zero may be stuck, and never write."""
    _, follower = ranks
    follower.end_reason = "rank 0 did not end"

    def waits(_: Any) -> None:
        pytest.fail("it waits")

    monkeypatch.setattr(OutcomeExchange, "wait_until_written", waits)
    follower.leave()
