"""What a rank tells of how a test ended on it: small, however much the test said and measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest

from gpubench_plugin.errors import text_of
from gpubench_plugin.launchers import report_payload
from gpubench_plugin.launchers.outcome import Ending

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubench_plugin.records import Json

Phases = list[list[str]]
"""The phases of a test and how each ended: ``[["setup", "passed"], ["call", "failed"], …]``."""

LONGEST_TEXT: Final = 4000
"""Characters of a traceback; its end says what went wrong."""
LONGEST_REASON: Final = 1000


def to_json(reports: Sequence[pytest.TestReport]) -> Json:
    """The `reports` without what they captured and measured."""
    return {"reports": [_report_to_json(report) for report in reports]}


def exit_to_json(error: BaseException) -> Json:
    """That the test asked to end the whole session, and why."""
    return {
        "reports": [],
        "exit": _start_of(text_of(error) or type(error).__name__),
        "exit_code": getattr(error, "returncode", None),
    }


def from_json(item: pytest.Item, rank: int, told: Json) -> Ending:
    """What `rank` told of `item`."""
    return Ending(
        rank=rank,
        state="ended",
        reports=tuple(_report_from_json(item, report) for report in told["reports"]),
        exit=told.get("exit"),
        exit_code=told.get("exit_code"),
    )


def phases(reports: Sequence[pytest.TestReport]) -> Phases:
    """How each of the `reports` ended."""
    return [[str(report.when), report.outcome] for report in reports]


def like(item: pytest.Item, told: Phases) -> list[pytest.TestReport]:
    """Reports of `item` that ended in the same way, for counting."""
    return [_report(item, when, outcome, "as on rank 0") for when, outcome in told]


def _report_to_json(report: pytest.TestReport) -> Json:
    told = report_payload.read(report)
    return {
        "when": report.when,
        "outcome": report.outcome,
        "duration": report.duration,
        "kind": told.get("outcome"),
        "reason": _start_of(told.get("reason", "")),
        "text": report.longreprtext[-LONGEST_TEXT:] if report.failed else "",
    }


def _report_from_json(item: pytest.Item, told: Json) -> pytest.TestReport:
    report = _report(item, told["when"], told["outcome"], told["text"])
    report.duration = told["duration"]
    if told["kind"] is not None:
        report_payload.set_outcome(report, told["kind"], told["reason"])
    return report


def _report(item: pytest.Item, when: str, outcome: str, text: str) -> pytest.TestReport:
    path, line, _ = item.location
    skipped = outcome == "skipped"
    return pytest.TestReport(
        nodeid=item.nodeid,
        location=item.location,
        keywords=dict.fromkeys(item.keywords, 1),
        outcome=outcome,  # type: ignore[arg-type] # one of pytest's three, written by to_json
        longrepr=(path, (line or 0) + 1, text) if skipped else text or None,
        when=when,  # type: ignore[arg-type] # the same
    )


def _start_of(text: str) -> str:
    return text if len(text) <= LONGEST_REASON else f"{text[:LONGEST_REASON]}…"
