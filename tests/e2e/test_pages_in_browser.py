"""Pages in Chromium, as a user has them: opened from a file, without a network."""

from __future__ import annotations

import json
import math
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.core.format import quantity
from gpubench_plugin.reports.html.chart import Chart, Series
from gpubench_plugin.reports.html.page import History, KnownRun, Link, Page, Section, Table
from gpubench_plugin.reports.html.render import LIMIT, render
from gpubench_plugin.reports.text import NOTHING
from tests.support.hostile_texts import HOSTILE
from tests.support.sample_pages import hostile_page, sample_page, shown

if TYPE_CHECKING:
    from playwright.sync_api import Browser
    from playwright.sync_api import Page as Tab

CHROMIUM = shutil.which("chromium")
WIDTHS = (390, 1024, 1600)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium: apt-get install chromium"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


Opened = Callable[..., "Tab"]


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Iterator[Opened]:
    """Open a page; at the end it has written nothing to the console, and asked for nothing."""
    contexts, heard, asked = [], [], []
    path = tmp_path / "report.html"

    def open_page(page: Page | None, fragment: str = "", width: int = 1024, **options: Any) -> Tab:
        if page is not None:
            path.write_text(render(page), encoding="utf-8")
        context = browser.new_context(viewport={"width": width, "height": 900}, **options)
        contexts.append(context)
        tab = context.new_page()
        tab.set_default_timeout(10_000)
        tab.on("console", lambda message: heard.append(message.text))
        tab.on("pageerror", lambda error: heard.append(str(error)))
        tab.on("dialog", lambda dialog: heard.append(dialog.message))
        tab.on("request", lambda request: asked.append(request.url))
        tab.goto(path.as_uri() + fragment)
        return tab

    yield open_page
    for context in contexts:
        context.close()
    assert heard == []
    assert {url.partition("#")[0] for url in asked} == {path.as_uri()}


def names(tab: Tab) -> list[str]:
    return tab.locator("#rows .name").all_text_contents()


def verdicts(tab: Tab) -> list[str]:
    return tab.locator("#rows tbody .tag:first-child").all_text_contents()


def choice(tab: Tab, label: str, value: str) -> None:
    tab.get_by_label(label, exact=True).select_option(value)


def place(tab: Tab, selector: str) -> Any:
    tab.locator(selector).scroll_into_view_if_needed()
    return tab.locator(selector).bounding_box()


def number_cells(tab: Tab, figure: str) -> list[list[str]]:
    """Cells of a chart's numbers: the exact ones, which stand behind those in words."""
    tab.locator(f"{figure} details.numbers > summary").click()
    tab.locator(f"{figure} details.numbers tbody").wait_for()
    rows = tab.locator(f"{figure} details.numbers tbody tr").all()
    exact = "cells => cells.map(cell => cell.title || cell.innerText)"
    return [row.locator("th, td").evaluate_all(exact) for row in rows]


def ink(tab: Tab, colour: str, figure: str = "#history") -> list[tuple[int, int]]:
    """Pixels of a chart that have this very colour, axes aside, with 4 to each of CSS."""
    tab.locator(f"{figure} .u-over").scroll_into_view_if_needed()
    pixels: list[tuple[int, int]] = tab.evaluate(INK, [figure, colour])
    return pixels


INK = """([figure, colour]) => {
  const [canvas, over] = ["canvas", ".u-over"].map(
    part => document.querySelector(`${figure} ${part}`));
  const [width, height] = [over.offsetWidth * 4, over.offsetHeight * 4];
  const copy = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
  copy.drawImage(canvas, -over.offsetLeft * 4, -over.offsetTop * 4);
  const { data } = copy.getImageData(0, 0, width, height), found = [];
  const wanted = [1, 3, 5].map(at => parseInt(colour.slice(at, at + 2), 16));
  for (let i = 0; i < data.length; i += 4)
    if (data[i + 3] === 255 && wanted.every((part, at) => data[i + at] === part))
      found.push([i / 4 % width, Math.floor(i / 4 / width)]);
  return found;
}"""

# Of the light scheme.
COLOURS = {"base": "#a34a00", "head": "#0b5cad", "reference": "#57606a", "doubt": "#6e7781"}


