"""What a rank tells of how a test ended on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubench_plugin.launchers.torchrun import reports

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


def test_of_a_long_traceback_the_end_is_told(
    request: pytest.FixtureRequest, reported: Callable[..., pytest.TestReport]
) -> None:
    """There it says what went wrong; of a long reason the beginning does."""
    frames = "frame\n" * reports.LONGEST_TEXT
    reason = "RuntimeError: no luck" + " at all" * reports.LONGEST_REASON
    failed = reported("call", "failed", longrepr=f"{frames}E   no luck", reason=reason)
    ending = reports.from_json(request.node, 1, reports.to_json([failed]))
    (told,) = ending.reports
    assert told.longreprtext.endswith("frame\nE   no luck")
    assert len(told.longreprtext) == reports.LONGEST_TEXT
    assert ending.reason.startswith("RuntimeError: no luck")
    assert len(ending.reason) < len(reason)
