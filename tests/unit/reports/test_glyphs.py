"""Tests of the signs a report is written with."""

from __future__ import annotations

import pytest

from gpubench_plugin.reports.text import ASCII, UNICODE, Glyphs, glyphs_for


@pytest.mark.parametrize(
    ("encoding", "expected"),
    [
        ("utf-8", UNICODE),
        ("UTF8", UNICODE),
        ("ascii", ASCII),
        ("latin-1", ASCII),
        ("no such encoding", ASCII),
        (None, ASCII),
    ],
)
def test_terminal_gets_what_it_can_show(encoding: str | None, expected: Glyphs) -> None:
    """A terminal gets non-ASCII glyphs only if its encoding has all of them."""
    assert glyphs_for(encoding) == expected