def ticks(tab: Tab, number: int) -> list[str]:
    """The texts that the chart of a row's history draws."""
    tab.evaluate(
        """() => {
          window.told = [];
          const pen = CanvasRenderingContext2D.prototype, fill = pen.fillText;
          pen.fillText = function (...all) { told.push(all[0]); fill.apply(this, all); };
        }"""
    )
    tab.locator("#rows .name").nth(number).click()
    told: list[str] = tab.evaluate("new Promise(done => setTimeout(() => done(told), 200))")
    return told


def with_history(values: Sequence[float], starts: Sequence[str] = (), **fields: Any) -> Page:
    """A page whose second row has this history alone."""
    page = sample_page(2, 3, detailed=0)
    starts = starts or [f"2026-01-{n + 1:02}T07:01:00Z" for n in range(len(values))]
    runs = tuple(KnownRun(run_id=f"run{n}", started=start) for n, start in enumerate(starts))
    history = History(
        **{"metric": "m", "unit": "s", "runs": tuple(range(len(values))), **fields},
        values=tuple(values),
    )
    rows = (replace(page.rows[0], history=None), replace(page.rows[1], history=history))
    return replace(page, rows=rows, runs=runs)


def test_a_page_does_what_it_is_for(opened: Opened) -> None:
    """It searches, filters, sorts, groups, draws and deep-links; hostile names stay text."""
    page = sample_page(20, 60)
    evil = "<img src=x onerror=document.title=1>"
    rows = (*page.rows[:19], replace(page.rows[19], id=f"t.py::{evil}", name=evil))
    tab = opened(page := replace(page, rows=rows))
    assert names(tab) == [row.name for row in page.rows]
    assert tab.title() == page.title
    assert tab.locator("#history canvas").count() == 1
    assert tab.locator("#rows svg polyline").count() >= 10
    assert page.rows[0].history is not None
    cells = number_cells(tab, "#history")
    numbers = [float(text) for row in cells for text in row[3:5] if text != NOTHING]
    assert numbers == [*page.rows[0].history.values]

    tab.get_by_label("search").fill("RESNET bf16")
    expected = [row.name for row in page.rows if "resnet" in row.name and "bf16" in row.name]
    assert names(tab) == expected
    assert tab.locator("#count").inner_text() == f"{len(expected)} of 20 shown"
    tab.get_by_label("search").fill("nothing like this")
    tab.get_by_role("button", name="Clear the filters").click()
    assert len(names(tab)) == 20

    choice(tab, "verdict", "regressed")
    assert {*verdicts(tab)} == {"✗ regressed"}
    assert len(names(tab)) == 3
    choice(tab, "verdict", "")
    tab.get_by_role("button", name="value").click()
    numbers = {row.name: row.number for row in page.rows}
    found = [numbers[name] for name in names(tab)]
    known = [number for number in found if number is not None]
    assert known == sorted(known, reverse=True)
    assert found[len(known) :] == [None, None]
    assert tab.locator("th.value").get_attribute("aria-sort") == "descending"
    choice(tab, "group by", "facet.precision")
    precisions = {row.name: row.facets["precision"] for row in page.rows}
    groups = [text.partition(":")[0] for text in tab.locator(".group").all_text_contents()]
    assert groups == [*dict.fromkeys(precisions[name] for name in names(tab))]
    assert len(groups) == 3

    tab.get_by_role("button", name=evil).click()
    assert tab.locator("#chosen-name").inner_text() == evil
    other = opened(None, "#" + tab.url.partition("#")[2])
    assert other.locator("#chosen-name").inner_text() == evil
    assert other.locator("#chosen-name").bounding_box()["y"] < 900
    assert names(other) == names(tab)
    assert other.title() == page.title


@pytest.mark.exhaustive
class TestHostileTexts:
    def test_texts_are_shown_and_none_runs(self, opened: Opened) -> None:
        """Each as a name, reason, doubt, parameter, path and title of a chart."""
        tab = opened(hostile_page())
        assert names(tab) == [shown(text) for text in HOSTILE]
        for text in HOSTILE:
            button = tab.locator("#rows .name").nth(HOSTILE.index(text))
            button.click()
            assert tab.locator("#chosen .id").text_content() == text.replace("\udc80", "\ufffd")
            assert tab.locator("#history canvas").count() == 1
            title = tab.locator("#history figcaption").text_content()
            assert title == f"{text} of 2 runs"
        tab.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
        assert tab.evaluate("window.hit") is None
        assert tab.locator("main b:not(.tag b), img, iframe, base").count() == 0

    @pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
    def test_links_lead_to_benchmarks_of_any_name(self, opened: Opened, text: str) -> None:
        """The address of a choice makes the same choice again, and filters by any value."""
        page = replace(hostile_page(), across=(), sections=())
        tab = opened(page)
        tab.locator("#rows .name").nth(HOSTILE.index(text)).click()
        if "\udc80" not in text:  # which is no text to the browser's driver
            choice(tab, "doubt", text)
        other = opened(None, "#" + tab.url.partition("#")[2])
        assert other.locator("#chosen .id").text_content() == text.replace("\udc80", "\ufffd")
        assert names(other) == [shown(text)] or "\udc80" in text
        assert other.locator("#unknown").is_hidden()


