"""The protocol between a gang's controller and its ranks: invitation, messages, bounded reports."""

from __future__ import annotations

import builtins
import json
import warnings
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from gpubench_plugin.launchers import report_payload
from gpubench_plugin.launchers.output import GANG

if TYPE_CHECKING:
    import socket
    from collections.abc import MutableMapping, Sequence

    from gpubench_plugin.records import Json


LIMIT_BYTES: Final = 64 * 1024
"""The most a rank sends of one benchmark; rank zero adds what is of all ranks: `_OF_ALL`."""
LONGEST_TEXT: Final = 12_000
"""Characters kept of one text where there is room; of a traceback or an output the end matters."""
_OF_ALL: Final = ("measurement", "events")
"""What is recorded of a benchmark as rank zero tells it; from other ranks nobody would read it."""
_ROOM: Final = 4096
"""Bytes left for what is sent beside reports and warnings."""
_SHORTEST_REASON: Final = 100
_MOST_SECTIONS: Final = 6
_MOST_PROPERTIES: Final = 50
_MOST_WARNINGS: Final = 20


def bounded(
    config: pytest.Config,
    reports: Sequence[pytest.TestReport],
    warnings: Sequence[Json],
    *,
    is_root: bool,
) -> Json:
    """The `reports` of one benchmark and its `warnings`, with texts as long as there is room.

    All together are less than `LIMIT_BYTES`, but for the measurement and the events for the
    journal, which only rank zero, the root, sends. Of many warnings the first are kept, and the
    number of those left out.
    """
    for report in reports if not is_root else ():
        for name in _OF_ALL:
            report_payload.read(report).pop(name, None)
    payloads = [report_payload.to_json(report_payload.read(report)) for report in reports]
    of_all = [payload.get(name) for payload in payloads for name in _OF_ALL]
    room = LIMIT_BYTES - _ROOM + len(json.dumps(of_all, default=str))
    longest = LONGEST_TEXT
    while True:
        told: Json = {
            "reports": [report_to_json(config, report, longest) for report in reports],
            "warnings": _first(warnings, longest),
        }
        if longest == 0 or len(json.dumps(told)) <= room:
            return told
        longest //= 2


def report_to_json(
    config: pytest.Config, report: pytest.TestReport, longest: int = LONGEST_TEXT
) -> Json:
    """The `report` as JSON values; a text of more than `longest` characters loses its beginning."""
    data: Json | None = config.hook.pytest_report_to_serializable(config=config, report=report)
    assert data is not None, "pytest itself implements the hook"
    longrepr = data["longrepr"]
    if isinstance(longrepr, dict) and len(json.dumps(longrepr, default=str)) > 2 * longest:
        longrepr = report.longreprtext
    data["longrepr"] = _cut(longrepr, longest)
    data["sections"] = _cut(data["sections"][-_MOST_SECTIONS:], longest)
    properties = data["user_properties"][:_MOST_PROPERTIES]
    data["user_properties"] = [[_short(part, longest) for part in pair] for pair in properties]
    if reason := report_payload.read(report).get("reason"):
        shorter = reason[: max(longest, _SHORTEST_REASON)]
        data[report_payload.ATTRIBUTE] = {**data[report_payload.ATTRIBUTE], "reason": shorter}
    return {name: _plain(value) for name, value in data.items()}


def report_from_json(config: pytest.Config, data: Json) -> pytest.TestReport:
    """The report written by :func:`report_to_json`; JSON's lists are pytest's tuples again."""
    if isinstance(data["longrepr"], list):  # of a skip
        data["longrepr"] = tuple(data["longrepr"])
    data["location"] = tuple(data["location"])
    for name in ("sections", "user_properties"):
        data[name] = [tuple(pair) for pair in data[name]]
    if payload := data.get(report_payload.ATTRIBUTE):
        data[report_payload.ATTRIBUTE] = report_payload.from_json(payload)
    report = config.hook.pytest_report_from_serializable(config=config, data=data)
    assert isinstance(report, pytest.TestReport)
    return report


def warning_to_json(
    message: warnings.WarningMessage, when: str, nodeid: str, location: tuple[str, int, str] | None
) -> Json:
    """A warning as ``pytest_warning_recorded`` tells it."""
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


def _first(warnings: Sequence[Json], longest: int) -> list[Json]:
    shown = [{**one, "text": _cut(one["text"], longest)} for one in warnings[:_MOST_WARNINGS]]
    if left_out := len(warnings) - len(shown):
        shown.append({**warnings[-1], "text": f"{left_out} more warnings are left out"})
    return shown


