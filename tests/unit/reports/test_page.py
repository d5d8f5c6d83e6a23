"""Pages as HTML: what they say, what they may load, and what is left out of large ones."""

from __future__ import annotations

import hashlib
import math
import re
from base64 import b64encode
from collections import Counter
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from gpubench_plugin.reports.html import render as render_module
from gpubench_plugin.reports.html.chart import Chart, Series
from gpubench_plugin.reports.html.page import (
    Command,
    History,
    KnownRun,
    Link,
    Page,
    Row,
    Section,
    Table,
)
from gpubench_plugin.reports.html.render import LIMIT, render
from tests.support.hostile_texts import HOSTILE
from tests.support.page_reader import ReadPage
from tests.support.sample_pages import hostile_page, sample_page, shown

EMPTY = Page(title="A page", subject="of nothing")
TEMPLATES = Path(render_module.__file__).with_name("templates")


def row(name: str = "test_it", **fields: object) -> Row:
    return replace(Row(id=f"test_file.py::{name}", name=name, outcome="measured"), **fields)


def policy(page: ReadPage) -> str:
    index = page.attributes.index(("meta", "http-equiv", "Content-Security-Policy"))
    return page.attributes[index + 1][2]


class TestTexts:
    def test_hostile_texts_are_shown_as_they_are(self) -> None:
        """In every place that takes a text; what is not visible is escaped."""
        read = ReadPage(render(hostile_page()))
        told = "\n".join(read.texts)
        missing = [text for text in HOSTILE if shown(text) not in told]
        assert missing == []
        assert [cells[0] for cells in read.cells if len(cells) > 5][1:] == [
            shown(text) * 2 for text in HOSTILE
        ]

    def test_hostile_texts_make_no_element_and_no_attribute(self) -> None:
        """All are those of harmless texts, but for links that are none, and code in backticks."""
        hostile, harmless = (
            ReadPage(render(hostile_page(texts)))
            for texts in (HOSTILE, [f"text{n}" for n in range(len(HOSTILE))])
        )
        links = harmless.tags["a"] - hostile.tags["a"]
        code = 3 * sum("`" in text for text in HOSTILE)  # in the lead, a section and the details
        assert hostile.tags + Counter(a=links) == harmless.tags + Counter(code=code)
        names = {(tag, name) for tag, name, _ in harmless.attributes}
        assert {(tag, name) for tag, name, _ in hostile.attributes} == names
        assert not any(name.startswith("on") or name == "style" for _, name in names)

    def test_hostile_texts_come_back_from_the_data(self) -> None:
        """JSON keeps each as it is, and no character of it ends the script that it stands in."""
        text = render(hostile_page())
        read = ReadPage(text)
        assert [own["id"] for own in read.data["rows"]] == [*HOSTILE]
        assert [own["doubts"] for own in read.data["rows"]] == [[each] for each in HOSTILE]
        assert read.data["facets"] == [*HOSTILE]
        assert [chart["title"] for chart in read.charts] == [*HOSTILE]
        for block in re.findall(r'(?s)<script type="application/json"[^>]*>(.*?)</script>', text):
            assert block.isascii()
            assert not re.search("[<>&]", block)

    @pytest.mark.parametrize(
        "href",
        [
            *("javascript:alert(1)", "JAVASCRIPT:alert(1)", " javascript:alert(1)"),
            *("java\nscript:alert(1)", "\x01javascript:alert(1)", "data:text/html,x"),
            *("vbscript:x", "file:///etc/passwd", "\\\\host\\share", "blob:x"),
        ],
    )
    def test_addresses_that_run_or_leave_are_no_links(self, href: str) -> None:
        """Only the text of such a link is shown."""
        read = ReadPage(render(replace(EMPTY, links=(Link("away", href),))))
        assert [a for a in read.attributes if a[:2] == ("a", "href")] == [("a", "href", "#main")]
        assert "away" in read.texts

    @pytest.mark.parametrize(
        "href", ["index.html", "a/b.html#c:d", "#benchmark=a%3Ab", "?a:b", "https://example.org/a"]
    )
    def test_addresses_of_pages_are_links(self, href: str) -> None:
        """Relative ones, and those of the web."""
        table = Table(title="Runs", columns=("run",), rows=((Link("there", href),),))
        read = ReadPage(render(replace(EMPTY, sections=(Section(title="s", tables=(table,)),))))
        assert ("a", "href", href) in read.attributes

    def test_texts_between_backticks_are_code(self) -> None:
        """Escaped as all others; a backtick without another stays one."""
        texts = ("`gpubench ab` or `<b>`: see", "a ` alone", "``")
        text = render(replace(EMPTY, sections=(Section(title="s", texts=texts),)))
        assert "<p><code>gpubench ab</code> or <code>&lt;b&gt;</code>: see</p>" in text
        assert "<p>a ` alone</p>" in text

    def test_commands_keep_their_lines(self) -> None:
        """A command is copied as it was written."""
        section = Section(title="Repeat it", texts=(Command("pytest \\\n  -k 'a::b'"),))
        read = ReadPage(render(replace(EMPTY, sections=(section,))))
        assert "pytest \\\n  -k 'a::b'" in read.texts