@pytest.mark.exhaustive
class TestUse:
    def test_the_view_is_kept_in_the_address(self, opened: Opened) -> None:
        """Opening it anew shows the same."""
        tab = opened(sample_page(40, 30))
        tab.get_by_label("search").fill("test")
        choice(tab, "precision", "amp")
        choice(tab, "ranks", "2")
        choice(tab, "doubt", "contended")
        tab.get_by_role("button", name="benchmark").click()
        tab.get_by_role("button", name="benchmark").click()
        choice(tab, "group by", "file")
        tab.locator("#rows .name").nth(1).click()
        chosen = tab.locator("#chosen-name").inner_text()
        other = opened(None, "#" + tab.url.partition("#")[2])
        assert names(other) == names(tab)
        assert len(names(other)) > 1
        assert (
            other.locator(".group").all_text_contents() == tab.locator(".group").all_text_contents()
        )
        assert other.locator("#chosen-name").inner_text() == chosen
        for label, value in {"search": "test", "precision": "amp", "doubt": "contended"}.items():
            assert other.get_by_label(label, exact=True).input_value() == value
        assert other.locator("th.benchmark").get_attribute("aria-sort") == "descending"

    def test_back_leads_to_what_was_chosen_before(self, opened: Opened) -> None:
        """And forward again; what was searched stays."""
        page = sample_page(20, 30)
        tab = opened(page)
        for number in (3, 5, 7):
            tab.locator("#rows .name").nth(number).click()
        heading = tab.locator("#chosen-name")
        for step, number in (("back", 5), ("back", 3), ("forward", 5)):
            tab.evaluate(f"history.{step}()")
            tab.wait_for_function(
                "text => document.getElementById('chosen-name').innerText === text",
                arg=page.rows[number].name,
            )
        tab.evaluate("history.go(-2)")
        tab.wait_for_function("!location.hash")
        assert heading.inner_text() == page.rows[0].name

    def test_an_unknown_benchmark_is_said_to_be_one(self, opened: Opened) -> None:
        """The first is shown, and a note that the address means another."""
        tab = opened(sample_page(5, 10), "#benchmark=test_gone.py%3A%3Atest_gone")
        assert tab.locator("#unknown").is_visible()
        tab.locator("#rows .name").first.click()
        assert tab.locator("#unknown").is_hidden()

    def test_changes_are_sorted_with_the_worst_first(self, opened: Opened) -> None:
        """Where more is better, a fall is the worst."""
        page = sample_page(16, 10)
        rows = tuple(
            replace(row, change_number=-0.9, change="-90%") if n == 1 else row
            for n, row in enumerate(page.rows)
        )
        tab = opened(replace(page, rows=rows))
        tab.get_by_role("button", name="change").click()
        assert names(tab)[0] == rows[1].name
        assert verdicts(tab)[-6:-4] == ["✓ improved", "✓ improved"]
        tab.get_by_role("button", name="change").click()
        assert verdicts(tab)[0] == "✓ improved"
        tab.get_by_role("button", name="change").click()
        assert names(tab) == [row.name for row in rows]

    def test_everything_is_done_with_the_keyboard(self, opened: Opened) -> None:
        """The focus follows what is chosen, and is seen."""
        tab = opened(sample_page(8, 20))
        tab.keyboard.press("Tab")
        assert tab.evaluate("document.activeElement.className") == "skip"
        tab.keyboard.press("Enter")
        assert tab.evaluate("document.activeElement.id") == "main"
        reached = []
        for _ in range(80):
            tab.keyboard.press("Tab")
            reached.append(
                tab.evaluate(
                    "(e => e.id || e.className || e.parentElement.className || e.tagName)"
                    "(document.activeElement)"
                )
            )
            outline = "getComputedStyle(document.activeElement).outlineStyle"
            assert reached[-1] == "BODY" or tab.evaluate(outline) != "none"
        for expected in ("search", "region", "name", "SUMMARY"):
            assert expected in reached or any(expected in each for each in reached)
        tab.locator("#rows .name").nth(4).focus()
        tab.keyboard.press("Enter")
        assert tab.evaluate("document.activeElement.id") == "chosen-name"
        tab.locator("th.value button").focus()
        tab.keyboard.press("Space")
        assert tab.locator("th.value").get_attribute("aria-sort") == "descending"
        assert tab.evaluate("document.activeElement.parentElement.className").startswith("value")

    def test_a_table_is_one_to_a_screen_reader(self, opened: Opened) -> None:
        """Though it is not laid out as one."""
        tab = opened(sample_page(5, 10))
        assert tab.get_by_role("table").first.get_by_role("row").count() == 6
        assert tab.get_by_role("columnheader", name="value").count() == 1
        assert tab.get_by_role("rowheader", name="test_resnet[fp32-0]").count() == 1
        snapshot = tab.locator("#region").aria_snapshot()
        assert "- rowgroup" in snapshot
        assert '- cell "regressed"' in snapshot
        label = tab.locator("#history .plot").get_attribute("aria-label")
        assert "step_time_s of 10 runs; measured from" in label

    def test_charts_zoom_and_reset(self, opened: Opened) -> None:
        """By dragging and by a double click, and follow the width of the window."""
        tab = opened(sample_page(5, 60))
        box = place(tab, "#history .u-over")
        middle = box["y"] + box["height"] / 2
        shot = tab.locator("#history canvas").screenshot()
        tab.mouse.move(box["x"] + 200, middle)
        tab.mouse.down()
        tab.mouse.move(box["x"] + 400, middle, steps=5)
        tab.mouse.up()
        tab.mouse.move(0, 0)
        assert tab.locator("#history canvas").screenshot() != shot
        tab.mouse.dblclick(box["x"] + 300, middle)
        tab.mouse.move(0, 0)
        assert tab.locator("#history canvas").screenshot() == shot
        tab.set_viewport_size({"width": 700, "height": 900})
        tab.wait_for_function("document.querySelector('#history .uplot').clientWidth < 700")

    def test_a_point_is_told_with_its_run(self, opened: Opened) -> None:
        """The legend names run, commit, time and value below the pointer."""
        page = sample_page(5, 60)
        tab = opened(page)
        box = place(tab, "#history .u-over")
        tab.mouse.move(box["x"] + box["width"] - 15, box["y"] + 50)
        legend = tab.locator("#history .u-legend").inner_text()
        run, history = page.runs[-1], page.rows[0].history
        assert history is not None
        for text in (run.run_id, run.commit, "2026-01-03 11:00", quantity(history.values[-1], "s")):
            assert text in legend

    @pytest.mark.parametrize(
        "unit",
        ["s", "bytes", "bytes/s", "TFLOP/s", "fraction", "samples/s", "count", "1", "", "W"],
    )
    def test_numbers_have_the_words_of_reports(self, opened: Opened, unit: str) -> None:
        """Those of charts are formatted by script, like all others: ties, too."""
        draw = random.Random(unit)
        numbers = [draw.choice((1, -1)) * 10 ** draw.uniform(-12, 17) for _ in range(3000)]
        numbers += [draw.randrange(1, 10**6) / 2**k for k in range(12) for _ in range(100)]
        numbers += [0.0, 999.95, 9.9995e-4, 1023.5, 1024.0, 1e15, 1e-6, 512.5, 513.5, 12344.5]
        page = sample_page(1, 2)
        assert page.rows[0].history is not None
        history = replace(page.rows[0].history, unit=unit, values=(1.0, 2.0), doubts={}, band=None)
        chart_page = replace(page, rows=(replace(page.rows[0], history=history),))
        tab = opened(chart_page)
        script = tab.locator("script:not([type])").last.text_content()
        assert script is not None
        words = script[script.index("const isIn") : script.index("// Charts")]
        start = "const data = JSON.parse(document.getElementById('data').textContent);"
        each = f"numbers.map(number => quantity(number, {json.dumps(unit)}))"
        told = tab.evaluate(f"numbers => {{ {start}{words}; return {each} }}", numbers)
        wrong = [
            (number, text, quantity(number, unit))
            for number, text in zip(numbers, told, strict=True)
            if text != quantity(number, unit)
        ]
        assert wrong == []


