"""JSON codec for the reports of one benchmark, sent by a rank to rank zero or a controller."""

from __future__ import annotations

import builtins
import json
import warnings
from collections.abc import Sequence
from typing import Any, Final

import pytest

from gpubench_plugin.core.errors import error_text
from gpubench_plugin.core.records import Json
from gpubench_plugin.launchers import report_payload
from gpubench_plugin.launchers.outcome import RankOutcome

LIMIT_BYTES: Final = 64 * 1024
"""Per rank and benchmark, beside the measurement: 1,000 ranks send 64 MiB at most."""
LONGEST_TEXT: Final = 12_000
"""Characters: about 150 lines of a traceback or an output, of which the end matters."""
_RESERVED_BYTES: Final = 4096
"""For an exit request, whose reason has 2,000 characters, and the fields around the reports."""
_RECORDED: Final = "measurement"
"""Part of a report's payload that is recorded; only that of rank zero is read."""
# With texts of no length, a report with all of these is within the limit.
_SHORTEST_REASON: Final = 100
_MOST_SECTIONS: Final = 6
_MOST_PROPERTIES: Final = 50
_MOST_WARNINGS: Final = 20


def encode(
    config: pytest.Config,
    reports: Sequence[pytest.TestReport],
    warnings: Sequence[Json] = (),
    *,
    max_text: int = LONGEST_TEXT,
    captured: bool = True,
    recorded: bool = False,
) -> Json:
    """Encode `reports` and `warnings` of one benchmark; texts have at most `max_text` characters.

    The message is smaller than `LIMIT_BYTES`, apart from the measurement (`recorded`). Of
    many warnings the first are sent, and the number of the others.
    """
    originals = [_serialized(config, report) for report in reports]
    while True:
        message: Json = {
            "reports": [_shortened(data, max_text, captured=captured) for data in originals],
            "warnings": _first_warnings(warnings, max_text),
        }
        if max_text == 0 or len(json.dumps(message)) <= LIMIT_BYTES - _RESERVED_BYTES:
            break
        max_text //= 2
    if recorded:
        for shortened, data in zip(message["reports"], originals, strict=True):
            if (value := data[report_payload.ATTRIBUTE].get(_RECORDED)) is not None:
                shortened[report_payload.ATTRIBUTE][_RECORDED] = _to_json_types(value)
    return message


def decode(config: pytest.Config, rank: int, message: Json) -> RankOutcome:
    """Outcome of a benchmark on `rank` from the output of :func:`encode`, or a lack of the test."""
    if "absent" in message:
        return RankOutcome(rank=rank, state="absent", details=message["absent"])
    return RankOutcome(
        rank=rank,
        state="ended",
        reports=tuple(_report_from_json(config, data) for data in message["reports"]),
        warnings=tuple(message["warnings"]),
        exit=message.get("exit"),
        exit_code=message.get("exit_code"),
    )


def exit_to_json(error: BaseException) -> Json:
    """Exit request of a test that ended the session, to be added to the encoded reports."""
    reason = error_text(error)[: report_payload.MAX_REASON_CHARS] or type(error).__name__
    return {"exit": reason, "exit_code": getattr(error, "returncode", None)}


def _serialized(config: pytest.Config, report: pytest.TestReport) -> Json:
    data: Json | None = config.hook.pytest_report_to_serializable(config=config, report=report)
    assert data is not None, "pytest itself implements the hook"
    data["longreprtext"] = report.longreprtext
    return {report_payload.ATTRIBUTE: {}, **data}


def _shortened(data: Json, max_text: int, *, captured: bool) -> Json:
    """The report as JSON values; texts of more than `max_text` characters lose their beginning."""
    data, longrepr = dict(data), data["longrepr"]
    text = data.pop("longreprtext")
    if isinstance(longrepr, dict) and len(json.dumps(longrepr, default=str)) > 2 * max_text:
        longrepr = text
    data["longrepr"] = _cut(longrepr, max_text)
    data["sections"] = _cut(data["sections"][-_MOST_SECTIONS:], max_text) if captured else []
    properties = data["user_properties"][:_MOST_PROPERTIES] if captured else []
    data["user_properties"] = [[_limited(part, max_text) for part in pair] for pair in properties]
    payload = data[report_payload.ATTRIBUTE]
    data[report_payload.ATTRIBUTE] = {
        name: value[: max(max_text, _SHORTEST_REASON)] if name == "reason" else value
        for name, value in payload.items()
        if name != _RECORDED
    }
    return {name: _to_json_types(value) for name, value in data.items()}


def _report_from_json(config: pytest.Config, data: Json) -> pytest.TestReport:
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


def warning_to_json(
    message: warnings.WarningMessage, when: str, nodeid: str, location: tuple[str, int, str] | None
) -> Json:
    """Serialize a warning from ``pytest_warning_recorded``."""
    return {
        "category": message.category.__name__,
        "text": str(message.message),
        "filename": message.filename,
        "lineno": message.lineno,
        "when": when,
        "nodeid": nodeid,
        "location": location,
    }


def warning_from_json(data: Json, prefix: str) -> dict[str, Any]:
    """Arguments of ``pytest_warning_recorded`` for a warning; its `prefix` names ranks.

    A category that is not one of Python's becomes a UserWarning that names it.
    """
    category = getattr(builtins, data["category"], None)
    text = data["text"]
    if not (isinstance(category, type) and issubclass(category, Warning)):
        category, text = UserWarning, f"{data['category']}: {text}"
    return {
        "warning_message": warnings.WarningMessage(
            category(f"{prefix}{text}"), category, data["filename"], data["lineno"]
        ),
        "when": data["when"],
        "nodeid": data["nodeid"],
        "location": data["location"] and tuple(data["location"]),
    }


def _first_warnings(warnings: Sequence[Json], max_text: int) -> list[Json]:
    kept_warnings = [
        {**warning, "text": _cut(warning["text"], max_text)}
        for warning in warnings[:_MOST_WARNINGS]
    ]
    if omitted := len(warnings) - len(kept_warnings):
        kept_warnings.append({**warnings[-1], "text": f"{omitted} more warnings omitted"})
    return kept_warnings


def _to_json_types(value: Any) -> Any:
    """Convert `value` to JSON types, others to text."""
    try:
        return json.loads(json.dumps(value, default=str))
    except (TypeError, ValueError, RecursionError):  # a key that is no text, a reference cycle
        return repr(value)


def _limited(value: Any, max_text: int) -> Any:
    """`value` as JSON, or the tail of its text if too long."""
    json_value = _to_json_types(value)
    text = json_value if isinstance(json_value, str) else json.dumps(json_value)
    return json_value if len(text) <= max_text else _cut(text, max_text)


def _cut(value: Any, max_text: int) -> Any:
    """Truncate every text in `value` to its tail."""
    if isinstance(value, str) and len(value) > max_text:
        omitted = len(value) - max_text
        return f"[{omitted} characters omitted]\n{value[omitted:]}"
    if isinstance(value, list | tuple):
        return [_cut(part, max_text) for part in value]
    return value
