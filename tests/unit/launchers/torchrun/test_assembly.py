from __future__ import annotations

from torch import distributed as dist

from gpubench_plugin.launchers.torchrun.store import OutcomeExchange
from gpubench_plugin.ranks.world import World


def ranks(size: int) -> list[OutcomeExchange]:
    """The ranks of one world, around a store in memory."""
    store = dist.HashStore()
    return [
        OutcomeExchange(World(rank=rank, size=size, local_size=size), store) for rank in range(size)
    ]


def test_root_counts_who_has_ended_and_reads_what_they_told() -> None:
    """Two numbers are enough to wait; the records of those that came can be read at any time."""
    root, one, two = ranks(3)

    assert root.ended(1) == (0, 0)
    two.publish_outcome(1, {"said": "failed"}, failed=True)
    assert root.ended(1) == (1, 1)
    assert root.records(1) == {2: {"said": "failed"}}
    root.publish_outcome(1, {"said": "root"}, failed=False)
    one.publish_outcome(1, {"said": "passed"}, failed=False)
    assert root.ended(1) == (3, 1)
    assert list(root.records(1).values()) == [
        {"said": "root"},
        {"said": "passed"},
        {"said": "failed"},
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


def test_rank_that_gives_up_says_why() -> None:
    """Rank zero can tell one that waited in vain from one that died."""
    root, one = ranks(2)
    assert root.give_up_reason(3) == ""

    one.give_up(3, "did not end within 1 s")

    assert root.give_up_reason(3) == "did not end within 1 s"


def test_test_begins_once_all_have_come_to_it() -> None:
    """Until then it is known who has not."""
    root, one, two = ranks(3)
    for rank in (root, one, two):
        rank.announce_arrival(0)

    two.announce_arrival(4)

    assert (root.all_arrived(0), root.all_arrived(4)) == (True, False)
    assert root.missing_ranks(4) == [0, 1]


def test_rank_that_leaves_says_why_once() -> None:
    """What it said itself counts, not what others find of it later."""
    root, one = ranks(2)
    assert not root.has_departed()
    assert root.departed_text() == ""

    one.announce_departure(1, "stopping after 1 failures")
    root.announce_departure(1, "it died")

    assert root.has_departed()
    assert root.departed_text() == "rank 1 left the session: stopping after 1 failures"