@pytest.mark.exhaustive
class TestAppearance:
    @pytest.mark.parametrize("width", WIDTHS)
    @pytest.mark.parametrize("name", ["sample", "hostile"])
    def test_no_page_is_wider_than_its_window(self, opened: Opened, width: int, name: str) -> None:
        """What is wider scrolls by itself."""
        tab = opened(sample_page(20, 60) if name == "sample" else hostile_page(), width=width)
        tab.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
        tab.wait_for_timeout(300)
        assert tab.evaluate("document.documentElement.scrollWidth") <= width

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    @pytest.mark.parametrize("width", WIDTHS)
    @pytest.mark.parametrize("name", ["comparison", "run", "index", "empty"])
    def test_axe_finds_nothing_serious(
        self, opened: Opened, scheme: str, width: int, name: str
    ) -> None:
        """On each kind of page, in both schemes, with all that can be unfolded unfolded."""
        from axe_playwright_python.sync_playwright import Axe

        page = sample_page(12, 30)
        plain = (replace(row, kind="", change="", change_number=None) for row in page.rows)
        pages = {
            "comparison": page,
            "run": replace(page, rows=tuple(plain), headline=(("measured", "10"), ("oom", "2"))),
            "index": replace(page, rows=(), across=()),
            "empty": Page(title="Nothing", subject="was measured"),
        }
        # The page's own policy forbids the script of axe.
        tab = opened(pages[name], width=width, color_scheme=scheme, bypass_csp=True)
        tab.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
        tab.wait_for_timeout(300)
        found = Axe().run(tab).response["violations"]
        assert [(each["id"], each["nodes"][0]["html"]) for each in found] == []

    def test_dark_and_light_charts_differ(self, opened: Opened) -> None:
        """A chart is drawn anew when the scheme changes."""
        tab = opened(sample_page(3, 30), color_scheme="light")
        light = tab.locator("#history canvas").screenshot()
        tab.emulate_media(color_scheme="dark")
        tab.wait_for_timeout(200)
        dark = tab.locator("#history canvas").screenshot()
        assert dark != light
        tab.emulate_media(color_scheme="light")
        tab.wait_for_timeout(200)
        assert tab.locator("#history canvas").screenshot() == light

    def test_pages_are_printed_in_black_on_white(self, opened: Opened) -> None:
        """With all rows and the charts of the chosen benchmark, and without controls."""
        tab = opened(sample_page(60, 30), color_scheme="dark")
        tab.emulate_media(media="print", color_scheme="dark")
        assert tab.locator("#controls").is_hidden()
        assert tab.evaluate("getComputedStyle(document.body).backgroundColor") == (
            "rgb(255, 255, 255)"
        )
        region = "document.getElementById('region')"
        assert tab.evaluate(f"{region}.scrollHeight <= {region}.clientHeight + 1")
        tab.emulate_media(media="screen", color_scheme="dark")
        charts = tab.locator("main .chart").count()
        assert tab.locator("main canvas").count() < charts
        assert tab.pdf().count(b"/Type /Page\n") >= 4
        assert tab.locator("main canvas").count() == charts
        assert "paper" not in (tab.locator("html").get_attribute("class") or "")


