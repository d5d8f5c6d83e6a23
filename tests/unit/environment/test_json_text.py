"""Tests of JSON text."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from gpubench_plugin.environment import json_files


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ((1, 2.5, None, True), [1, 2.5, None, True]),
        ({1: Path("a/b")}, {"1": "a/b"}),
        ({"b", "a"}, ["a", "b"]),
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.array([[1, 2]]), [[1, 2]]),
        ([float("nan"), float("inf")], [None, None]),
        ("file-\udcff", "file-\\udcff"),
    ],
)
def test_values_become_json(value: object, expected: object) -> None:
    """Values of other types become the nearest JSON value, what is not a number becomes null."""
    assert json_files.jsonable(value) == expected


def test_lost_numbers_are_named() -> None:
    """Numbers that JSON cannot hold are reported by JSON pointer."""
    lost: dict[str, str] = {}
    json_files.jsonable({"a/b": [1.0, float("-inf")], "c~": float("nan")}, dropped=lost)
    assert lost == {"/a~1b/1": "-inf", "/c~0": "nan"}


def test_text_is_one_ascii_line() -> None:
    """The text has no character at which a reader of lines could break it."""
    text = json_files.text({"name": "µ\u2028\n"})
    assert text.isascii()
    assert len(text.splitlines()) == 1
    assert json.loads(text) == {"name": "µ\u2028\n"}
