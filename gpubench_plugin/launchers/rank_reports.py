"""Reports of one benchmark on their way from a rank to rank zero or a controller, as JSON."""

from __future__ import annotations

import builtins
import json
import warnings
from collections.abc import Sequence
from typing import Any, Final

import pytest

from gpubench_plugin.errors import error_text
from gpubench_plugin.launchers import report_payload
from gpubench_plugin.launchers.outcome import RankOutcome
from gpubench_plugin.records import Json

LIMIT_BYTES: Final = 64 * 1024
"""The most a rank sends of one benchmark, beside what is recorded of it."""
LONGEST_TEXT: Final = 12_000
"""Characters kept of one text where there is room; of a traceback or an output the end matters."""
_RESERVED_BYTES: Final = 4096
"""Left for what is sent beside reports and warnings."""
_RECORDED: Final = ("measurement", "events")
"""The parts of a report's payload that are recorded: those of rank zero alone are read."""
_SHORTEST_REASON: Final = 100
_MOST_SECTIONS: Final = 6
_MOST_PROPERTIES: Final = 50
_MOST_WARNINGS: Final = 20


def encode(
    config: pytest.Config,
    reports: Sequence[pytest.TestReport],
    warnings: Sequence[Json] = (),
    *,
    longest: int = LONGEST_TEXT,
    captured: bool = True,
    recorded: bool = False,
) -> Json:
    """The `reports` of one benchmark and its `warnings`, texts of at most `longest` characters.

    All together are less than `LIMIT_BYTES`, but for what is recorded. Of many warnings the first
    are kept, and the number of those left out.
    """
    whole = [_serialized(config, report) for report in reports]
    while True:
        message: Json = {
            "reports": [_shortened(data, longest, captured=captured) for data in whole],
            "warnings": _first(warnings, longest),
        }
        if longest == 0 or len(json.dumps(message)) <= LIMIT_BYTES - _RESERVED_BYTES:
            break
        longest //= 2
    if recorded:
        for shortened, data in zip(message["reports"], whole, strict=True):
            payload = data[report_payload.ATTRIBUTE]
            shortened[report_payload.ATTRIBUTE] |= {
                name: _plain(payload[name]) for name in _RECORDED if name in payload
            }
    return message


def decode(config: pytest.Config, rank: int, message: Json) -> RankOutcome:
    """What became of a benchmark on `rank`, from what :func:`encode` wrote there."""
    return RankOutcome(
        rank=rank,
        state="ended",
        reports=tuple(_report_from_json(config, data) for data in message["reports"]),
        warnings=tuple(message["warnings"]),
        exit=message.get("exit"),
        exit_code=message.get("exit_code"),
    )


def exit_to_json(error: BaseException) -> Json:
    """That the test asked to end the whole session, and why; to be added to what is encoded."""
    reason = error_text(error)[: report_payload.LONGEST_REASON] or type(error).__name__
    return {"exit": reason, "exit_code": getattr(error, "returncode", None)}


def _serialized(config: pytest.Config, report: pytest.TestReport) -> Json:
    data: Json | None = config.hook.pytest_report_to_serializable(config=config, report=report)
    assert data is not None, "pytest itself implements the hook"
    data["longreprtext"] = report.longreprtext
    return {report_payload.ATTRIBUTE: {}, **data}


def _shortened(data: Json, longest: int, *, captured: bool) -> Json:
    """The report as JSON values; a text of more than `longest` characters loses its beginning."""
    data, longrepr = dict(data), data["longrepr"]
    text = data.pop("longreprtext")
    if isinstance(longrepr, dict) and len(json.dumps(longrepr, default=str)) > 2 * longest:
        longrepr = text
    data["longrepr"] = _cut(longrepr, longest)
    data["sections"] = _cut(data["sections"][-_MOST_SECTIONS:], longest) if captured else []
    properties = data["user_properties"][:_MOST_PROPERTIES] if captured else []
    data["user_properties"] = [[_short(part, longest) for part in pair] for pair in properties]
    payload = data[report_payload.ATTRIBUTE]
    data[report_payload.ATTRIBUTE] = {
        name: value[: max(longest, _SHORTEST_REASON)] if name == "reason" else value
        for name, value in payload.items()
        if name not in _RECORDED
    }
    return {name: _plain(value) for name, value in data.items()}


def _report_from_json(config: pytest.Config, data: Json) -> pytest.TestReport:
    """The report as it was; JSON's lists are pytest's tuples again."""
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


def warning_from_json(data: Json, ranks: str) -> dict[str, Any]:
    """Arguments of ``pytest_warning_recorded`` for a warning of those `ranks`.

    A category that is not one of Python's own becomes a plain warning that names it.
    """
    category = getattr(builtins, data["category"], None)
    text = data["text"]
    if not (isinstance(category, type) and issubclass(category, Warning)):
        category, text = UserWarning, f"{data['category']}: {text}"
    return {
        "warning_message": warnings.WarningMessage(
            category(f"[{ranks}] {text}"), category, data["filename"], data["lineno"]
        ),
        "when": data["when"],
        "nodeid": data["nodeid"],
        "location": data["location"] and tuple(data["location"]),
    }


def _first(warnings: Sequence[Json], max_text: int) -> list[Json]:
    kept_warnings = [
        {**warning, "text": _cut(warning["text"], max_text)}
        for warning in warnings[:_MOST_WARNINGS]
    ]
    if omitted := len(warnings) - len(kept_warnings):
        kept_warnings.append({**warnings[-1], "text": f"{omitted} more warnings omitted"})
    return kept_warnings


def _plain(value: Any) -> Any:
    """Convert `value` to JSON types, others to text."""
    try:
        return json.loads(json.dumps(value, default=str))
    except (TypeError, ValueError, RecursionError):  # a key that is no text, a circle
        return repr(value)


def _short(value: Any, max_text: int) -> Any:
    """`value` as JSON, or the tail of its text if too long."""
    if isinstance(value, str):
        return _cut(value, max_text)
    json_value = _plain(value)
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