@pytest.mark.exhaustive
class TestCharts:
    def test_points_of_short_lines_are_dots(self, opened: Opened) -> None:
        """Of a hundred at most; a line of more is as thin as its stroke."""
        heights = []
        for count in (100, 300):
            starts = [f"{2000 + n}-01-01T00:00:00Z" for n in range(count)]
            tab = opened(with_history([1.0] * count, starts), device_scale_factor=4)
            tab.locator("#rows .name").nth(1).click()
            rows = [y for _, y in ink(tab, COLOURS["head"])]
            heights.append((max(rows) - min(rows)) / 4)
        assert heights[0] > 6
        assert 1 <= heights[1] < 3

    def test_a_point_between_doubtful_ones_is_drawn(self, opened: Opened) -> None:
        """No line leads to it."""
        page = with_history((1.0, 2.0, 1.5), doubts={0: "hot", 2: "hot"})
        tab = opened(page, device_scale_factor=4)
        tab.locator("#rows .name").nth(1).click()
        assert len(ink(tab, COLOURS["head"])) > 200

    @pytest.mark.parametrize("doubt", ["doubt", "base_doubt"])
    def test_roles_have_shapes(self, opened: Opened, doubt: Any) -> None:
        """Circles, diamonds of references and doubts, squares of a base's; so has the legend."""
        dots = tuple(
            Series(
                label=role,
                style="dots",
                role=role,
                values=tuple(2.0 if n == at else None for n in range(4)),
            )
            for at, role in enumerate(("base", "head", "reference", doubt))
        )
        chart = Chart(title="c", unit="s", noun="run", positions=(1, 2, 3, 4), series=dots)
        page = replace(sample_page(0, 0), across=(Section(title="s", charts=(chart,)),))
        tab = opened(page, device_scale_factor=4)
        tab.locator("canvas").wait_for()
        roundness = {}
        for role, colour in COLOURS.items():
            pixels = ink(tab, colour, ".chart")
            left, top = (min(pixel[axis] for pixel in pixels) for axis in (0, 1))
            width = max(x for x, _ in pixels) - left
            roundness[role] = min(x - left + y - top for x, y in pixels) / width
        # From the corner of its square, a circle begins after 0.29 of it, a diamond after 0.5.
        expected = {"base": 0.29, "head": 0.29, "reference": 0.5}
        expected["doubt"], sign = (0.5, "◇") if doubt == "doubt" else (0.0, "□")
        assert roundness == pytest.approx(expected, abs=0.1)
        labels = tab.locator(".u-legend th").all_inner_texts()
        assert labels[1:] == ["○ base", "● head", "◆ reference", f"{sign} {doubt}"]

    @pytest.mark.parametrize(
        ("starts", "expected"),
        [
            (["2026-01-01T07:01", "2026-01-02T07:01"], ["2026-01-01", "2026-01-02"]),
            (["2026-01-01T07:01", "2026-01-01T09:30"], ["07:01", "2026-01-01", "09:30"]),
            (
                ["2026-01-01T07:01", "2026-01-01T09:30", "2026-01-02T07:01"],
                ["07:01", "2026-01-01", "09:30", "07:01", "2026-01-02"],
            ),
            (
                ["2026-01-01T07:01:10", "2026-01-01T07:01:20"],
                ["07:01:10", "2026-01-01", "07:01:20"],
            ),
        ],
    )
    def test_ticks_tell_runs_apart(
        self, opened: Opened, starts: list[str], expected: list[str]
    ) -> None:
        """By days, or by times of day above a day that is told once."""
        starts = [f"{start}:00Z" if len(start) == 16 else f"{start}Z" for start in starts]
        told = ticks(opened(with_history([1.0] * len(starts), starts)), 1)
        assert [text for text in told if ":" in text or "-" in text] == expected

    @pytest.mark.parametrize("values", [(80e-6,), (80e-6, 80e-6)])
    def test_equal_values_have_a_scale_around_them(
        self, opened: Opened, values: tuple[float, ...]
    ) -> None:
        """It does not begin at zero."""
        told = ticks(opened(with_history(values)), 1)
        numbers = [float(text.split()[0]) for text in told if text.endswith("µs")]
        assert len(numbers) > 2
        assert 70 < min(numbers) < 80 < max(numbers) < 90

    def test_zero_has_no_unit(self, opened: Opened) -> None:
        """Nor a prefix of one."""
        told = ticks(opened(with_history((0.0, 5e3), unit="samples/s")), 1)
        assert "0" in told
        assert {"2k/s", "4k/s"} <= {*told}
        assert not {"0k/s", "0/s"} & {*told}

    def test_joined_pairs_are_no_series_to_a_reader(self, opened: Opened) -> None:
        """The line between two launches has no name in the legend, and no column of numbers."""
        tab = opened(sample_page(1, 3))
        figure = tab.locator("#details figure").first
        figure.scroll_into_view_if_needed()
        figure.locator("canvas").wait_for()
        labels = [each.inner_text() for each in figure.locator(".u-legend th:visible").all()]
        assert labels == ["pair", "○ base", "● head"]
        assert "pair from" not in (figure.locator(".plot").get_attribute("aria-label") or "")
        figure.locator("summary").click()
        figure.locator("thead").wait_for()
        assert figure.locator("thead th").all_inner_texts() == ["pair", "base", "head"]
        cell = figure.locator("tbody td.number").first
        assert cell.inner_text() == quantity(float(cell.get_attribute("title") or ""), "s")


