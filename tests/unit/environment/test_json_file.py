"""Tests of JSON from anywhere."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.core.errors import BrokenFile, UsageProblem
from gpubench_plugin.environment import json_files

if TYPE_CHECKING:
    from pathlib import Path


def nested(depth: int, opened: str = "[", closed: str = "]", core: str = "") -> bytes:
    return (opened * depth + core + closed * depth).encode()


@pytest.mark.parametrize(
    "data",
    [
        nested(json_files.MAX_DEPTH),
        nested(json_files.MAX_DEPTH, '{"a":', "}", "1"),
        json.dumps({str(n): [{"a": [n]}] for n in range(1000)}).encode(),
        json.dumps("[" * 500 + '\\"' + "{" * 500).encode(),
        json.dumps([f"test_a[{n}" for n in range(500)]).encode(),
        b"\xef\xbb\xbf[1]",
        json.dumps([["é"] * 300] * 300).encode("utf-16"),
    ],
)
def test_what_is_within_the_depth_is_read(data: bytes) -> None:
    """Brackets in texts open nothing, and neighbours are no levels; byte order marks are fine."""
    assert json_files.parse(data, "it") == json.loads(data.removeprefix(b"\xef\xbb\xbf"))


@pytest.mark.parametrize(
    "data",
    [
        nested(json_files.MAX_DEPTH + 1),
        nested(json_files.MAX_DEPTH + 1, '{"a":', "}", "1"),
        nested(60, '{"]": [', "]}"),
        nested(100_000, "[", ""),
        nested(100_000, '{"a":', ""),
        nested(900).decode().encode("utf-16"),
        b'["' + b"[" * 50 + b'", ' + nested(101) + b"]",
    ],
)
def test_what_is_nested_deeper_is_refused(data: bytes) -> None:
    """Before any parser descends into it, whatever the encoding, whole or cut off."""
    with pytest.raises(BrokenFile, match="it is nested too deeply, more than 100 levels"):
        json_files.parse(data, "it")


@pytest.mark.parametrize("digits", ["9" * 400, "-" + "9" * 400, "9" * 5000, "1e999"])
def test_numbers_beyond_every_float_are_infinite(digits: str) -> None:
    """So that they cause the same errors as ``1e999``."""
    value: Any = json_files.parse(f"[{digits}, 12]".encode(), "it")
    assert math.isinf(value[0])
    assert value[1] == 12
    assert isinstance(value[1], int)


@pytest.mark.parametrize("data", [b'"\xff"', b"{\xfe\xff", b"\x89PNG\r\n", b"\x00\x01"])
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
