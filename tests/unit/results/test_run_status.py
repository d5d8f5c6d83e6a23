"""Tests of what a run's status is, from how its session ended."""

from __future__ import annotations

import pytest

from gpubench_plugin.session.recording import status_of
from tests.support.runs_builder import measurement


@pytest.mark.parametrize(
    ("code", "rest", "status"),
    [
        (0, [], "complete"),
        (5, [], "complete"),
        (2, [], "interrupted"),
        (1, [], "failed"),
        (0, ["measured", "skipped", "unsupported"], "complete"),
        (0, ["measured", "not_measured", "failed"], "interrupted"),
        (0, ["unsupported", "oom"], "failed"),
        (1, ["measured"], "failed"),
    ],
)
def test_status_is_how_the_session_ended(code: int, rest: list[str], status: str) -> None:
    """Of a resumed run the `rest` that was not selected counts: whether something is missing."""
    assert status_of(code, [measurement(outcome=outcome) for outcome in rest]) == status
