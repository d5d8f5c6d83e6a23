"""Tests of text measured and cut in the columns of a terminal."""

from __future__ import annotations

import pytest

from gpubench_plugin.reports.text import cut, fill, printable, shorten, width


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain [amp-ws1]", "plain [amp-ws1]"),
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
    assert cut(text, 5, "…") == expected


def test_short_names_stay() -> None:
    """Names that fit are unchanged."""
    assert shorten(["one", "two"], 3, "…") == ["one", "two"]


def test_long_names_keep_beginning_and_end() -> None:
    """A long name is cut in the middle, and its parameters at the end remain."""
    assert shorten(["test_resnet50_train[amp-ws1]"], 16, "…") == ["test_…n[amp-ws1]"]


@pytest.mark.parametrize(
    "names",
    [
        ["test_resnet18_train[channels_last-amp]", "test_resnet50_train[channels_last-amp]"],
        ["test_train[channels_last-fp32-ws1]", "test_train[channels_last-bf16-ws1]"],
        ["a" * 20 + "1" + "b" * 20, "a" * 20 + "2" + "b" * 20],
        ["1" + "a" * 40, "2" + "a" * 40],
        ["a" * 40 + "1", "a" * 40 + "2"],
        ["a" * 60 + "1" + "b" * 60, "a" * 60 + "2" + "b" * 60],
    ],
)
def test_long_names_stay_apart(names: list[str]) -> None:
    """Wherever names differ, the cut leaves the difference."""
    shortened = shorten(names, 30, "…")
    assert len(set(shortened)) == 2
    assert all(width(name) <= 30 for name in shortened)


def test_equal_names_stay_equal() -> None:
    """Equal names stay equal."""
    assert shorten(["a" * 9, "a" * 9], 5, "…") == ["a…aaa", "a…aaa"]


@pytest.mark.parametrize("columns", [0, 1, 2])
def test_no_room_at_all(columns: int) -> None:
    """With hardly any columns a short text remains."""
    assert all(width(name) <= 2 for name in shorten(["abcdef", "ghijkl"], columns, "…"))


def test_text_is_no_command_for_githubs_runner() -> None:
    """At the start of the text or of a word, where a wrapped line may start."""
    assert printable("\n ::error::x") == r"\x3a:error::x"
    assert printable("a ::error::x") == r"a \x3a:error::x"
    assert printable("a ##[error]x") == r"a #\x23[error]x"
    assert printable("t.py::test_a") == "t.py::test_a"
