"""Tests of JSON from anywhere."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from gpubench_plugin.core.errors import BrokenFile, UsageProblem
from gpubench_plugin.system import json_files


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is not JSON"),
        (b'{"a": [1,\n 2', "is not JSON: .* line 2 column 3"),
        (b'{"a": "b', "is not JSON"),
        (b"nothing", "is not JSON: .* line 1 column 1"),
        (b'"\xff"', "is not JSON"),
        (b"{\xfe\xff", "is not JSON"),
        (b"\x89PNG\r\n", "is not JSON"),
        (b"\x00\x01", "is not JSON"),
        (b"[" * 100_000, "is not JSON: maximum recursion depth"),
        (b"9" * 5000, "is not JSON"),
    ],
)
def test_what_is_no_json_is_refused_in_one_way(data: bytes, reason: str) -> None:
    """With the reason, whatever the parser raises."""
    with pytest.raises(BrokenFile, match=f"^it {reason}"):
        json_files.parse(data, "it")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_every_encoding_of_unicode_is_read(encoding: str) -> None:
    """With a byte order mark or without."""
    assert json_files.parse('["é"]'.encode(encoding), "it") == ["é"]


def test_a_missing_file_is_the_users(tmp_path: Path) -> None:
    """A name that was mistyped is no broken file."""
    (tmp_path / "a.json").touch()
    with pytest.raises(UsageProblem, match=r"no such file \(did you mean 'a\.json'\?\)") as caught:
        json_files.load(tmp_path / "b.json")
    assert not isinstance(caught.value, BrokenFile)


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
