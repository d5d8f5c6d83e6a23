"""What the site adds to the pages, which are read on a forge as well.

A block ``{generated} module.function`` becomes the text of that function, in place of what stands
in it for a forge; a page with nothing but an ``{include}`` the document of that name. Links to such
a document lead to that page, links to other files outside ``docs`` to a copy. A section of links in
``index.md`` is one of the navigation.
"""

from __future__ import annotations

import os
import re
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from docutils import nodes
from sphinx.errors import ExtensionError
from sphinx.ext.autodoc.mock import mock
from sphinx.ext.napoleon import GoogleDocstring

if TYPE_CHECKING:
    from sphinx.addnodes import pending_xref
    from sphinx.application import Sphinx

DOCS: Final = Path(__file__).parents[1]
_BLOCK: Final = re.compile(r"^```\{generated\} (\w+)\.(\w+)\n(?:.+\n)*?```$", re.MULTILINE)
_INCLUDE: Final = re.compile(r"```\{include\} (\S+)")
_SECTION: Final = re.compile(r"^## (.+)\n+((?:^(?!## ).*\n?)*)", re.MULTILINE)
_KINDS: Final = {
    "Key": "confval",
    "Metric": "metric",
    "Option": "cmdoption",
    "Argument": "cmdoption",
}
"""Kinds of objects by the head of a table's first column."""
_FOREIGN: Final = re.compile(
    r'<(?:script|link|img|source|iframe)\b(?![^>]*rel="canonical")[^>]*(?:src|href)="(?:https?:)?//'
    r"|url\([\"']?(?:https?:)?//|@import"
)
"""What a browser would fetch of another host."""


@cache
def pages() -> dict[Path, Path]:
    """The page of each document outside ``docs`` that has one."""
    found = {page: _INCLUDE.match(page.read_text(encoding="utf-8")) for page in DOCS.rglob("*.md")}
    return {(page.parent / match[1]).resolve(): page for page, match in found.items() if match}


def complete(app: Sphinx, name: str, source: list[str]) -> None:
    """The whole text of a page."""
    page = DOCS / f"{name}.md"
    file = next((document for document, own in pages().items() if own == page), page)
    text = file.read_text(encoding="utf-8")
    lead = partial(_lead, file.parent, page.parent)
    text = re.sub(r"\]\((?![a-z]+:|#)([^)#\s]+)", lead, text)
    with mock(app.config.autodoc_mock_imports):
        text = _BLOCK.sub(_generated, text)
    if name == "index":
        text += "".join(_navigation(*section) for section in _SECTION.findall(text))
    source[0] = text


def _lead(folder: Path, page_folder: Path, link: re.Match[str]) -> str:
    """A `link` in a document of `folder`, from a page in another."""
    file = (folder / link[1]).resolve()
    if not file.is_file():
        return link[0]
    target = pages().get(file, file)
    scheme = "" if target.is_relative_to(DOCS) else "path:"
    return f"]({scheme}{os.path.relpath(target, page_folder)}"


def _generated(block: re.Match[str]) -> str:
    return str(getattr(import_module(f"docs.extensions.{block[1]}"), block[2])())


def _navigation(title: str, text: str) -> str:
    links = re.findall(r"\[([^]]+)\]\(([^)#:]+)\.md", text)
    entries = "".join(f"{label.replace('`', '')} <{page}>\n" for label, page in links)
    return f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{entries}```\n"


def find_objects(app: Sphinx, doctree: nodes.document) -> None:
    """Make the first cells of generated tables anchors that the search finds."""
    domain = app.env.domains.standard_domain
    if not _BLOCK.search(Path(app.env.doc2path(app.env.docname)).read_text(encoding="utf-8")):
        return
    for row in doctree.findall(nodes.row):
        table, name = row.parent.parent, next(row[0].findall(nodes.literal), None)
        head = next(table.findall(nodes.entry)).astext()
        if head not in _KINDS or name is None:
            continue
        text = name.astext().partition("=")[0]
        if head == "Argument":
            text = f"{table.parent.parent[0].astext()} {text}"
        if (_KINDS[head], text) not in domain.objects:
            row["ids"].append(nodes.make_id(text))
            domain.note_object(_KINDS[head], text, row["ids"][0], location=row)


def shorten_signature(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, signature: Any, result: Any
) -> tuple[str, str] | None:
    """Defaults that are no Python would leave the whole signature unread."""
    if not signature:
        return None
    return ("" if what == "exception" else signature.replace("<factory>", "..."), result)


def read_sections(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: Any) -> None:
    """``Raises:`` and the like; napoleon as an extension takes ``Dtype of x: y`` for a type."""
    lines[:] = GoogleDocstring(lines).lines()


def leave_unlinked(app: Sphinx, env: Any, node: pending_xref, text: Any) -> nodes.Node | None:
    """Types in signatures, and what other packages document; the rest must have its target."""
    is_ours = node["reftarget"].startswith("gpubench_plugin.") and "refwarn" in node
    return text if node["refdomain"] == "py" and not is_ours else None


def check_hosts(app: Sphinx, error: Exception | None) -> None:
    """Refuse pages that a browser could not show offline."""
    files = [file for file in app.outdir.rglob("*") if file.suffix in {".html", ".css"}]
    foreign = [str(f) for f in files if _FOREIGN.search(f.read_text(encoding="utf-8"))]
    if foreign and not error:
        raise ExtensionError(f"other hosts are asked by {', '.join(foreign)}")


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_object_type("metric", "metric")
    app.add_object_type("fixture", "fixture")
    app.connect("source-read", complete)
    app.connect("doctree-read", find_objects)
    app.connect("missing-reference", leave_unlinked)
    app.connect("autodoc-process-signature", shorten_signature)
    app.connect("autodoc-process-docstring", read_sections)
    app.connect("build-finished", check_hosts)
    return {"parallel_read_safe": True}
