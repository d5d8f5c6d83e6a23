"""A page as one HTML file that asks no network.

Its content security policy allows its own script and style alone, by their hashes. Texts are
escaped by Jinja2; data are JSON in ASCII without the characters of markup.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin.core.format import SCALES, byte_size, counted
from gpubench_plugin.core.records import Json
from gpubench_plugin.reports.html.chart import Chart
from gpubench_plugin.reports.html.page import History, Page, Row
from gpubench_plugin.reports.text import escape_control
from gpubench_plugin.reports.verdicts import kind_text, mark

if TYPE_CHECKING:
    from jinja2 import Environment

LIMIT: Final = 8 * 2**20
"""Bytes of a page at most."""

TEMPLATES: Final = Path(__file__).with_name("templates")
_STYLES: Final = ("vendor/uPlot.min.css", "page.css")
_SCRIPTS: Final = ("vendor/uPlot.iife.min.js", "page.js")
_LEAST_POINTS: Final = 24  # of a history: those of its sparkline
_ROOM_FOR_NOTES: Final = 1000  # bytes
_FAILED: Final = frozenset({"failed", "misconfigured", "oom", "hang", "crashed"})
_TONES: Final = {
    **dict.fromkeys((*_FAILED, "mismatched_ranks", "errored", "regressed"), "bad"),
    **dict.fromkeys(("unchanged", "measured"), "plain"),
    "improved": "good",
}
# Of the web or relative: no colon before the first of /, ? and #.
_SAFE_ADDRESS: Final = re.compile(r"https?://|[^:\\]*([/?#]|\Z)")
_HAS_MARKUP: Final = re.compile("[<>&]")
_MARKUP: Final = str.maketrans({"<": r"\u003c", ">": r"\u003e", "&": r"\u0026"})


def render(page: Page, *, limit: int = LIMIT) -> str:
    """`page` as HTML of at most `limit` bytes, as far as its rows decide.

    What does not fit is left out, and the page says so: the details of the last rows, then older
    points of all histories, then the last rows.
    """
    from markupsafe import Markup

    environment = _environment()
    scripts, styles = ([*map(_source, names)] for names in (_SCRIPTS, _STYLES))
    columns = _columns(page.rows)
    shell: Json = {
        "page": page,
        "columns": columns,
        "styles": [*map(Markup, styles)],
        "scripts": [*map(Markup, scripts)],
        "policy": f"default-src 'none'; script-src {_hashes(scripts)}; style-src {_hashes(styles)};"
        " img-src data:; base-uri 'none'; form-action 'none'",
    }
    template = environment.get_template("page.html.j2")
    parts: Any = environment.get_template("parts.html.j2").module
    empty = template.render(**shell, lines=(), details=(), data="", left_out="")
    lines = [parts.line(row, columns) for row in page.rows]
    details = [parts.details(row, n) if row.sections else "" for n, row in enumerate(page.rows)]
    data, left_out = _fitted(page, lines, details, limit - _size(empty) - _ROOM_FOR_NOTES)
    return template.render(
        **shell, lines=lines, details=details, data=Markup(data), left_out=left_out
    )


def _fitted(page: Page, lines: list[str], details: list[str], room: int) -> tuple[str, str]:
    """The data of rows and the words for what is left out, also of `lines` and `details`."""
    points = longest = max((len(row.history.runs) for row in page.rows if row.history), default=0)
    head, rows = _head(page), _data(page, points)
    missing = sum(map(_size, (head, *lines, *details, *rows))) - room
    notes, number, dropped = [], len(details), 0
    while missing > 0 and number:
        number -= 1
        missing -= _size(details[number])
        dropped += bool(details[number])
        details[number] = ""
    if dropped:
        notes.append(f"the details of {counted(dropped, 'benchmark')}")
    while missing > 0 and points > _LEAST_POINTS:
        points = max(points * 3 // 4, _LEAST_POINTS)
        missing -= sum(map(len, rows))
        rows = _data(page, points)
        missing += sum(map(len, rows))
    if points < longest:
        notes.append(f"all but the last {points} points of histories")
    while missing > 0 and lines:
        missing -= _size(lines.pop()) + len(rows.pop())
    if len(lines) < len(page.rows):
        notes.append(f"the last {counted(len(page.rows) - len(lines), 'benchmark')}")
    words = f"Left out, since a page has at most {byte_size(LIMIT)}: {'; '.join(notes)}."
    return f'{head}, "rows": [{", ".join(rows)}]}}', words if notes else ""


def _head(page: Page) -> str:
    """What rows refer to by position, and the scales of numbers in words."""
    runs = [[run.run_id, run.started, run.commit, run.branch] for run in page.runs]
    return _json({"scales": SCALES, "facets": _facets(page), "runs": runs})[:-1]


def _data(page: Page, points: int) -> list[str]:
    """JSON of each row, with the last `points` of its history."""
    facets = _facets(page)
    return [
        _json(
            {
                "id": row.id,
                "number": row.number,
                "change": row.change_number,
                "outcome": row.outcome,
                "kind": row.kind,
                "doubts": row.doubts,
                "facets": [row.facets.get(name, "") for name in facets],
                "history": row.history and _of_history(row.history, points, len(page.runs)),
            }
        )
        for row in page.rows
    ]


def _facets(page: Page) -> list[str]:
    return [*dict.fromkeys(name for row in page.rows for name in row.facets)]


def _of_history(history: History, points: int, run_count: int) -> Json:
    """A history; its values as base64, since only those looked at are decoded."""
    first = max(len(history.runs) - points, 0)
    values, runs = history.values[first:], history.runs[first:]
    encoded = base64.b64encode(struct.pack(f"<{len(values)}d", *values)).decode()
    doubts: dict[str, list[int]] = {}
    for at, text in history.doubts.items():
        if at >= first:
            doubts.setdefault(text, []).append(at - first)
    is_all = runs == tuple(range(run_count))
    return {
        "metric": history.metric,
        "unit": history.unit,
        "values": encoded,
        **({} if is_all else {"runs": runs}),
        "doubts": [*doubts.items()],
        "levels": [(at - first, text) for at, text in history.levels if at >= first],
        "band": history.band,
    }


def _of_chart(chart: Chart) -> str:
    return _json({**vars(chart), "series": [vars(series) for series in chart.series]})


def _json(record: Json) -> str:
    """`record` as JSON without characters of markup; a number that is not finite is null."""
    try:
        text = json.dumps(record, allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(record))
    return text.translate(_MARKUP) if _HAS_MARKUP.search(text) else text


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    return [*map(_finite, value)] if isinstance(value, list | tuple) else value


def _columns(rows: Sequence[Row]) -> list[str]:
    """The columns in which any row has something."""
    has = {
        "value": lambda row: row.value,
        "change": lambda row: row.change,
        "verdict": lambda row: row.kind or row.outcome != "measured",
        "doubts": lambda row: row.doubts,
        "history": lambda row: row.history,
    }
    return ["benchmark", *(name for name, of in has.items() if any(map(of, rows)))]


def _words(row: Row) -> list[str]:
    """Its verdict, and its outcome where it is not measured."""
    return [*dict.fromkeys(filter(None, (row.kind, row.outcome * (row.outcome != "measured"))))]


def _sign(kind: Any) -> str:
    return mark(kind) or ("!" if _TONES.get(kind) == "bad" else "")


def _visible(text: Any) -> Any:
    """A text with what is not visible escaped, but for the ends of its lines."""
    if not isinstance(text, str) or hasattr(text, "__html__") or text.isprintable():
        return text
    return "".join(c if c in "\n\t" else escape_control(c) for c in text)


def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_visible,
    )
    environment.filters |= {
        "chart_json": lambda chart: Markup(_of_chart(chart)),
        "is_safe": lambda href: bool(_SAFE_ADDRESS.match(href)),
        "sign": _sign,
        "tone": lambda kind: _TONES.get(kind, "caution"),
        "words": _words,
        "words_of": kind_text,
    }
    return environment


def _source(name: str) -> str:
    return (TEMPLATES / name).read_text(encoding="utf-8")


def _hashes(texts: Sequence[str]) -> str:
    """Sources of a content security policy for inline `texts`."""
    digests = (hashlib.sha256(text.encode()).digest() for text in texts)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)


def _size(text: str) -> int:
    return len(text.encode())
