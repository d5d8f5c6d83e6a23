"""Reports of the phases of a test, as pytest makes them."""

from __future__ import annotations

from typing import Any

import pytest

from gpubench_plugin.results import report_payload


def phase_report(when: str = "call", outcome: str = "passed", **changes: Any) -> pytest.TestReport:
    """The report of a phase; `kind` and `reason` are what a rank would note on it."""
    kind, reason = changes.pop("kind", outcome), changes.pop("reason", "")
    usual = {"nodeid": "test_x.py::test_x", "location": ("test_x.py", 3, "test_x"), "keywords": {}}
    made = pytest.TestReport(
        **{**usual, "when": when, "outcome": outcome, "longrepr": None, **changes}
    )
    if outcome != "passed":
        report_payload.set_outcome(made, kind, reason)
    return made


class SubtestReport(pytest.TestReport):
    """Stands for the reports of pytest's and of pytest-subtests' subtests."""


def subtest_report(outcome: str) -> pytest.TestReport:
    """What a subtest reports before the test itself does."""
    made = phase_report(outcome=outcome, reason="of a part")
    made.__class__ = SubtestReport
    return made