def _plain(value: Any) -> Any:
    """`value` as JSON values, what JSON knows nothing of as text."""
    try:
        return json.loads(json.dumps(value, default=str))
    except (TypeError, ValueError, RecursionError):  # a key that is no text, a circle
        return repr(value)


def _short(value: Any, longest: int) -> Any:
    """`value` as JSON values, or the end of its text where that is too long."""
    if isinstance(value, str):
        return _cut(value, longest)
    plain = _plain(value)
    text = plain if isinstance(plain, str) else json.dumps(plain)
    return plain if len(text) <= longest else _cut(text, longest)


def _cut(value: Any, longest: int) -> Any:
    """`value` with every text in it cut to its end."""
    if isinstance(value, str) and len(value) > longest:
        left_out = len(value) - longest
        return f"[{left_out} characters left out]\n{value[left_out:]}"
    if isinstance(value, list | tuple):
        return [_cut(part, longest) for part in value]
    return value


LONGEST: Final = 2**26
"""Bytes in one message."""

_CHUNK: Final = 2**16


class Wire:
    """One end of a connection. Reading blocks, unless the socket is set not to.

    A message is a JSON object on one line, over a unix socket.

    It is closed for good when the other end is gone, or sends what is no message, or too long.
    """

    def __init__(self, end: socket.socket):
        self._end = end
        self._unread = b""
        self.is_open = True

    def fileno(self) -> int:
        """For selectors."""
        return self._end.fileno()

    def send(self, message: Json) -> bool:
        """Send `message`; whether the other end was there to be told."""
        data = (json.dumps(message) + "\n").encode()
        try:
            self._end.sendall(data)
        except OSError:
            return False
        return True

    def receive(self) -> Json | None:
        """The next message; None when the other end is gone."""
        while True:
            line, newline, rest = self._unread.partition(b"\n")
            if newline:
                self._unread = rest
                return self._parsed(line)
            if not self._read():
                return None

    def available(self) -> list[Json]:
        """All whole messages after one read, for a socket that is known to be readable."""
        self._read()
        return self.waiting()

    def rest(self) -> list[Json]:
        """All whole messages that a dead process left; a child of it may hold its end open yet."""
        self._end.setblocking(False)
        while self._read():
            pass
        return self.waiting()

    def waiting(self) -> list[Json]:
        """All whole messages that were read already, together with an earlier one say."""
        *lines, self._unread = self._unread.split(b"\n")
        messages = [self._parsed(line) for line in lines]
        return [message for message in messages if message is not None]

    def close(self) -> None:
        """Close this end."""
        self.is_open = False
        with suppress(OSError):
            self._end.close()

    def _parsed(self, line: bytes) -> Json | None:
        with suppress(ValueError):
            message = json.loads(line)
            if isinstance(message, dict):
                return message
        self.is_open = False
        return None

    def _read(self) -> bool:
        try:
            data = self._end.recv(_CHUNK)
        except OSError:
            data = b""
        self._unread += data
        self.is_open = bool(data) and len(self._unread) <= LONGEST
        return self.is_open


_TOKEN: Final = "GPUBENCH_GANG_TOKEN"


@dataclass(frozen=True, kw_only=True)
class Invitation:
    """The private folder of a gang, in which its socket is, and the word that opens it.

    It tells a process that it is a rank of the gang, and how to reach its controller.
    """

    folder: Path
    token: str

    @property
    def socket(self) -> Path:
        """The controller's unix socket."""
        return self.folder / "controller"

    def stack(self, rank: int) -> Path:
        """The file into which `rank` writes where it is when it is asked."""
        return self.folder / f"stack-{rank}"

    @property
    def flights(self) -> Path:
        """What the names of the files of NCCL's flight recorder begin with."""
        return self.folder / "flight-"

    @property
    def pipes(self) -> Path:
        """What the names of the pipes begin with on which a rank is asked for its flight."""
        return self.folder / "pipe-"

    def to_environment(self) -> dict[str, str]:
        """The variables that carry the invitation to a rank."""
        return {GANG: str(self.folder), _TOKEN: self.token}

    @classmethod
    def accepted(cls, environment: MutableMapping[str, str]) -> Invitation:
        """The invitation in the `environment`, taken out of it: it is not for others."""
        return cls(folder=Path(environment.pop(GANG)), token=environment.pop(_TOKEN, ""))
