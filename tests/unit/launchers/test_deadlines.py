"""How long is waited for the ranks of one benchmark."""

from __future__ import annotations

import pytest

from gpubench_plugin.launchers.deadlines import Deadline, Timeouts

PATIENCE = Timeouts(timeout_s=100.0, failure_grace_s=5.0, divergence_s=60.0)


def test_first_deadline_is_the_timeout_of_the_benchmark() -> None:
    """Until a rank ends, only the whole benchmark is limited."""
    deadline = Deadline(PATIENCE, 1000.0)

    assert deadline.at == 1100.0
    assert deadline.message == "timed out after 100 s (measure.timeout_s)"


@pytest.mark.parametrize(
    ("ending", "at", "why"),
    [
        ({"passed": True}, 1070.0, "60 s after another rank passed (distributed.divergence_s)"),
        ({"passed": False}, 1015.0, "5 s after another rank failed (distributed.failure_grace_s)"),
        (
            {"passed": False, "skipped": True},
            1015.0,
            "5 s after another rank skipped (distributed.failure_grace_s)",
        ),
    ],
)
def test_rank_that_ended_leaves_the_others_a_grace(
    ending: dict[str, bool], at: float, why: str
) -> None:
    """The grace is short after a failure or a skip; what is then said names its key."""
    deadline = Deadline(PATIENCE, 1000.0)

    deadline.rank_ended(1010.0, **ending)

    assert deadline.at == at
    assert deadline.message.endswith(why)


def test_deadline_is_never_put_off() -> None:
    """A later pass, or a grace longer than the time left, changes nothing."""
    deadline = Deadline(PATIENCE, 1000.0)

    deadline.rank_ended(1010.0, passed=False)
    deadline.rank_ended(1011.0, passed=True)
    assert deadline.at == 1015.0

    late = Deadline(PATIENCE, 1000.0)
    late.rank_ended(1099.0, passed=False)
    assert late.at == 1100.0
