"""The process groups of data, expert and tensor parallel ranks."""

from __future__ import annotations

import pytest
from torch import distributed as dist

from gpubench_plugin.core.errors import Unsupported
from gpubench_plugin.workloads.moe.groups import ParallelGroups, sizes
from tests.unit.workloads.moe.made import section


@pytest.fixture
def made(monkeypatch):
    """The groups that are made, as tuples of their ranks."""
    groups = []

    def noted(ranks, **_):
        groups.append(tuple(ranks))
        return groups[-1]

    monkeypatch.setattr(dist.distributed_c10d, "new_group", noted)
    monkeypatch.setattr(dist, "destroy_process_group", groups.remove)
    return groups


def test_eight_ranks_are_split_tensor_first(made, monkeypatch):
    """Of 2 × 2 × 2 ranks, rank 5 = (data 1, expert 0, tensor 1) has these neighbours."""
    keys = section(expert_parallel=2, tensor_parallel=2)
    monkeypatch.setattr(dist.distributed_c10d, "get_rank", lambda: 5)
    groups = ParallelGroups.of(keys, rank=5, world_size=8)
    axes = (groups.tensor, groups.expert, groups.data, groups.tokens)
    assert [axis.group for axis in axes] == [(4, 5), (5, 7), (1, 5), (1, 3, 5, 7)]
    assert [(axis.size, axis.index) for axis in axes] == [(2, 1), (2, 0), (2, 1), (4, 2)]


def test_all_ranks_make_the_same_groups_in_the_same_order(made, monkeypatch):
    """So torch asks for it; closing ends those that a rank is in."""
    keys = section(expert_parallel=2, tensor_parallel=2)
    orders = set()
    for rank in range(8):
        monkeypatch.setattr(dist.distributed_c10d, "get_rank", lambda rank=rank: rank)
        groups = ParallelGroups.of(keys, rank=rank, world_size=8)
        orders.add(tuple(made))
        groups.close()
        assert all(rank not in group for group in made)
        made.clear()
    assert len(orders) == 1


def test_all_ranks_together_need_no_group_of_their_own(made):
    """Two ranks that share the experts use the default group, or none where they are alone."""
    shared = ParallelGroups.of(section(), rank=1, world_size=2)
    assert (shared.expert.size, shared.data.group, made) == (2, None, [])
    alone = ParallelGroups.of(section(expert_parallel=1), rank=1, world_size=2)
    assert (alone.expert.group, alone.data.size, alone.data.index) == (None, 2, 1)


@pytest.mark.parametrize(
    ("keys", "ranks", "message"),
    [
        ({"experts": 6}, 4, "moe.experts=6 .* divisible by 4 ranks; .*: multiples of "),
        ({"expert_parallel": 3}, 4, "moe.expert_parallel=3 does not divide 4 ranks; .*: 1, 2, 4"),
        ({"tensor_parallel": 4}, 6, "moe.tensor_parallel=4 does not divide 6 ranks; .*: 1, 2, 3"),
    ],
)
def test_what_does_not_divide_is_refused(keys, ranks, message):
    """The message names key, value and what is allowed."""
    with pytest.raises(Unsupported, match=message):
        sizes(section(**keys), ranks)
