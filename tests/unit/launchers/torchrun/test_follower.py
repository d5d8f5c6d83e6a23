"""How a rank other than zero ends, in a process that is no rank."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from gpubench_plugin.launchers.torchrun import root as torchrun_root
from gpubench_plugin.launchers.torchrun.follower import Follower
from gpubench_plugin.launchers.torchrun.rank import RunningTest
from gpubench_plugin.launchers.torchrun.store import OutcomeExchange
from torch import distributed as dist

from gpubench_plugin.launchers.deadlines import Deadline, Timeouts
from gpubench_plugin.launchers.outcome import JointVerdict
from gpubench_plugin.ranks.world import World
from gpubench_plugin.system.timeout_clock import TimeoutClock

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


def test_a_session_that_rank_zero_ends_is_over_for_the_others(
    ranks: tuple[OutcomeExchange, Follower],
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """They would wait for it at the next benchmark."""
    exchange, follower = ranks
    for name in ("die_with_parent", "ExitWatcher"):
        monkeypatch.setattr(torchrun_root, name, lambda _: None)
    session: Any = SimpleNamespace(config=request.config, shouldfail=False)
    monkeypatch.setattr(follower, "_session", session)
    root = torchrun_root.RootRank(session)
    monkeypatch.setattr(root, "_exchange", exchange)
    root.end_session(request.node, "rank 1 lost its device")
    session.shouldfail = False
    root._announce(1, JointVerdict(), [])

    timeouts = Timeouts(timeout_s=60, failure_grace_s=60, divergence_s=60)
    clock = TimeoutClock()
    deadline = Deadline(timeouts, clock.now())
    follower.running = RunningTest(item=request.node, number=1, clock=clock, deadline=deadline)
    assert follower.exchange_outcomes(follower.running, []) == []
    assert session.shouldfail == root.end_reason
