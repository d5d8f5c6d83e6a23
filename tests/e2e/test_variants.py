"""Variants of a step on two ranks, which take the same turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.projects import Project

TESTS = """
import pytest

pytestmark = pytest.mark.gpubench(ranks=2)

def test_reduce(gpubench, process_group):
    import torch
    import torch.distributed as dist

    rank, ones = process_group.world.rank, torch.ones(1000)

    def reduced(times):
        for _ in range(times):
            total = ones.clone()
            dist.all_reduce(total)
        return total

    gpubench.compare({"twice": lambda: reduced(2), "once": lambda: reduced(1)}, samples=10)
    assert gpubench.result[0] == 2

def test_one_rank_disagrees(gpubench, process_group):
    rank = process_group.world.rank
    gpubench.compare({"one": lambda: 1, "rank": lambda: 1 + rank})

def test_other_order(gpubench, process_group):
    steps = [("one", lambda: 1), ("other", lambda: 1)]
    gpubench.compare(dict(steps if process_group.world.rank else reversed(steps)))

def test_healthy(gpubench, process_group):
    gpubench.compare({"one": lambda: sum(range(1000)), "same": lambda: sum(range(1000))})
"""


@pytest.mark.exhaustive
def test_ranks_take_the_same_turns(project: Project) -> None:
    """Calls of both ranks meet in every turn, and one rank's disagreement fails both."""
    project.write("test_it.py", TESTS)

    run = project.run("--world-size=2")

    records = {b["name"].partition("[")[0]: b for b in run.summary["benchmarks"]}
    assert records["test_one_rank_disagrees"]["outcome"] == "failed"
    reason = records["test_one_rank_disagrees"]["reason"]
    assert "rank 1" in reason
    assert "variant 'rank' disagrees with 'one'" in reason
    assert "has the variants other, one, another rank" in records["test_other_order"]["reason"]
    reduced = records["test_reduce"]
    assert (reduced["work"]["samples"], len(reduced["ranks"])) == (20, 2)
    assert reduced["metrics"]["speed_up"]["value"] > 0
    assert reduced["metrics"]["speed_up_ci_low"]["value"] > 0
    assert records["test_healthy"]["outcome"] == "measured"
