"""The code blocks of README, CONTRIBUTING and the pages of docs, as they stand there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
CONTRIBUTING: Final = ROOT / "CONTRIBUTING.md"
GUIDE: Final = ROOT / "docs" / "guide"


class Block(NamedTuple):
    """A block's language, empty for a terminal's, the file that its first line names, and text."""

    language: str
    file: str
    text: str


UNREACHABLE: Final = "peak_memory_bytes=<=1000"
"""Limit of a command that is shown to fail."""


def documents() -> list[Path]:
    """All but pages of the site that only include one of them."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return [file for file in found if not file.read_bytes().startswith(b"```{include}")]


def blocks(document: Path) -> list[Block]:
    pattern = r"^```(\w*)\n(?=(?:# (\S+\.(?:py|yaml|toml)))?)(.*?)^```"
    text = document.read_text(encoding="utf-8")
    return [Block(*found) for found in re.findall(pattern, text, re.DOTALL | re.MULTILINE)]


def files(document: Path) -> dict[str, str]:
    """The texts of the blocks that name a file, by that file."""
    return {block.file: block.text for block in blocks(document) if block.file}