@pytest.mark.exhaustive
class TestOverview:
    def test_verdicts_are_sorted_by_severity(self, opened: Opened) -> None:
        """The worst first: as the page has its rows, not by the letters of the words."""
        page = sample_page(16, 3)
        order = [row.name for row in page.rows]
        tab = opened(page)
        tab.get_by_role("button", name="value").click()
        assert names(tab) != order
        tab.get_by_role("button", name="verdict").click()
        assert names(tab) == order
        tab.get_by_role("button", name="verdict").click()
        assert [text.split()[-1] for text in verdicts(tab)][-1] == "regressed"

    def test_groups_are_counted_in_words(self, opened: Opened) -> None:
        """By verdict, outcome and whatever else divides the rows."""
        tab = opened(sample_page(16, 3))
        choice(tab, "group by", "verdict")
        heads = tab.locator(".group").all_text_contents()
        assert heads[:3] == ["regressed: 2", "errored: 2", "improved: 2"]
        choice(tab, "group by", "outcome")
        heads = tab.locator(".group").all_text_contents()
        assert heads[0] == (
            "measured: 2 regressed, 2 improved, 2 inconclusive, 6 unchanged, 2 no baseline"
        )
        assert heads[1:] == ["oom: 1 errored", "failed: 1 errored"]

    def test_a_commit_or_run_finds_what_it_measured(self, opened: Opened) -> None:
        """Not what was measured by other runs alone."""
        page = sample_page(3, 4)
        assert page.rows[1].history is not None
        later = replace(page.rows[1].history, runs=(2, 3), values=(1.0, 2.0), doubts={}, levels=())
        runs = tuple(replace(run, commit=f"{n}abcdef{n}") for n, run in enumerate(page.runs))
        rows = (page.rows[0], replace(page.rows[1], history=later), page.rows[2])
        tab = opened(replace(page, rows=rows, runs=runs))
        for text in ("1abcdef", runs[1].run_id):
            tab.get_by_label("search").fill(text)
            assert names(tab) == [rows[0].name, rows[2].name]
        tab.get_by_label("search").fill("3ABCDEF3 moe")
        assert names(tab) == [row.name for row in rows if "moe" in row.name]
        tab.get_by_label("search").fill("9abcdef")
        assert names(tab) == []

    def test_a_plain_run_opens_on_what_was_measured(self, opened: Opened) -> None:
        """A comparison opens on its worst finding."""
        page = sample_page(4, 3)
        skipped = replace(page.rows[0], outcome="skipped", kind="", sections=())
        plain = (skipped, *(replace(row, kind="") for row in page.rows[1:]))
        tab = opened(replace(page, rows=plain))
        assert tab.locator("#chosen-name").inner_text() == page.rows[1].name
        worst = (replace(skipped, kind="removed"), *page.rows[1:])
        tab = opened(replace(page, rows=worst))
        assert tab.locator("#chosen-name").inner_text() == page.rows[0].name

    def test_the_table_is_on_the_first_screen(self, opened: Opened) -> None:
        """Lists of many texts are folded, with their number."""
        titles = ("Failures", "In doubt", "Remarks", "Not measured", "Why")
        sections = tuple(
            Section(title=title, texts=("A text of some words.",) * (12 if title == "Why" else 2))
            for title in titles
        )
        tab = opened(replace(sample_page(10, 3), sections=sections), width=1280)
        assert tab.locator("#rows tbody tr").first.bounding_box()["y"] < 850
        assert tab.locator(".brief summary").all_inner_texts() == ["Why (12)"]
        assert tab.locator(".brief p:visible").count() == 8
        tab.locator(".brief summary").click()
        assert tab.locator(".brief p:visible").count() == 20

    def test_headings_are_told_once(self, opened: Opened) -> None:
        """A caption with the words of its heading is for screen readers alone."""
        tables = tuple(Table(title=t, columns=("a",), rows=(("1",),)) for t in ("Runs", "Latest"))
        tab = opened(Page(title="t", subject="s", sections=(Section(title="Runs", tables=tables),)))
        places = [place(tab, f"caption >> nth={n}") for n in (0, 1)]
        assert places[0]["x"] + places[0]["width"] < 0 <= places[1]["x"]
        assert tab.get_by_role("table", name="Runs").count() == 1

    def test_cells_keep_names_and_intervals_in_a_line(self, opened: Opened) -> None:
        """Names of runs on a phone; changes on a desk."""
        link = Link("20261128T035810Z_run_d08430", "#a")
        table = Table(title="t", columns=("run", "by", "of"), rows=((link, "main", "a b c d e"),))
        page = replace(sample_page(8, 3), across=(Section(title="s", tables=(table,)),))
        tab = opened(page, width=390)
        assert tab.locator("td a").evaluate("link => link.getClientRects().length") == 1
        tab = opened(None, width=1280)
        heights = tab.locator("#rows tbody .change").evaluate_all(
            "cells => cells.map(cell => { const range = document.createRange();"
            " range.selectNodeContents(cell); return range.getClientRects().length; })"
        )
        assert max(heights) == 1


