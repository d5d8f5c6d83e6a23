"""A written page, read back: what a user sees of it, and the data that its script draws."""

from __future__ import annotations

import base64
import json
import struct
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path


@dataclass
class ReadPage(HTMLParser):
    """Texts, tables by caption, charts, rows of benchmarks and their histories."""

    texts: list[str] = field(default_factory=list)
    tables: dict[str, list[list[str]]] = field(default_factory=dict)
    charts: list[dict[str, Any]] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)
    links: list[str] = field(default_factory=list)
    _script: str = ""
    _rows: list[list[str]] = field(default_factory=list)
    _caption: str = ""
    _row: str = ""
    _inside: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, file: Path) -> ReadPage:
        """The page in a file."""
        page = cls()
        HTMLParser.__init__(page)
        page.feed(file.read_text(encoding="utf-8"))
        page.close()
        return page

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a table, a row, a cell or a block of data."""
        given = dict(attrs)
        self._inside.append(tag)
        if tag == "template":
            self._row = f"{given['data-row']} "
        if tag == "script":
            self._script = "data" if given.get("id") else given.get("type") or "code"
        elif tag == "table":
            self._rows, self._caption = [], ""
        elif tag == "tr":
            self._rows.append([])
        elif tag in {"td", "th"}:
            self._rows[-1].append("")
        elif tag == "a":
            self.links.append(given.get("href") or "")

    def handle_endtag(self, tag: str) -> None:
        """End what was begun."""
        while self._inside and self._inside.pop() != tag:
            pass
        if tag == "script":
            self._script = ""
        elif tag == "table":
            self.tables.setdefault(self._row + self._caption, []).extend(self._rows)
        elif tag == "template":
            self._row = ""

    def handle_data(self, data: str) -> None:
        """Sort a text to where it is."""
        if self._script == "data":
            self.data = json.loads(data)
        elif self._script == "application/json":
            self.charts.append(json.loads(data))
        elif not self._script and "style" not in self._inside:
            self.texts.append(data)
            if "caption" in self._inside:
                self._caption += data
            elif {"td", "th"} & {*self._inside}:
                self._rows[-1][-1] += data

    @property
    def text(self) -> str:
        """All that is to be read."""
        return " ".join(" ".join(self.texts).split())

    def row(self, name: str) -> dict[str, Any]:
        """The data of the benchmark whose id ends so."""
        return next(row for row in self.data["rows"] if row["id"].endswith(name))

    def detail(self, name: str, caption: str) -> list[list[str]]:
        """A table in the details of the benchmark whose id ends so."""
        number = next(i for i, row in enumerate(self.data["rows"]) if row["id"].endswith(name))
        return self.tables[f"{number} {caption}"]

    def history(self, name: str) -> dict[str, float]:
        """Values of a benchmark's history by run id."""
        history = self.row(name)["history"]
        raw = base64.b64decode(history["values"])
        runs = history.get("runs") or range(len(self.data["runs"]))
        values = struct.unpack(f"<{len(raw) // 8}d", raw)
        return {self.data["runs"][run][0]: v for run, v in zip(runs, values, strict=True)}
