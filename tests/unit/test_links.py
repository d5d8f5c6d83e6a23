"""Links between the pages of the documentation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]

LINK = re.compile(r"\]\((?!https?:|mailto:)([^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)
CODE_BLOCK = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def test_links_lead_to_pages_and_headings() -> None:
    """Whatever a page links to in the repository is there, the heading as well."""
    links = [(page, link) for page in PAGES for link in links_of(page)]
    broken = [
        f"{page.relative_to(ROOT)}: {link}" for page, link in links if not is_whole(page, link)
    ]
    assert len(links) > 100
    assert broken == []


def test_index_lists_every_page() -> None:
    """No page of the guide, the reference or the evidence is found by its name alone."""
    index = ROOT / "docs" / "index.md"
    listed = {(index.parent / link.partition("#")[0]).resolve() for link in links_of(index)}
    pages = set((ROOT / "docs").glob("*/*.md"))
    assert pages - listed == set()


def links_of(page: Path) -> Iterator[str]:
    """Targets of the relative links of `page`, outside of its code blocks."""
    yield from LINK.findall(CODE_BLOCK.sub("", page.read_text(encoding="utf-8")))


def is_whole(page: Path, link: str) -> bool:
    """Whether the file that `link` of `page` names is there, and has the heading."""
    name, _, heading = link.partition("#")
    target = page.parent / name if name else page
    if not target.exists():
        return False
    if not heading:
        return True
    return heading in map(anchor, HEADING.findall(target.read_text(encoding="utf-8")))


def anchor(heading: str) -> str:
    """The name that GitHub gives to a `heading`, by which links lead to it."""
    words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
