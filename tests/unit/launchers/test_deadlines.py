"""How long is waited for the ranks of one benchmark."""

from __future__ import annotations

import pytest

from gpubench_plugin.launchers.deadlines import Deadline, Timeouts

TIMEOUTS = Timeouts(timeout_s=100.0, failure_grace_s=5.0, divergence_s=60.0)


@pytest.mark.parametrize(
    ("endings", "at", "why"),
    [
        ([], 1100.0, "timed out after 100 s (measure.timeout_s)"),
        ([(1010.0, {"passed": True})], 1070.0, "60 s after another rank passed (distributed.div"),
        ([(1010.0, {"passed": False})], 1015.0, "5 s after another rank failed (distributed.fail"),
        ([(1010.0, {"passed": False, "skipped": True})], 1015.0, "5 s after another rank skipped"),
        ([(1010.0, {"passed": False}), (1011.0, {"passed": True})], 1015.0, "rank failed"),
        ([(1099.0, {"passed": False})], 1100.0, "timed out after 100 s"),
    ],
)
def test_rank_that_ended_leaves_the_others_a_grace(
    endings: list[tuple[float, dict[str, bool]]], at: float, why: str
) -> None:
    """Short after a failure or a skip, and no deadline is put off; its message names the key."""
    deadline = Deadline(TIMEOUTS, 1000.0)
    for now, ending in endings:
        deadline.rank_ended(now, **ending)
    assert deadline.at == at
    assert why in deadline.message
