"""Tests of JSON from anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.core.errors import BrokenFile, UsageProblem
from gpubench_plugin.environment import json_files

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b'{"a": [1,\n 2', "is truncated: the JSON ends early, at line 2"),
        (b'{"a": "b', "is truncated"),
        (b"nothing", "is not JSON: .* line 1, column 1"),
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
