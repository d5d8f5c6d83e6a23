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
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin.core.format import SCALES, byte_size, counted, grouped
from gpubench_plugin.core.records import Json
from gpubench_plugin.reports.html.chart import Chart
from gpubench_plugin.reports.html.page import History, Page, Row
from gpubench_plugin.reports.text import escape_control
from gpubench_plugin.reports.verdicts import kind_text, mark

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

LIMIT: Final = 8 * 2**20
"""Bytes of a page at most."""

TEMPLATES: Final = Path(__file__).with_name("templates")
_STYLES: Final = ("vendor/uPlot.min.css", "page.css")
_SCRIPTS: Final = ("vendor/uPlot.iife.min.js", "page.js")
_ROOM_FOR_NOTES: Final = 1000  # bytes
_POLICY: Final = (
    "default-src 'none'; script-src {}; style-src {}; img-src data:; base-uri 'none';"
    " form-action 'none'"
)
_FAILED: Final = ("failed", "misconfigured", "oom", "hang", "crashed", "mismatched_ranks")
_TONES: Final[Mapping[str, Sequence[str]]] = {
    "bad": ("regressed", "errored", *_FAILED),
    "good": ("improved",),
    "plain": ("unchanged", "measured"),
}
# Of the web or relative: no colon before the first of /, ? and #.
_SAFE_ADDRESS: Final = re.compile(r"https?://|[^:\\]*([/?#]|\Z)")
_HAS_MARKUP: Final = re.compile("[<>&]")
_MARKUP: Final = str.maketrans({"<": r"\u003c", ">": r"\u003e", "&": r"\u0026"})


def render(page: Page, *, limit: int = LIMIT) -> str:
    """`page` as HTML of at most `limit` bytes, as far as its rows decide.

    What does not fit is left out, and the page says so: the details of the last rows, then the last
    rows.
    """
    from markupsafe import Markup

    environment, columns = templates(), _columns(page.rows)
    scripts, styles = ([*map(_source, names)] for names in (_SCRIPTS, _STYLES))
    policy = _POLICY.format(_hashes(scripts), _hashes(styles))
    fill = environment.get_template("page.html.j2").render
    whole = partial(fill, page=page, columns=columns, policy=policy, scripts=scripts, styles=styles)
    parts: Any = environment.get_template("parts.html.j2").module
    lines = [parts.line(row, columns) for row in page.rows]
    details = [parts.details(row, n) if row.sections else "" for n, row in enumerate(page.rows)]
    room = limit - _ROOM_FOR_NOTES - _size(whole(lines=(), details=(), data="", left_out=""))
    data, left_out = _fitted(page, lines, details, room)
    return str(whole(lines=lines, details=details, data=Markup(data), left_out=left_out))


def _fitted(page: Page, lines: list[str], details: list[str], room: int) -> tuple[str, str]:
    """The data of rows and the words for what is left out, also of `lines` and `details`."""
    left, notes, dropped = len(details), [], 0
    runs = [(run.run_id, run.started, run.commit, run.branch) for run in page.runs]
    facets = [*dict.fromkeys(name for row in page.rows for name in row.facets)]
    head = _json({"scales": SCALES, "facets": facets, "runs": runs})[:-1]
    rows = [_of_row(row, facets, len(runs)) for row in page.rows]
    missing = sum(map(_size, (head, *lines, *details, *rows))) - room
    while missing > 0 and left:
        left -= 1
        missing -= _size(details[left])
        dropped += bool(details[left])
        details[left] = ""
    if dropped:
        notes.append(f"the details of {counted(dropped, 'benchmark')}")
    while missing > 0 and lines:
        missing -= _size(lines.pop()) + len(rows.pop())
    if len(lines) < len(page.rows):
        notes.append(f"the last {counted(len(page.rows) - len(lines), 'benchmark')}")
    words = f"Left out, since a page has at most {byte_size(LIMIT)}: {'; '.join(notes)}."
    return f'{head}, "rows": [{"".join(rows).removesuffix(",")}]}}', words if notes else ""


def _of_row(row: Row, facets: Sequence[str], run_count: int) -> str:
    """JSON of a row with its history, and a comma."""
    own = {name: getattr(row, name) for name in ("id", "number", "outcome", "kind", "doubts")}
    own |= {"change": row.change_number, "facets": [row.facets.get(name, "") for name in facets]}
    own["history"] = row.history and _of_history(row.history, run_count)
    return f"{_json(own)},"


def _of_history(history: History, run_count: int) -> Json:
    """A history; its values as base64, since only those looked at are decoded."""
    values, runs = history.values, history.runs
    return {
        "metric": history.metric,
        "unit": history.unit,
        "band": history.band,
        "values": base64.b64encode(struct.pack(f"<{len(values)}d", *values)).decode(),
        **({} if runs == tuple(range(run_count)) else {"runs": runs}),
        "doubts": [*grouped((text, at) for at, text in history.doubts.items()).items()],
        "levels": history.levels,
    }


def _of_chart(chart: Chart) -> str:
    return _json({**vars(chart), "series": [vars(series) for series in chart.series]})


def _json(record: Json) -> str:
    """`record` as JSON without characters of markup; a number that is not finite is null."""
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
    cells: Json = {name: attrgetter(name) for name in ("metric", "value", "change")}
    cells |= {"verdict": _words, "doubts": attrgetter("doubts"), "history": attrgetter("history")}
    return ["benchmark", *(name for name, cell in cells.items() if any(map(cell, rows)))]


def _words(row: Row) -> list[str]:
    """Its verdict, and its outcome where that says more."""
    words = dict.fromkeys(filter(None, (row.kind, row.outcome * (row.outcome != "measured"))))
    return [word for word in words if len(words) == 1 or word not in {"failed", "not_measured"}]


def _sign(kind: Any) -> str:
    return mark(kind) or "!" * (_tone(kind) == "bad")


def _tone(kind: str) -> str:
    return next((tone for tone, kinds in _TONES.items() if kind in kinds), "caution")


def _visible(text: Any) -> Any:
    """A text with what is not visible escaped, but for the ends of its lines."""
    if not isinstance(text, str) or hasattr(text, "__html__") or text.isprintable():
        return text
    return "".join(c if c in "\n\t" else escape_control(c) for c in text)


def templates() -> Environment:
    """The templates, which escape texts; one that is not given is an error."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    loader = FileSystemLoader(TEMPLATES)
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined)
    environment.trim_blocks = environment.lstrip_blocks = True
    environment.finalize = _visible
    filters = {"sign": _sign, "tone": _tone, "words": _words, "words_of": kind_text}
    environment.filters.update(filters, is_safe=_SAFE_ADDRESS.match)
    environment.filters["chart_json"] = lambda chart: Markup(_of_chart(chart))
    return environment


def _source(name: str) -> Markup:
    from markupsafe import Markup

    return Markup((TEMPLATES / name).read_text(encoding="utf-8"))


def _hashes(texts: Sequence[str]) -> str:
    """Sources of a content security policy for inline `texts`."""
    digests = (hashlib.sha256(text.encode()).digest() for text in texts)
    return " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)


def _size(text: str) -> int:
    return len(text.encode())
