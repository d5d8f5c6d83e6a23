"""Payload on pytest's test report: a benchmark's measurement and its outcome.

It is a dictionary in an attribute of the report. Between processes both travel as JSON
(:func:`to_json`). Journal events (:class:`LiveRecord`) do not wait for reports, except those on how
the ranks ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin.core.errors import MissingPackage
from gpubench_plugin.core.events import PhaseEvent
from gpubench_plugin.core.records import Json, Measurement, Outcome, Phase
from gpubench_plugin.environment.redaction import redact, redact_facts
from gpubench_plugin.results.journal import utc_now
from gpubench_plugin.results.outcomes import outcome_of
from gpubench_plugin.system import stored

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pytest

    from gpubench_plugin.config.case import Case

ATTRIBUTE: Final = "gpubench"
"""Name of the attribute, also in the report's JSON."""
MAX_REASON_CHARS: Final = 2000
"""Of why a benchmark did not pass: some lines of a table; the report has the full text."""
RECORD: Final = "record"
"""The record as the session of a shard has written it, which counts as it is."""
_CONTEXT_LOST: Final = "context_lost"


@dataclass
class LiveRecord:
    """Data of a running benchmark: its events go to `journal` at once, the rest to its report.

    `journal` is called with the id of the `benchmark`; it is None on ranks whose events are not
    recorded. `launch` is the number of the launch, of several.
    """

    benchmark: str = ""
    journal: Callable[[str, Json], None] | None = None
    launch: int | None = None
    measurement: Measurement | None = None
    error_reason: str = ""

    def log(self, event: Mapping[str, object]) -> None:
        """Journal `event` with the time at which it happens, which is now."""
        if self.journal is not None:
            label = {} if self.launch is None else {"launch": self.launch}
            if "reason" in event:
                event = {**event, "reason": redact(str(event["reason"]))}
            self.journal(self.benchmark, {"time": utc_now(), **event, **label})

    def enter(self, phase: Phase) -> None:
        """Journal that `phase` begins."""
        self.log(PhaseEvent(phase=phase).line())

    def raised(self, error: BaseException) -> None:
        """Record that calling ``gpubench`` raised, since the test may catch the exception."""
        if not self.error_reason:
            _, reason = outcome_of(error)
            self.error_reason = f"gpubench raised {_bounded(reason)}; the test caught the exception"


def attach(report: pytest.TestReport, call: pytest.CallInfo[Any], record: LiveRecord) -> None:
    """Attach the benchmark's `record` and the kind of a failure to `report`."""
    payload: Json = {}
    if report.when == "call":
        payload["not_measured"] = record.error_reason
        if record.measurement is not None:
            payload["measurement"] = record.measurement
    if not report.passed:
        payload["outcome"], reason = _outcome_and_reason(call, report)
        payload["reason"] = _bounded(reason)
        error = call.excinfo and call.excinfo.value
        if isinstance(error, MissingPackage):
            payload["missing_package"] = {"name": error.package, "install": error.install}
    setattr(report, ATTRIBUTE, payload)


def read(report: pytest.TestReport) -> Json:
    """The payload that :func:`attach` put on the report; empty where there is none."""
    payload: Json = getattr(report, ATTRIBUTE, {})
    return payload


def is_of_subtest(report: pytest.TestReport) -> bool:
    """Whether it is of a part of a test, whose own report follows (pytest, pytest-subtests)."""
    return type(report).__name__.lower() == "subtestreport"


def to_json(payload: Json) -> Json:
    """The `payload` as JSON values."""
    payload = {name: value for name, value in payload.items() if name != RECORD}
    if "measurement" not in payload:
        return payload
    return {**payload, "measurement": stored.dump(payload["measurement"])}


def from_json(payload: Json) -> Json:
    """The payload written by :func:`to_json`."""
    if "measurement" not in payload:
        return payload
    measurement = stored.restore(Measurement, payload["measurement"], "the report of a benchmark")
    return {**payload, "measurement": measurement}