@pytest.mark.exhaustive
class TestPaper:
    def test_nothing_is_cut_off(self, opened: Opened) -> None:
        """Wide tables fit, reasons wrap, and what is folded on screens is to be read."""
        columns = tuple(f"column{n}" for n in range(14))
        table = Table(
            title="t",
            columns=columns,
            rows=(tuple(f"{n}.123 ms (1.00x)" for n in range(14)),),
            numeric=frozenset(columns),
        )
        page = sample_page(12, 3)
        reason = "CUDA out of memory: 79.1 GiB of 79.2 GiB were in use " * 3
        rows = tuple(replace(row, reason=reason) for row in page.rows)
        tab = opened(
            replace(page, rows=rows, across=(Section(title="s", tables=(table,)),)), width=718
        )
        hidden = tab.get_by_text("The command that measures this benchmark again.")
        assert hidden.is_hidden()
        tab.emulate_media(media="print")
        assert hidden.is_visible()
        assert tab.get_by_role("heading", name="Repeat it").is_visible()
        beyond = "cells => cells.filter(cell => cell.getBoundingClientRect().right > 719).length"
        assert tab.locator("th, td").evaluate_all(beyond) == 0
        cut = "all => all.filter(each => each.scrollWidth > each.clientWidth).length"
        assert tab.locator("#rows .reason").evaluate_all(cut) == 0

    def test_details_are_open_only_while_printed(self, opened: Opened) -> None:
        """Those that a reader opened stay open; all rows have their sparkline."""
        tab = opened(sample_page(60, 3))
        tab.locator("details:not(.numbers) > summary").first.click()
        folded = "document.querySelectorAll('details:not([open], .numbers)').length"
        before = tab.evaluate(folded)
        tab.evaluate(
            f"addEventListener('beforeprint', () => {{ window.seen = [{folded},"
            " document.querySelectorAll('#rows svg').length]; })"
        )
        tab.pdf(format="A4")
        assert tab.evaluate("window.seen") == [0, 60]
        assert tab.evaluate(folded) == before > 0
        assert tab.locator("details[open]").count() == 1


