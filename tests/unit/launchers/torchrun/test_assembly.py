from __future__ import annotations

from gpubench_plugin.launchers.torchrun.store import OutcomeExchange
from torch import distributed as dist

from gpubench_plugin.ranks.world import World


def ranks(size: int) -> list[OutcomeExchange]:
    """The ranks of one world, around a store in memory."""
    store = dist.HashStore()
    return [
        OutcomeExchange(World(rank=rank, size=size, local_size=size), store) for rank in range(size)
    ]


def test_verdict_reaches_all_and_the_test_before_is_forgotten() -> None:
    """What the store holds does not grow with the number of tests."""
    root, one = ranks(2)
    sizes = []

    for number in range(1, 6):
        for rank in (root, one):
            rank.announce_arrival(number)
            rank.publish_outcome(number, {}, failed=True)
        root.mark(f"{number}/root")
        one.give_up(number, "why")
        assert one.verdict(number) is None
        root.announce(number, {"agree": True})
        assert one.verdict(number) == {"agree": True}
        sizes.append(root._store.num_keys())

    assert len(set(sizes[1:])) == 1


def test_rank_that_leaves_says_why_once() -> None:
    """What it said itself counts, not what others find of it later."""
    root, one = ranks(2)
    assert not root.has_departed()
    assert root.departed_text() == ""

    one.announce_departure(1, "stopping after 1 failures")
    root.announce_departure(1, "it died")

    assert root.has_departed()
    assert root.departed_text() == "rank 1 left the session: stopping after 1 failures"
