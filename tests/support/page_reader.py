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
    """`cells` are those of all tables by row; `texts` what stands outside of script and style."""

    text: str
    tags: Counter[str] = field(default_factory=Counter)
    attributes: list[tuple[str, str, str]] = field(default_factory=list)
    cells: list[list[str]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    inline: dict[str, list[str]] = field(default_factory=lambda: {"script": [], "style": []})
    blocks: list[Any] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)
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

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.tags[tag] += 1
        self.attributes += [(tag, name, value) for name, value in given.items()]
        if tag == "tr":
            self.cells.append([])
        elif tag in _CELLS:
            self.cells[-1].append("")
        if tag not in _VOID:
            self.open_tags.append((tag, given))

    def handle_endtag(self, tag: str) -> None:
        assert self.open_tags[-1][0] == tag
        self.open_tags.pop()

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
        if data.strip():
            self.texts.append(data)
