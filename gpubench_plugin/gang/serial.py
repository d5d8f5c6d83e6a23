"""Reports and warnings as JSON, bounded in size: what a rank sends of one benchmark."""

from __future__ import annotations

import builtins
import json
import warnings
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from gpubench_plugin.records import Json

LONGEST_TEXT: Final = 12_000
"""Characters kept of a traceback or of one captured section; the rank's own end is what matters."""
_MOST_SECTIONS: Final = 6


def report_to_json(config: pytest.Config, report: pytest.TestReport) -> Json:
    """The `report` as JSON values; long texts lose their beginning."""
    data: Json | None = config.hook.pytest_report_to_serializable(config=config, report=report)
    assert data is not None, "pytest itself implements the hook"
    longrepr = data["longrepr"]
    if longrepr is not None and len(json.dumps(longrepr, default=str)) > 2 * LONGEST_TEXT:
        data["longrepr"] = _end_of(report.longreprtext)
    data["sections"] = [(name, _end_of(text)) for name, text in data["sections"][-_MOST_SECTIONS:]]
    plain: Json = json.loads(json.dumps(data, default=str))
    return plain


def report_from_json(config: pytest.Config, data: Json) -> pytest.TestReport:
    """The report written by :func:`report_to_json`; JSON's lists are pytest's tuples again."""
    if isinstance(data["longrepr"], list):  # of a skip
        data["longrepr"] = tuple(data["longrepr"])
    data["location"] = tuple(data["location"])
    for name in ("sections", "user_properties"):
        data[name] = [tuple(pair) for pair in data[name]]
    report = config.hook.pytest_report_from_serializable(config=config, data=data)
    assert isinstance(report, pytest.TestReport)
    return report


def warning_to_json(
    message: warnings.WarningMessage, when: str, nodeid: str, location: tuple[str, int, str] | None
) -> Json:
    """A warning as ``pytest_warning_recorded`` tells it."""
    return {
        "category": message.category.__name__,
        "text": _end_of(str(message.message)),
        "filename": message.filename,
        "lineno": message.lineno,
        "when": when,
        "nodeid": nodeid,
        "location": location,
    }


def warning_from_json(data: Json, ranks: str) -> dict[str, Any]:
    """The arguments of ``pytest_warning_recorded`` for a warning of those `ranks`.

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


def _end_of(text: str) -> str:
    if len(text) <= LONGEST_TEXT:
        return text
    return f"[{len(text) - LONGEST_TEXT} characters left out]\n{text[-LONGEST_TEXT:]}"
