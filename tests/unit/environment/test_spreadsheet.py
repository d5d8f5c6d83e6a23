"""Tests of comma-separated values."""

from __future__ import annotations

import csv
import io

import pytest

from gpubench_plugin.environment.spreadsheet import csv_text


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        ("=1+1", "'=1+1"),
        (" @you", "' @you"),
        ("a\nb\x1b", "a\\nb\\x1b"),
        ("plain, with a comma", "plain, with a comma"),
        (0.1 + 0.2, "0.30000000000000004"),
        (-3, "-3"),
        (None, ""),
    ],
)
def test_a_cell_is_shown_and_not_run(cell: str | float | None, text: str) -> None:
    """A formula is quoted, a control an escape; numbers round-trip and None is empty."""
    (row,) = csv.reader(io.StringIO(csv_text([["id", cell]])))
    assert row == ["id", text]
