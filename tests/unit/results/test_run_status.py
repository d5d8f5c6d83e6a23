"""Tests of what a run's status is, from how its session ended."""

from __future__ import annotations

import pytest

from gpubench_plugin.session.recording import status_of
from tests.support.runs_builder import measurement


@pytest.mark.parametrize(
    ("code", "status"), [(0, "complete"), (5, "complete"), (2, "interrupted"), (1, "failed")]
)
def test_status_is_how_the_session_ended(code: int, status: str) -> None:
    """Where every benchmark of the run was selected."""
    assert status_of(code, []) == status


@pytest.mark.parametrize(
    ("outcomes", "status"),
    [
        (["measured", "skipped", "unsupported"], "complete"),
        (["measured", "not_measured", "failed"], "interrupted"),
        (["unsupported", "oom"], "failed"),
    ],
)
def test_rest_that_was_not_selected_counts(outcomes: list[str], status: str) -> None:
    """A resumed run is complete when nothing is missing, and what cannot be run is not missing."""
    rest = [measurement(outcome=outcome) for outcome in outcomes]
    assert status_of(0, rest) == status
    assert status_of(1, rest) == "failed"