@pytest.mark.exhaustive
class TestExtremes:
    def test_the_largest_page_works(self, opened: Opened) -> None:
        """Of eight mebibytes; its last benchmark is drawn."""
        page = sample_page(1500, 700, detailed=50)
        assert LIMIT * 0.7 < len(render(page).encode()) <= LIMIT
        tab = opened(page)
        assert tab.locator(".note", has_text="Left out").is_visible()
        tab.locator("#rows .name").last.click()
        assert tab.locator("#history canvas").count() == 1
        tab.get_by_label("search").fill("amp")
        assert all("amp" in name for name in names(tab)[:50])

    def test_pages_without_rows_or_histories_work(self, opened: Opened) -> None:
        """Nothing is drawn, and nothing goes wrong."""
        assert opened(sample_page(0, 0)).locator("#rows").count() == 0
        tab = opened(sample_page(8, 0, detailed=0))
        assert tab.locator("#history").is_hidden()
        tab.locator("#rows .name").nth(3).click()
        assert tab.locator("#chosen-name").is_visible()

    def test_numbers_that_are_not_finite_are_gaps(self, opened: Opened) -> None:
        """As is a history of one point."""
        page = sample_page(2, 5)
        values = ((math.nan, 1.0, math.inf, 2.0, -math.inf), (1.0,))
        rows = []
        for row, numbers in zip(page.rows, values, strict=True):
            assert row.history is not None
            history = replace(
                row.history, values=numbers, runs=tuple(range(len(numbers))), doubts={}, levels=()
            )
            rows.append(replace(row, history=history))
        tab = opened(replace(page, rows=tuple(rows)))
        assert [row[-1] for row in number_cells(tab, "#history")][1] == "1"
        tab.locator("#rows .name").nth(1).click()
        assert tab.locator("#history canvas").count() == 1
