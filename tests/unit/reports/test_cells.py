"""Text of a terminal: measured, cut, numbers, signs, small pictures, and plain tables."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from gpubench_plugin.core.format import count, duration, quantity
from gpubench_plugin.reports.table import column, lines, wrapped
from gpubench_plugin.reports.text import (
    cut,
    encodable,
    evenly_chosen,
    fill,
    printable,
    shorten,
    sparkline,
    width,
)
from tests.support.screens import in_ascii


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain [amp]", "plain [amp]"),
        ("red \x1b[31m", "red \\x1b[31m"),
        ("two\r\n  lines\n", "two lines"),
        ("tab\there", "tab\\there"),
        ("over\u202eride", "over\\u202eride"),
        ("broken \udcff", "broken \\udcff"),
        ("µ ± 漢", "µ ± 漢"),
    ],
)
def test_text_cannot_steer_the_terminal(text: str, expected: str) -> None:
    """Control characters are escaped, and a text becomes one line."""
    assert printable(text) == expected


@pytest.mark.parametrize(("text", "expected"), [("abc", 3), ("漢字", 4), ("e\u0301", 1), ("±", 1)])
def test_width(text: str, expected: int) -> None:
    """Wide characters take two columns, combining ones none."""
    assert width(text) == expected


def test_fill() -> None:
    """Text is padded to columns, not to characters, on either side."""
    assert (fill("漢", 4), fill("漢", 4, right=True)) == ("漢  ", "  漢")


@pytest.mark.parametrize(
    ("text", "expected"),
    [("abcde", "abcde"), ("abcdef", "abcd…"), ("漢字漢字", "漢字…"), ("a漢字漢", "a漢…")],
)
def test_cut(text: str, expected: str) -> None:
    """Text that is too wide loses its end and never exceeds the columns."""
    assert cut(text, 5) == expected


def test_long_names_keep_beginning_and_end() -> None:
    """A long name is cut in the middle, its parameters remain; what fits is unchanged."""
    assert shorten(["one", "two"], 3) == ["one", "two"]
    assert shorten(["test_resnet50_train[amp-nhwc]"], 16) == ["test_…[amp-nhwc]"]


@pytest.mark.parametrize(
    "names",
    [
        ["test_resnet18_train[channels_last-amp]", "test_resnet50_train[channels_last-amp]"],
        ["test_train[channels_last-fp32]", "test_train[channels_last-bf16]"],
        ["a" * 20 + "1" + "b" * 20, "a" * 20 + "2" + "b" * 20],
        ["1" + "a" * 40, "2" + "a" * 40],
        ["a" * 40 + "1", "a" * 40 + "2"],
    ],
)
def test_long_names_stay_apart(names: list[str]) -> None:
    """Wherever names differ, the cut leaves the difference."""
    shortened = shorten(names, 30)
    assert len(set(shortened)) == 2
    assert all(width(name) <= 30 for name in shortened)


def test_equal_names_stay_equal() -> None:
    """Equal names stay equal."""
    assert shorten(["a" * 9, "a" * 9], 5) == ["a…aaa", "a…aaa"]


@pytest.mark.parametrize("columns", [0, 1, 2])
def test_no_room_at_all(columns: int) -> None:
    """With hardly any columns a short text remains."""
    assert all(width(name) <= 2 for name in shorten(["abcdef", "ghijkl"], columns))


def test_text_is_no_command_for_githubs_runner() -> None:
    """At the start of the text or of a word, where a wrapped line may start."""
    assert printable("\n ::error::x") == r"\x3a:error::x"
    assert printable("a ::error::x") == r"a \x3a:error::x"
    assert printable("a ##[error]x") == r"a #\x23[error]x"
    assert printable("t.py::test_a") == "t.py::test_a"


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [
        ("utf-8", "≈ 1 µs, ±2% → é漢"),
        ("ascii", "~ 1 us, +-2% -> \\xe9\\u6f22"),
        ("latin-1", "~ 1 us, +-2% -> é\\u6f22"),
        (None, "~ 1 us, +-2% -> \\xe9\\u6f22"),
    ],
)
def test_terminal_gets_what_it_can_show(encoding: str | None, expected: str) -> None:
    """Where its encoding lacks a character, our signs are spelt, and others escaped."""
    text, stream = "≈ 1 µs, ±2% → é漢", SimpleNamespace(encoding=encoding)
    assert encodable(text, stream) == expected


def test_the_least_is_low_and_the_greatest_high() -> None:
    """With a mark before each new level; in ASCII for an ASCII terminal."""
    assert sparkline([1.0, 2.0, 3.0]) == "▁▅█"
    assert in_ascii(sparkline([1.0, 2.0, 3.0], marks=[1])) == "0|47"
    assert sparkline([]) == ""


def test_noise_is_no_mountain() -> None:
    """The scale covers at least one per cent; equal values are a flat line."""
    assert in_ascii(sparkline([1.0, 1.0001, 1.0])) in {"343", "333", "444"}
    assert len(set(sparkline([2.0] * 5))) == 1
    assert len(set(sparkline([0.0] * 5))) == 1


def test_more_values_than_columns_are_thinned_evenly() -> None:
    """The first and the last stay; few values stay as they are."""
    assert evenly_chosen([*range(100)], 4) == [0, 33, 66, 99]
    assert evenly_chosen([1.0, 2.0], 4) == [1.0, 2.0]
    assert evenly_chosen([1.0, 2.0, 3.0], 0) == [1.0, 3.0]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.0, "0 ns"),
        (1e-10, "0.1000 ns"),
        (12.3456e-9, "12.35 ns"),
        (0.99994e-6, "999.9 ns"),
        (0.99996e-6, "1.000 µs"),
        (1e-6, "1.000 µs"),
        (1.5e-3, "1.500 ms"),
        (0.99996, "1.000 s"),
        (59.9, "59.90 s"),
        (12345.0, "12345 s"),
    ],
)
def test_seconds(value: float, expected: str) -> None:
    """A duration gets the unit in which at least one digit stands before the point."""
    assert duration(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.5, "0.5000"), (434.21, "434.2"), (999.96, "1.000k"), (12345, "12.35k"), (3.2e14, "320.0T")],
)
def test_count(value: float, expected: str) -> None:
    """A rate gets the prefix of its thousands."""
    assert count(value) == expected


def test_quantities_have_the_unit_that_fits() -> None:
    """Seconds, bytes, FLOP/s and rates get a prefix; any other unit follows the number."""
    assert quantity(0.0003601, "s") == "360.1 µs"
    assert quantity(3.571e8, "bytes") == "340.6 MiB"
    assert quantity(2.5e9, "bytes/s") == "2.500 GB/s"
    assert quantity(7.82e-5, "TFLOP/s") == "78.20 MFLOP/s"
    assert quantity(12340.0, "samples/s") == "12.34k/s"
    assert quantity(0.35, "fraction") == "35%"
    assert quantity(3.1, "W") == "3.100 W"


def test_a_table_is_aligned_and_leaves_empty_columns_out() -> None:
    """Numbers are right-aligned; no line has trailing space."""
    table = lines(
        [
            column("run", ["a", "bb"]),
            column("n", [1, 100], numeric=True),
            column("nothing", ["", ""]),
            column("tags", ["x", ""]),
        ],
        80,
    )
    assert table == ["run    n  tags", "a      1  x", "bb   100"]


def test_what_is_copied_and_numbers_are_never_cut() -> None:
    """Of the others the widest is cut first, then the last one is dropped."""
    columns = [
        column("run", ["r" * 30]),
        column("n", ["1234567890"], numeric=True),
        column("branch", ["b" * 30]),
        column("tag", ["t" * 10]),
    ]
    header, row = lines(columns, 70)
    assert len(row) == 70
    assert "r" * 30 in row
    assert "1234567890" in row
    assert f"{'b' * 13}…" in row
    assert "t" * 10 in row
    assert lines(columns, 10)[1] == "r" * 30
    narrow = lines(columns, 54)[1]
    assert narrow == f"{'r' * 30}  1234567890  {'b' * 9}…"
    assert "b" * 30 in lines(columns, 60, uncut_columns=3)[1]
    assert header.startswith("run")


def test_cells_are_safe_for_a_terminal() -> None:
    """They may come from a file."""
    assert lines([column("a", ["\x1b[2J\n"])], 80)[1] == "\\x1b[2J"


def test_text_breaks_between_words() -> None:
    """A word longer than a line is on its own line."""
    assert wrapped("one two three", 9, indent="  ") == ["  one two", "  three"]
    assert wrapped("a " + "x" * 20 + " b", 8) == ["a", "x" * 20, "b"]
    assert wrapped("\x07", 8) == ["\\x07"]
