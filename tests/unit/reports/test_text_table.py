"""Plain tables in the columns of a terminal."""

from __future__ import annotations

from gpubench_plugin.reports.table import column, lines, wrapped
from gpubench_plugin.reports.text import ASCII, UNICODE


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
        UNICODE,
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
    header, row = lines(columns, 70, ASCII)
    assert len(row) == 70
    assert "r" * 30 in row
    assert "1234567890" in row
    assert f"{'b' * 13}~" in row
    assert "t" * 10 in row
    assert lines(columns, 10, ASCII)[1] == "r" * 30
    narrow = lines(columns, 54, ASCII)[1]
    assert narrow == f"{'r' * 30}  1234567890  {'b' * 9}~"
    assert "b" * 30 in lines(columns, 60, ASCII, uncut_columns=3)[1]
    assert header.startswith("run")


def test_cells_are_safe_for_a_terminal() -> None:
    """They may come from a file."""
    assert lines([column("a", ["\x1b[2J\n"])], 80, UNICODE)[1] == "\\x1b[2J"


def test_text_breaks_between_words() -> None:
    """A word longer than a line is on its own line."""
    assert wrapped("one two three", 9, indent="  ") == ["  one two", "  three"]
    assert wrapped("a " + "x" * 20 + " b", 8) == ["a", "x" * 20, "b"]
    assert wrapped("\x07", 8) == ["\\x07"]