def with_outcome(report: pytest.TestReport) -> Json:
    """The payload, with an outcome if the report did not pass.

    A report that another plugin created or turned into a failure, without :func:`attach`, has
    pytest's outcome. One outside of pytest's phases is a crash: so pytest-forked and pytest-xdist
    report a process that died.
    """
    payload = read(report)
    if report.passed or "outcome" in payload:
        return payload
    outcome: Outcome = "skipped" if report.skipped else "failed"
    if report.when not in ("setup", "call", "teardown"):
        outcome = "crashed"
    return {**payload, "outcome": outcome, "reason": _bounded(report.longreprtext)}


def _bounded(reason: str) -> str:
    """The beginning of `reason`, redacted before a cut could split a secret from its signs."""
    return redact(reason)[:MAX_REASON_CHARS]


def drop(report: pytest.TestReport) -> None:
    """Drop the payload once all plugins have read it.

    pytest keeps reports until its end, and samples would add up; the run's files have them.
    """
    vars(report).pop(ATTRIBUTE, None)


def set_outcome(
    report: pytest.TestReport, outcome: Outcome, reason: str, events: Sequence[Json] = ()
) -> None:
    """Set `outcome` and `reason` of `report`, and add journal `events`."""
    payload = read(report)
    events = [*payload.get("events", ()), *redact_facts([*events])]
    changes = {"events": events, "outcome": outcome, "reason": reason}
    setattr(report, ATTRIBUTE, {**payload, **changes})


def override(
    report: pytest.TestReport, outcome: Outcome, reason: str, events: Sequence[Json] = ()
) -> None:
    """Turn `report` into a failure with that `outcome`."""
    report.outcome = "failed"
    report.longrepr = reason
    set_outcome(report, outcome, reason, events)


def mark_context_lost(report: pytest.TestReport) -> None:
    """Mark that the rank's process cannot use its device any more."""
    setattr(report, ATTRIBUTE, {**read(report), _CONTEXT_LOST: True})


def is_context_lost(report: pytest.TestReport) -> bool:
    """Whether the rank's process has lost its device's context."""
    return bool(read(report).get(_CONTEXT_LOST))


def decisive(payloads: Sequence[Json]) -> Json | None:
    """The payload whose outcome counts, of all phases; None if none has one.

    That is the first, but the joint verdict of all ranks, and a lost context, which may show after
    what it has caused, outrank it.
    """
    failures = (payload for payload in payloads if "outcome" in payload)
    ranks = {"mismatched_ranks": 0, "crashed": 1}
    return min(failures, key=lambda payload: ranks.get(payload["outcome"], 2), default=None)


def measurement_of(case: Case, payloads: Sequence[Json]) -> Measurement:
    """The record of a benchmark from the `payloads` of its phases; a failure has no numbers."""
    records: list[Measurement] = [payload[RECORD] for payload in payloads if RECORD in payload]
    if records:
        return records[0]
    if (failure := decisive(payloads)) is not None:
        return case.unmeasured(failure["outcome"], failure["reason"])
    records = [payload["measurement"] for payload in payloads if "measurement" in payload]
    if records:
        return records[0]
    reasons = [payload["not_measured"] for payload in payloads if payload.get("not_measured")]
    default = (
        "the test did not call gpubench" if case.measures else "a test, which measures nothing"
    )
    return case.unmeasured("not_measured", *(reasons or [default]))


def _outcome_and_reason(
    call: pytest.CallInfo[Any], report: pytest.TestReport
) -> tuple[Outcome, str]:
    if call.excinfo is None:  # a strict xfail that passed
        return "failed", report.longreprtext
    outcome, reason = outcome_of(call.excinfo.value, skipped=report.skipped)
    mark: str | None = getattr(report, "wasxfail", None)  # the reason of pytest's mark
    if mark is None:
        return outcome, reason
    cause = "" if mark in {"", reason} else f" ({mark})"
    return outcome, f"expected to fail{cause}: {reason}"
