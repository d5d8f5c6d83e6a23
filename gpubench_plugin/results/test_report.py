"""The report channel: what the rank side of a benchmark tells the session, as JSON on the report.

A report travels between processes as JSON, so whatever is attached to it does too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from gpubench_plugin.records import Measurement
from gpubench_plugin.results.outcomes import kind_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpubench_plugin.config import Case
    from gpubench_plugin.records import Json, Outcome

ATTRIBUTE: Final = "gpubench"
"""The attribute of a report, and its name in the report's JSON."""


@dataclass
class Notes:
    """What a running benchmark has to tell: its measurement, and journal events before it."""

    measurement: Measurement | None = None
    not_measured: str = ""
    events: list[Json] = field(default_factory=list)

    def log(self, event: Mapping[str, object]) -> None:
        """Note an event for the journal."""
        self.events.append(dict(event))

    def raised(self, error: BaseException) -> None:
        """Note that the call of ``gpubench`` ended so: the test may go on as if nothing were."""
        if not self.not_measured:
            _, reason = kind_of(error)
            self.not_measured = f"gpubench raised {reason[:LONGEST_REASON]}; the test caught it"


_PHASES: Final = ("setup", "call", "teardown")
LONGEST_REASON: Final = 2000
"""Characters kept of why a benchmark did not pass; the report has the whole of it."""

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
CHECKPOINTS = pytest.StashKey[Path]()
"""The folder of the run's checkpoints; rank zero's alone."""


def attach(
    item: pytest.Item,
    call: pytest.CallInfo[Any],
    report: pytest.TestReport,
    events: Sequence[Json] = (),
) -> None:
    """Put on `report` what the benchmark noted, more `events`, and the kind of its failure."""
    notes = item.stash.get(NOTES, Notes())
    data: Json = {"events": list(events)} if events else {}
    if report.when == "call":
        data["events"] = [*events, *notes.events]
        data["not_measured"] = notes.not_measured
        if notes.measurement is not None:
            data["measurement"] = notes.measurement.to_json()
    if not report.passed:
        data["outcome"], reason = _kind(call, report)
        data["reason"] = reason[:LONGEST_REASON]
    if report.when == "teardown":
        item.stash[NOTES] = Notes()  # lets the samples go: the report has them
    setattr(report, ATTRIBUTE, data)


def read(report: pytest.TestReport) -> Json:
    """What :func:`attach` put on the report, or nothing."""
    data: Json = getattr(report, ATTRIBUTE, {})
    return data


def told_by(report: pytest.TestReport) -> Json:
    """What the report tells the session.

    One that another plugin has made, or made a failure, without :func:`attach`, is the ending that
    pytest says it is. What ended in none of pytest's phases is a crash: so pytest-forked and
    pytest-xdist report a process that died.
    """
    data = read(report)
    if report.passed or "outcome" in data:
        return data
    outcome: Outcome = "skipped" if report.skipped else "failed"
    if report.when not in _PHASES:
        outcome = "crashed"
    return {**data, "outcome": outcome, "reason": report.longreprtext[:LONGEST_REASON]}


def release(report: pytest.TestReport) -> None:
    """Let go of what is on the `report`, once all have been told: pytest keeps reports to its end.

    Samples above all: they would add up over a session, and the run's files have them.
    """
    vars(report).pop(ATTRIBUTE, None)


def attach_outcome(
    report: pytest.TestReport, outcome: Outcome, reason: str, events: Sequence[Json] = ()
) -> None:
    """Say on `report` what kind of ending it is; the `events` are for the journal."""
    add_events(report, events)
    setattr(report, ATTRIBUTE, {**read(report), "outcome": outcome, "reason": reason})


def add_events(report: pytest.TestReport, events: Sequence[Json]) -> None:
    """Put more `events` for the journal on `report`."""
    data = read(report)
    setattr(report, ATTRIBUTE, {**data, "events": [*data.get("events", ()), *events]})


def overrule(
    report: pytest.TestReport, outcome: Outcome, reason: str, events: Sequence[Json] = ()
) -> None:
    """Make `report` a failure of that kind, whatever happened in this process."""
    report.outcome = "failed"
    report.longrepr = reason
    attach_outcome(report, outcome, reason, events)


def measurement_of(case: Case, told: Sequence[Json]) -> Measurement:
    """The record that the phases of one test add up to; what failed carries no number."""
    endings = [part for part in told if "outcome" in part]
    if endings:
        # What all ranks agreed on at the end outranks what this one saw first.
        mismatched = (part for part in endings if part["outcome"] == "mismatched_ranks")
        ending = next(mismatched, endings[0])
        return case.record(ending["outcome"], ending["reason"])
    for part in told:
        if "measurement" in part:
            return Measurement.from_json(part["measurement"])
    reasons = [part["not_measured"] for part in told if part.get("not_measured")]
    return case.record("not_measured", *(reasons or ["the test did not call gpubench"]))


def _kind(call: pytest.CallInfo[Any], report: pytest.TestReport) -> tuple[Outcome, str]:
    if call.excinfo is None:  # a test that passed and should not have
        return "failed", report.longreprtext
    return kind_of(call.excinfo.value, skipped=report.skipped)