class TestPolicy:
    def test_nothing_is_allowed_but_its_own_script_and_style(self) -> None:
        """Their hashes are those of the texts between the tags."""
        read = ReadPage(render(sample_page(3, 5)))
        parts = dict(part.strip().split(" ", 1) for part in policy(read).split(";"))
        for tag in ("script", "style"):
            digests = (hashlib.sha256(text.encode()).digest() for text in read.inline[tag])
            expected = " ".join(f"'sha256-{b64encode(digest).decode()}'" for digest in digests)
            assert parts.pop(f"{tag}-src") == expected
        assert parts == {
            "default-src": "'none'",
            "img-src": "data:",
            "base-uri": "'none'",
            "form-action": "'none'",
        }

    def test_the_policy_precedes_what_it_governs(self) -> None:
        """It does not hold for what stands before it."""
        text = render(EMPTY)
        assert text.index("Content-Security-Policy") < min(
            text.index("<style"), text.index("<script"), text.index("<link")
        )

    def test_the_page_names_no_other_file(self) -> None:
        """Nothing is loaded from elsewhere."""
        read = ReadPage(render(sample_page(3, 5)))
        loading = [a for a in read.attributes if a[1] in {"src", "srcset", "action", "data"}]
        assert loading == []
        assert [a[2] for a in read.attributes if a[:2] == ("link", "href")] == ["data:,"]

    def test_vendored_files_are_those_that_were_published(self) -> None:
        """Each has the hash that is written beside it."""
        folder = TEMPLATES / "vendor"
        known = yaml.safe_load((folder / "vendored.yaml").read_text())
        files = {path.name for path in folder.iterdir()} - {"vendored.yaml"}
        assert known["sha256"] == {
            name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in files
        }

    @pytest.mark.parametrize("name", ["page.js", "vendor/uPlot.iife.min.js"])
    def test_scripts_can_stand_in_a_page(self, name: str) -> None:
        """None of them ends its element, or begins a comment in which nothing ends it."""
        text = (TEMPLATES / name).read_text(encoding="utf-8")
        assert not re.search("</script|<!--|<script", text, re.IGNORECASE)
        assert "innerHTML" not in (TEMPLATES / "page.js").read_text(encoding="utf-8")


class TestNumbers:
    def test_histories_come_back_bit_by_bit(self) -> None:
        """As 64-bit numbers, with the positions of runs only where they are not all of them."""
        values = (0.1, 1e-310, -0.0, 1 / 3, math.inf)
        every = History(metric="m", unit="s", runs=(0, 1, 2, 3, 4), values=values)
        some = replace(every, runs=(1, 3), values=values[:2], doubts={1: "contended"})
        runs = tuple(KnownRun(run_id=f"r{n}", started="2026-01-01T00:00:00Z") for n in range(5))
        rows = (row("a", history=every), row("b", history=some), row("c"))
        read = ReadPage(render(replace(EMPTY, rows=rows, runs=runs)))
        assert [str(value) for value in read.values(0)] == [str(value) for value in values]
        first, second, third = (own["history"] for own in read.data["rows"])
        assert "runs" not in first
        assert second["runs"] == [1, 3]
        assert second["doubts"] == [["contended", [1]]]
        assert third is None
        assert read.data["runs"][4] == ["r4", "2026-01-01T00:00:00Z", "", ""]

    def test_charts_come_back_exactly(self) -> None:
        """What is not finite is none: JSON has no name for it."""
        series = Series(
            label="a", values=(0.1 + 0.2, None, math.nan), high=(1e300, math.inf, 5e-324)
        )
        chart = Chart(title="c", unit="s", noun="run", positions=(1, 2, 3.5), series=(series,))
        read = ReadPage(render(replace(EMPTY, across=(Section(title="s", charts=(chart,)),))))
        (found,) = read.charts
        assert found["positions"] == [1, 2, 3.5]
        assert found["series"][0]["values"] == [0.30000000000000004, None, None]
        assert found["series"][0]["high"] == [1e300, None, 5e-324]


