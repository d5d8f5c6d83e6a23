"""The report channel: what the rank side of a benchmark tells the session, as JSON on the report.

A report travels between processes as JSON, so whatever is attached to it does too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpubench_plugin.records import Json, Measurement, Outcome

_ATTRIBUTE = "gpubench"


@dataclass
class Notes:
    """What a running benchmark has to tell: its measurement, and journal events before it."""

    measurement: Measurement | None = None
    not_measured: str = ""
    events: list[Json] = field(default_factory=list)

    def log(self, event: Mapping[str, object]) -> None:
        """Note an event for the journal."""
        self.events.append(dict(event))


NOTES = pytest.StashKey[Notes]()
CARRIED = pytest.StashKey[dict[str, Any]]()
"""What pytest-benchmark holds of each benchmark measured in this process, by node id."""
CARRIER = pytest.StashKey[Any]()
"""The ``benchmark`` fixture of a test."""
PROGRESS = pytest.StashKey[Callable[[int, float], None]]()
"""Told between blocks: rounds so far, and the relative half-width of the median's interval."""
RANKS_FOLDER = pytest.StashKey[Path]()
"""The folder of what each rank writes for itself."""
TRACES = pytest.StashKey[Path]()
"""The folder of the run's profiles."""


def attach(item: pytest.Item, call: pytest.CallInfo[Any], report: pytest.TestReport) -> None:
    """Put on `report` what the benchmark noted, and the kind of its failure."""
    notes = item.stash.get(NOTES, Notes())
    data: Json = {}
    if report.when == "call":
        data["events"] = notes.events
        data["not_measured"] = notes.not_measured
        if notes.measurement is not None:
            data["measurement"] = notes.measurement.to_json()
    if not report.passed:
        data["outcome"], data["reason"] = _kind(call, report)
    if report.when == "teardown":
        item.stash[NOTES] = Notes()  # lets the samples go: the report has them
    setattr(report, _ATTRIBUTE, data)


def read(report: pytest.TestReport) -> Json:
    """What :func:`attach` put on the report, or nothing."""
    data: Json = getattr(report, _ATTRIBUTE, {})
    return data


def attach_outcome(report: pytest.TestReport, outcome: Outcome, reason: str) -> None:
    """Say on `report` what kind of ending it is."""
    setattr(report, _ATTRIBUTE, {**read(report), "outcome": outcome, "reason": reason})


def overrule(report: pytest.TestReport, outcome: Outcome, reason: str) -> None:
    """Make `report` a failure of that kind, whatever happened in this process."""
    report.outcome = "failed"
    report.longrepr = reason
    attach_outcome(report, outcome, reason)


def _kind(call: pytest.CallInfo[Any], report: pytest.TestReport) -> tuple[Outcome, str]:
    if call.excinfo is None:  # a test that passed and should not have
        return "failed", report.longreprtext
    error = call.excinfo.value
    reason = f"{type(error).__name__}: {error}".strip(": ")
    if isinstance(error, Unsupported):
        return "unsupported", str(error)
    if report.skipped:
        return "skipped", str(error)
    if type(error).__name__ == "OutOfMemoryError":
        return "oom", reason
    return "failed", reason
