from __future__ import annotations

from torch import distributed as dist

from gpubench_plugin.distributed.world import World
from gpubench_plugin.torchrun.assembly import Assembly, wait_until


def ranks(size: int) -> list[Assembly]:
    """The ranks of one world, around a store in memory."""
    store = dist.HashStore()
    return [Assembly(World(rank=rank, size=size, local_size=size), store) for rank in range(size)]


def test_root_counts_who_has_ended_and_reads_what_they_told() -> None:
    """Two numbers are enough to wait; the records of those that came can be read at any time."""
    root, one, two = ranks(3)

    assert root.ended(1) == (0, 0)
    two.post(1, {"said": "failed"}, failed=True)
    assert root.ended(1) == (1, 1)
    assert root.posts(1) == {2: {"said": "failed"}}
    root.post(1, {"said": "root"}, failed=False)
    one.post(1, {"said": "passed"}, failed=False)
    assert root.ended(1) == (3, 1)
    assert list(root.posts(1).values()) == [
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
            rank.post(number, {}, failed=True)
        assert one.verdict(number) is None
        root.announce(number, {"agree": True})
        assert one.verdict(number) == {"agree": True}
        sizes.append(root._store.num_keys())

    assert len(set(sizes[1:])) == 1


def test_rank_that_gives_up_says_why() -> None:
    """Rank zero can tell one that waited in vain from one that died."""
    root, one = ranks(2)
    assert root.given_up(3) == ""

    one.give_up(3, "did not end within 1 s")

    assert root.given_up(3) == "did not end within 1 s"


def test_leaving_waits_for_nobody_for_ever() -> None:
    """A rank whose others are gone leaves after its patience."""
    root, one = ranks(2)

    root.wait_until_others_left(0.01)
    one.wait_until_written(0.01)
    root.mark("written")
    one.wait_until_written(1000)
    assert root.is_marked("written")


def test_waiting_asks_until_it_is_true_or_time_is_up() -> None:
    """The answer says which."""
    answers = iter([False, False, True])

    assert wait_until(lambda: next(answers), lambda: 1.0)
    assert not wait_until(lambda: False, lambda: 0.0)