class TestTable:
    def test_columns_without_content_are_left_out(self) -> None:
        """A run that was compared with nothing has neither changes nor verdicts."""
        read = ReadPage(render(replace(EMPTY, rows=(row("a", value="1.000 s"), row("b")))))
        assert read.cells == [["benchmark", "value"], ["a", "1.000 s"], ["b", ""]]

    def test_a_verdict_has_a_sign_and_a_word(self) -> None:
        """And the outcome, where the benchmark was not measured and that says more."""
        rows = (
            row("a", kind="regressed", doubts=("contended", "hot")),
            row("b", kind="errored", outcome="oom", reason="out of memory"),
            row("c", kind="no_baseline"),
            row("d"),
            row("e", kind="errored", outcome="failed"),
        )
        read = ReadPage(render(replace(EMPTY, rows=rows)))
        cells = [[" ".join(cell.split()) for cell in line] for line in read.cells]
        assert cells == [
            ["benchmark", "verdict", "doubts"],
            ["a", "✗ regressed", "≈ contended, hot"],
            ["bout of memory", "! errored ! oom", ""],
            ["c", "no baseline", ""],
            ["d", "", ""],
            ["e", "! errored", ""],
        ]

    def test_a_page_without_anything_says_so(self) -> None:
        """It has no table, and no controls."""
        read = ReadPage(render(EMPTY))
        assert "There are no benchmarks." in read.texts
        assert read.tags["table"] == read.tags["form"] == 0
        assert read.data["rows"] == []

    def test_an_index_is_a_page_of_tables(self) -> None:
        """It does not miss benchmarks."""
        table = Table(title="Runs", columns=("run",), rows=(("r1",),))
        read = ReadPage(render(replace(EMPTY, sections=(Section(title="Runs", tables=(table,)),))))
        assert "There are no benchmarks." not in read.texts
        assert read.cells == [["run"], ["r1"]]

    def test_long_lists_above_the_table_are_folded(self) -> None:
        """With their number; those of a benchmark's details stay as they are."""
        long = Section(title="Why", texts=("a cause",) * 6)
        short = replace(long, title="Failures", texts=("a cause",) * 5)
        rows = (row("a", sections=(replace(long, title="Verdict"),)),)
        text = render(replace(EMPTY, sections=(long, short), rows=rows))
        assert re.findall(r"<summary><h\d>(.*?)</h", text) == ["Why (6)"]

    def test_no_heading_level_is_skipped(self) -> None:
        """And there is one heading of the first level."""
        headings = re.findall(r"<h(\d)", render(sample_page(3, 5)))
        assert headings.count("1") == 1
        assert all(int(b) <= int(a) + 1 for a, b in pairwise(headings))


class TestLimit:
    def test_what_fits_is_whole(self) -> None:
        """Nothing is left out, and nothing said of it."""
        text = render(sample_page(20, 60, detailed=20))
        assert "Left out" not in text
        assert text.count("<template") == 20

    def test_details_of_the_last_rows_go_first(self) -> None:
        """Histories and rows stay."""
        whole = render(sample_page(20, 60, detailed=20))
        limit = len(whole.encode()) - 40_000
        read = ReadPage(text := render(sample_page(20, 60, detailed=20), limit=limit))
        assert len(text.encode()) <= limit
        (note,) = [told for told in read.texts if "Left out" in told]
        kept = [
            value for tag, name, value in read.attributes if (tag, name) == ("template", "data-row")
        ]
        assert 0 < len(kept) < 20
        assert kept == [str(number) for number in range(len(kept))]
        assert f"the details of {20 - len(kept)} benchmark" in note
        assert len(read.data["rows"]) == 20
        assert len(read.values(19)) == 60

    def test_then_the_last_rows_go(self) -> None:
        """The worst stay."""
        limit = len(render(sample_page(0, 60)).encode()) + 20_000
        read = ReadPage(text := render(sample_page(200, 60), limit=limit))
        assert len(text.encode()) <= limit
        kept = len(read.data["rows"])
        assert 10 < kept < 200
        assert any(f"the last {200 - kept} benchmarks" in told for told in read.texts)
        assert any(f"{kept} of 200 shown" in told for told in read.texts)
        assert read.data["rows"][0]["kind"] == "regressed"

    @pytest.mark.slow
    def test_a_page_has_eight_mebibytes_at_most(self) -> None:
        """Of 1,500 benchmarks with 700 runs each."""
        text = render(sample_page(1500, 700, detailed=50))
        assert LIMIT == 8 * 2**20
        assert LIMIT * 0.7 < len(text.encode()) <= LIMIT
