"""A rendered page, read back: what it shows, and the data that its script gets."""

from __future__ import annotations

import base64
import json
import struct
from collections import Counter
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

_VOID = {"meta", "link", "input", "col", "br", "img"}
_CELLS = {"td", "th"}


@dataclass
class ReadPage(HTMLParser):
    """`cells` are those of all tables by row; `texts` what stands outside of script and style.

    `tables` are by caption; those of a benchmark's details are behind the number of its row.
    """

    text: str
    tags: Counter[str] = field(default_factory=Counter)
    attributes: list[tuple[str, str, str]] = field(default_factory=list)
    cells: list[list[str]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    inline: dict[str, list[str]] = field(default_factory=lambda: {"script": [], "style": []})
    blocks: list[Any] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)
    tables: dict[str, list[list[str]]] = field(default_factory=dict)
    links: list[str] = field(default_factory=list)
    _caption: str = ""
    _first: int = 0
    open_tags: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.feed(self.text)
        self.close()
        assert not self.open_tags

    @property
    def charts(self) -> list[Any]:
        """The records of charts, in the order of the page."""
        return [block for block in self.blocks if "series" in block]

    def values(self, number: int) -> list[float]:
        """The history of a row of the page's data."""
        encoded = base64.b64decode(self.data["rows"][number]["history"]["values"])
        return list(struct.unpack(f"<{len(encoded) // 8}d", encoded))

    @property
    def words(self) -> str:
        """All that is to be read."""
        return " ".join(" ".join(self.texts).split())

    def row(self, name: str) -> dict[str, Any]:
        """The data of the benchmark whose id ends so."""
        own: dict[str, Any] = self.data["rows"][self._number(name)]
        return own

    def detail(self, name: str, caption: str) -> list[list[str]]:
        """A table in the details of the benchmark whose id ends so."""
        return self.tables[f"{self._number(name)} {caption}"]

    def history(self, name: str) -> dict[str, float]:
        """Values of a benchmark's history by run id."""
        number = self._number(name)
        runs = self.data["rows"][number]["history"].get("runs") or range(len(self.data["runs"]))
        ids = [self.data["runs"][run][0] for run in runs]
        return dict(zip(ids, self.values(number), strict=True))

    def _number(self, name: str) -> int:
        return next(i for i, row in enumerate(self.data["rows"]) if row["id"].endswith(name))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.tags[tag] += 1
        self.attributes += [(tag, name, value) for name, value in given.items()]
        if tag == "table":
            self._caption, self._first = "", len(self.cells)
        elif tag == "a":
            self.links.append(given["href"])
        if tag == "tr":
            self.cells.append([])
        elif tag in _CELLS:
            self.cells[-1].append("")
        if tag not in _VOID:
            self.open_tags.append((tag, given))

    def handle_endtag(self, tag: str) -> None:
        assert self.open_tags[-1][0] == tag
        self.open_tags.pop()
        if tag == "table":
            rows = [own["data-row"] for name, own in self.open_tags if name == "template"]
            key = " ".join([*rows, self._caption])
            self.tables.setdefault(key, []).extend(self.cells[self._first :])

    def handle_data(self, data: str) -> None:
        tag, attributes = self.open_tags[-1] if self.open_tags else ("", {})
        if tag in self.inline:
            if attributes.get("type") == "application/json":
                self.blocks.append(json.loads(data))
                if attributes.get("id") == "data":
                    self.data = self.blocks[-1]
            else:
                self.inline[tag].append(data)
            return
        if any(name in _CELLS for name, _ in self.open_tags):
            self.cells[-1][-1] += data
        if tag == "caption":
            self._caption += data
        if data.strip():
            self.texts.append(data)
