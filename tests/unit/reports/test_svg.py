"""Charts as SVG: well-formed, small, without scripts, and readable without colour."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from gpubench_plugin.reports.html.chart import Chart, Series
from gpubench_plugin.reports.html.svg import svg

SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "</title><script>alert(1)</script>\"'&\x00\x1b[31m\uffff\ud800\n]]>{{ 7 * 7 }}"
MICROS = (1e-5, 1.1e-5, 1.2e-5)


def chart(*series: Series, unit: str = "s", **fields: object) -> Chart:
    count = len(series[0].values or series[0].low) if series else 0
    known = {"title": "a title", "noun": "run", "positions": tuple(range(1, count + 1)), **fields}
    return Chart(unit=unit, series=series, **known)  # type: ignore[arg-type] # the fields vary


def drawn(*charts: Chart) -> ET.Element:
    text = svg(charts, "a picture")
    assert not re.search(r"nan|inf\b|None", re.sub("<(title|desc)>.*?</", "", text))
    return ET.fromstring(text)


def texts(root: ET.Element) -> list[str]:
    return [element.text or "" for element in root.iter(f"{SVG}text")]


def tips(root: ET.Element) -> list[str]:
    return [title.text or "" for dot in root.iter(f"{SVG}path") for title in dot]


def labels_of(values: Sequence[float], unit: str = "s") -> list[str]:
    """What stands left of the picture."""
    root = drawn(chart(Series(label="a", values=tuple(values)), unit=unit))
    return [t.text or "" for t in root.iter(f"{SVG}text") if t.get("text-anchor") == "end"][:-1]


@pytest.mark.parametrize(
    ("values", "unit", "shown"),
    [
        (MICROS, "s", ["10 µs", "10.5 µs", "11 µs", "11.5 µs", "12 µs"]),
        ((-1.0, 2.0), "", ["-1", "0", "1", "2"]),
        (
            (2**30, 1.5 * 2**30),
            "bytes",
            ["1 GiB", "1.1 GiB", "1.2 GiB", "1.3 GiB", "1.4 GiB", "1.5 GiB"],
        ),
        ((0.5, 0.75), "fraction", ["50%", "55%", "60%", "65%", "70%", "75%"]),
        ((1.0, 60.0), "W", ["0 W", "20 W", "40 W", "60 W"]),
    ],
)
def test_ticks_are_round_numbers_of_one_unit(
    values: Sequence[float], unit: str, shown: list[str]
) -> None:
    """Ten microseconds are not zero."""
    assert labels_of(values, unit) == shown


@pytest.mark.parametrize("values", [(5e-5,), (3.0, 3.0), (0.0,), (0.0, 0.0), (-2.0,), (1e-9, 1e9)])
def test_there_are_three_to_six_ticks_whatever_the_values(values: Sequence[float]) -> None:
    """Also of a single number, equal ones, zero, negative ones and far ones."""
    assert 3 <= len(set(labels_of(values))) <= 6


def test_ticks_differ_at_any_size() -> None:
    """Neither too many nor equal, from picoseconds to hours, for ranges wide and narrow."""
    for power in range(-12, 5):
        for width in (1.001, 1.013, 1.2, 2.1, 7.7, 45, 60, 700, 1e4, 1e7):
            shown = labels_of((10.0**power, 10.0**power * width))
            assert 3 <= len(set(shown)) == len(shown) <= 6, (power, width, shown)


def test_nothing_to_draw_is_said() -> None:
    """Without numbers, positions or charts the picture is well-formed, too."""
    assert "no numbers" in texts(drawn(chart(Series(label="a", values=(None, None)))))
    assert "no numbers" in texts(drawn(chart()))
    drawn()


def test_a_pointer_is_told_the_name_and_the_value_of_each_dot() -> None:
    """Without names, the position; of a doubtful dot, its own."""
    values = Series(label="a", style="dots", values=(1e-5, None, 1.2e-5))
    assert tips(drawn(chart(values))) == ["run 1: 10.00 µs", "run 3: 12.00 µs"]
    assert tips(drawn(chart(values, names=("x", "y", "z")))) == ["x: 10.00 µs", "z: 12.00 µs"]


def test_every_role_has_a_look_of_its_own_without_colours() -> None:
    """Base and doubts are hollow, of different shapes; lines have different dashes."""
    roles = ("base", "head", "doubt", "base_doubt", "reference")
    dots = [Series(label=role, style="dots", role=role, values=(1.0,)) for role in roles]
    shapes = {
        re.sub(r"^M[\d. ]+", "", path.get("d", "")) + f"{group.get('class')}"
        for group in drawn(chart(*dots)).iter(f"{SVG}g")
        for path in group
        if "gpubench-dots" in group.get("class", "")
    }
    assert len(shapes) == 5
    assert sum("hollow" in shape for shape in shapes) == 3
    lines = [replace(one, style="line") for one in dots if "doubt" not in one.role]
    dashes = {path.get("stroke-dasharray") for path in drawn(chart(*lines)).iter(f"{SVG}path")}
    assert {"none", "6 3", "2 3"} <= dashes


@pytest.mark.parametrize(("style", "parts"), [("pairs", 2), ("line", 1)])
def test_pairs_are_not_joined_and_lines_pass_over_gaps(style: str, parts: int) -> None:
    """A line that ends has the next one start anew."""
    one = Series(label="a", style=style, values=(1.0, 2.0, None, 1.0, 3.0))  # type: ignore[arg-type] # a style each
    paths = [path.get("d", "") for path in drawn(chart(one)).iter(f"{SVG}path")]
    (line,) = (path for path in paths if path.count("L") + path.count("M") == 4)
    assert line.count("M") == parts


def test_intervals_are_bars_or_a_band() -> None:
    """The ends of a band that is level are enough."""
    ends = {"low": (1.0,) * 50, "high": (2.0,) * 50}
    band = drawn(chart(Series(label="a", style="band", **ends)))
    (path,) = (p.get("d", "") for p in band.iter(f"{SVG}path") if p.get("d", "").count("L") == 3)
    assert path.endswith("z")
    bars = Series(label="a", style="dots", values=(1.5, 1.5), low=(1.0, None), high=(2.0, 2.0))
    assert any(re.fullmatch(r"M\S+ \S+V\S+", p.get("d", "")) for p in drawn(chart(bars)).iter())


def test_texts_of_marks_do_not_overlap() -> None:
    """Each stands in a row where there is room."""
    marks = tuple((n / 3, f"look after {n} pairs: inconclusive") for n in range(1, 16))
    one = chart(Series(label="a", values=tuple(range(1, 6))), marks=marks)
    root = drawn(one)
    spans: dict[str, list[tuple[float, float]]] = {}
    for text in root.iter(f"{SVG}text"):
        if (text.text or "").startswith("look"):
            x, width = float(text.get("x", "")), 6 * len(text.text or "")
            start = x - width if text.get("text-anchor") == "end" else x
            spans.setdefault(text.get("y", ""), []).append((start, start + width))
    assert sum(map(len, spans.values())) == 15
    for row in spans.values():
        assert all(start >= 0 and end <= 800 for start, end in row)
        assert all(a[1] <= b[0] for a, b in pairwise(sorted(row)))


def test_hostile_texts_stay_texts_and_long_ones_are_cut() -> None:
    """Nothing is run, and no character breaks the document."""
    long = "name" * 50
    for text in (HOSTILE, long):
        one = Series(label=text, style="dots", values=(1.0, 2.0))
        made = chart(
            one, title=text, noun="run", unit="s", names=(text, text), marks=((1, text), (2, text))
        )
        root = ET.fromstring(svg([made], text))
        assert {element.tag.removeprefix(SVG) for element in root.iter()} == {
            *("svg", "title", "desc", "style", "rect", "g", "path", "text")
        }
        assert all(len(shown) <= 96 for shown in texts(root))
        assert "49" not in "".join(texts(root))


def test_the_document_needs_nothing_else_and_says_what_it_shows() -> None:
    """Its classes are prefixed, since a style in HTML is that of the whole page."""
    one = chart(Series(label="rounds", values=MICROS), marks=((2.0, "a mark"),))
    text = svg([one, one], "the picture")
    root = ET.fromstring(text)
    assert root.get("role") == "img"
    assert root.findtext(f"{SVG}title") == "the picture"
    description = root.findtext(f"{SVG}desc")
    assert description is not None
    assert "a title: rounds; a mark" in description
    assert not re.search(r"\bid=|href|url\(|@import|<script|\bon\w+=", text)
    assert "prefers-color-scheme: dark" in text
    style = root.findtext(f"{SVG}style") or ""
    assert all(name.startswith("gpubench-") for name in re.findall(r"\.([a-z][\w-]*)", style))


def test_a_large_chart_stays_small() -> None:
    """Five hundred dots and a level are below 35 kB."""
    values = tuple(1e-5 * (1 + math.sin(n) / 10) for n in range(500))
    level = Series(label="median", role="reference", values=(1e-5,) * 500)
    for role in ("head", "base", "doubt"):
        dots = Series(label="a", style="dots", role=role, values=values)  # type: ignore[arg-type] # a role each
        assert len(svg([chart(dots, level)], "")) < 35_000
