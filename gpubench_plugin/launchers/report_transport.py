"""JSON codec for the reports of one benchmark, sent by a rank to rank zero or a controller."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pytest

from gpubench_plugin.core.errors import error_text
from gpubench_plugin.core.records import Json
from gpubench_plugin.launchers.outcome import RankOutcome, ranks_text
from gpubench_plugin.results import report_payload

LONGEST_TEXT: Final = 12_000
"""Characters: about 150 lines of a traceback or an output, of which the end matters."""
_RECORDED: Final = "measurement"
"""Part of a report's payload that is recorded; only that of rank zero is read."""
STOPS: Final = ("shouldstop", "shouldfail")
"""Attributes of pytest's session by which a hook ends it after the running test."""
_MOST: Final = 20
"""Sections and warnings of a benchmark that are sent."""


def encode(
    config: pytest.Config,
    reports: Sequence[pytest.TestReport],
    warnings: Sequence[Json] = (),
    *,
    recorded: bool = False,
) -> Json:
    """Encode `reports` and `warnings` of one benchmark, with the measurement if it is `recorded`.

    Long texts lose their beginning; of many sections and warnings the last are sent.
    """
    return {
        "reports": [_report_to_json(config, report, recorded=recorded) for report in reports],
        "warnings": [{**warning, "text": _cut(warning["text"])} for warning in warnings[-_MOST:]],
    }


def decode(config: pytest.Config, rank: int, message: Json) -> RankOutcome:
    """Outcome of a benchmark on `rank` from the output of :func:`encode`, or a lack of the test."""
    if "absent" in message:
        return RankOutcome(rank=rank, state="absent", details=message["absent"])
    return RankOutcome(
        rank=rank,
        state="ended",
        reports=tuple(report_from_json(config, data) for data in message["reports"]),
        warnings=tuple(message["warnings"]),
        exit=message.get("exit"),
        exit_code=message.get("exit_code"),
        stops={name: message[name] for name in STOPS if name in message},
        results=tuple(message.get("pytest_benchmark", ())),
    )


def exit_to_json(error: BaseException) -> Json:
    """Exit request of a test that ended the session, to be added to the encoded reports."""
    reason = error_text(error)[: report_payload.MAX_REASON_CHARS] or type(error).__name__
    return {"exit": reason, "exit_code": getattr(error, "returncode", None)}


def _report_to_json(config: pytest.Config, report: pytest.TestReport, *, recorded: bool) -> Json:
    data = config.hook.pytest_report_to_serializable(config=config, report=report)
    if isinstance(data["longrepr"], dict) and len(report.longreprtext) > LONGEST_TEXT:
        data["longrepr"] = report.longreprtext
    data["longrepr"] = _cut(data["longrepr"])
    data["sections"] = _cut(data["sections"][-_MOST:])
    properties = [[*map(_to_json_types, pair)] for pair in data["user_properties"]]
    data["user_properties"] = _cut(properties)
    payload = data.get(report_payload.ATTRIBUTE, {})
    data[report_payload.ATTRIBUTE] = {
        name: value for name, value in payload.items() if recorded or name != _RECORDED
    }
    return {name: _to_json_types(value) for name, value in data.items()}


def report_from_json(config: pytest.Config, data: Json) -> pytest.TestReport:
    """Decode a report; JSON's lists become pytest's tuples again."""
    if isinstance(data["longrepr"], list):  # of a skip
        data["longrepr"] = tuple(data["longrepr"])
    data["location"] = tuple(data["location"])
    for name in ("sections", "user_properties"):
        data[name] = [tuple(pair) for pair in data[name]]
    data[report_payload.ATTRIBUTE] = report_payload.from_json(data[report_payload.ATTRIBUTE])
    report = config.hook.pytest_report_from_serializable(config=config, data=data)
    assert isinstance(report, pytest.TestReport)
    return report


class WarningKeeper:
    """Base of a plugin that keeps the warnings of tests for another session, as JSON.

    Those of the collection the other one has itself.
    """

    def __init__(self) -> None:
        self._warnings: list[Json] = []

    def pytest_warning_recorded(
        self,
        warning_message: warnings.WarningMessage,
        when: str,
        nodeid: str,
        location: tuple[str, int, str] | None,
    ) -> None:
        """Keep a warning of a test."""
        if when == "runtest":
            self._warnings.append(
                {
                    "category": warning_message.category.__name__,
                    "text": str(warning_message.message),
                    "filename": warning_message.filename,
                    "lineno": warning_message.lineno,
                    "nodeid": nodeid,
                    "location": location,
                }
            )


def merged_warnings(outcomes: Sequence[RankOutcome]) -> Iterator[dict[str, Any]]:
    """Arguments of ``pytest_warning_recorded`` for each warning, which names its ranks."""
    ranks_by_warning: dict[str, tuple[Json, list[int]]] = {}
    for outcome in outcomes:
        for warning in outcome.warnings:
            ranks_by_warning.setdefault(str(warning), (warning, []))[1].append(outcome.rank)
    for warning, ranks in ranks_by_warning.values():
        some = "all ranks" if len(ranks) == len(outcomes) else ranks_text(ranks, len(outcomes))
        yield _warning_from_json(warning, f"[{some}] " if len(outcomes) > 1 else "")


def _warning_from_json(data: Json, prefix: str) -> dict[str, Any]:
    category = type(data["category"], (Warning,), {})
    text = f"{prefix}{data['text']}"
    return {
        "warning_message": warnings.WarningMessage(
            category(text), category, data["filename"], data["lineno"]
        ),
        "when": "runtest",
        "nodeid": data["nodeid"],
        "location": data["location"] and tuple(data["location"]),
    }


def _to_json_types(value: Any) -> Any:
    """Convert `value` to JSON types, others to text."""
    try:
        return json.loads(json.dumps(value, default=str))
    except (TypeError, ValueError, RecursionError):  # a key that is no text, a reference cycle
        return repr(value)


def _cut(value: Any) -> Any:
    """Truncate every text in `value` to its tail."""
    if isinstance(value, str) and len(value) > LONGEST_TEXT:
        omitted = len(value) - LONGEST_TEXT
        return f"[{omitted} characters omitted]\n{value[omitted:]}"
    return [_cut(part) for part in value] if isinstance(value, list | tuple) else value
