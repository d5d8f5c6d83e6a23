"""Each rank's share of the processor."""

from __future__ import annotations

import os

import pytest

from gpubench_plugin.ranks.world import threads_per_rank


@pytest.mark.parametrize(
    ("cores", "local_ranks", "expected"), [(16, 4, 4), (16, 3, 5), (2, 4, 1), (8, 1, 8)]
)
def test_cores_are_shared(cores: int, local_ranks: int, expected: int) -> None:
    """Ranks share the cores equally and have at least one thread each."""
    assert expected == threads_per_rank(local_ranks, cores=cores)


def test_configuration_wins() -> None:
    """A configured number is taken as it is."""
    assert threads_per_rank(4, configured=7, cores=16) == 7


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity on this system")
def test_only_usable_cores_count() -> None:
    """A process restricted to one core has one thread."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert threads_per_rank(1) == 1
    finally:
        os.sched_setaffinity(0, before)
