"""Tests of JSON from anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.core.errors import BrokenFile, UsageProblem
from gpubench_plugin.environment import json_files

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("data", [b"\xef\xbb\xbf[1]", '["é"]'.encode("utf-16")])
def test_any_encoding_of_unicode_is_read(data: bytes) -> None:
    """As the standard library detects it, with a byte order mark or not."""
    assert json_files.parse(data, "it") in ([1], ["é"])


@pytest.mark.parametrize("data", [b"[" * 100_000, b'{"a":' * 100_000])
def test_what_is_nested_too_deeply_is_refused(data: bytes) -> None:
    """The parser's own limit is one line."""
    with pytest.raises(BrokenFile, match="it is nested too deeply"):
        json_files.parse(data, "it")


@pytest.mark.parametrize(
    "data", [b'"\xff"', b"{\xfe\xff", b"\x89PNG\r\n", b"\x00\x01", b"9" * 5000]
)
def test_what_is_no_text_is_refused(data: bytes) -> None:
    """One message, and no UnicodeError."""
    with pytest.raises(BrokenFile, match="it is not JSON"):
        json_files.parse(data, "it")


def test_a_missing_file_is_the_users(tmp_path: Path) -> None:
    """A name that was mistyped is no broken file."""
    (tmp_path / "a.json").touch()
    with pytest.raises(UsageProblem, match=r"no such file \(did you mean 'a\.json'\?\)") as caught:
        json_files.load(tmp_path / "b.json")
    assert not isinstance(caught.value, BrokenFile)
