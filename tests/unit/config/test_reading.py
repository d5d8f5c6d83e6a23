from __future__ import annotations

import math
import os
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.config import yaml_reader
from gpubench_plugin.core.errors import UsageProblem

if TYPE_CHECKING:
    from pathlib import Path


def refusal(text: str) -> str:
    with pytest.raises(UsageProblem) as caught:
        yaml_reader.parse(text, "x.yaml")
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("true", True),
        ("False", False),
        ("yes", "yes"),
        ("off", "off"),
        ("null", None),
        ("~", None),
        ("12", 12),
        ("+12", 12),
        ("010", 10),
        ("0o10", 8),
        ("0x1F", 31),
        ("1_000", "1_000"),
        ("1e-3", 0.001),
        ("1.", 1.0),
        (".5", 0.5),
        ("-.inf", -math.inf),
        ("1:30", "1:30"),
        ("2024-01-01", "2024-01-01"),
        ('"1"', "1"),
        ("!!str 1", "1"),
        ("!!float 1", 1.0),
        ("[1, a]", [1, "a"]),
        ("<<: 1", {"<<": 1}),
        ("", None),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text: str, expected: object) -> None:
    """A plain scalar means what the core schema of YAML 1.2 says, not what YAML 1.1 said."""
    value = yaml_reader.parse(text, "x.yaml")
    assert (type(value), value) == (type(expected), expected)


def test_nan_is_a_number() -> None:
    """``.nan`` is read as the number that is not one, which validation refuses later."""
    assert math.isnan(yaml_reader.parse(".nan", "x.yaml"))


def test_anchors_are_values() -> None:
    """An alias stands for the value of its anchor."""
    assert yaml_reader.parse("a: &x [1]\nb: *x", "x.yaml") == {"a": [1], "b": [1]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: [1,", "x.yaml:2:7: while parsing a flow node"),
        ("a: 1\na: 2", "x.yaml:2:1: duplicate key 'a' in a mapping"),
        ("a: {b: 1, b: 2}", "x.yaml:1:11: duplicate key 'b' in a mapping"),
        ("a: !!python/object/apply:os.system [id]", "x.yaml:1:4: the tag !!python/object/apply"),
        ("a: !!python/name:os.system", "x.yaml:1:4: the tag !!python/name:os.system is not"),
        ("a: !mine 1", "x.yaml:1:4: the tag !mine is not allowed"),
        ("a: !!binary aGk=", "x.yaml:1:4: the tag !!binary is not allowed"),
        ("a: !!map [1]", "x.yaml:1:4: the tag !!map is not allowed"),
        ("a: !!int many", "x.yaml:1:4: 'many' is not a valid int"),
        ("a: !!bool maybe", "x.yaml:1:4: 'maybe' is not a valid bool"),
        ("a: !!null 1", "x.yaml:1:4: '1' is not a valid null"),
        ("a: " + "9" * 5000, "x.yaml:1:4: '9999"),
        ("1: a", "x.yaml:1:1: the key 1 is not text"),
        ("true: a", "x.yaml:1:1: the key True is not text"),
        ("[a]: 1", "x.yaml:1:1: the key ['a'] is not text"),
        ("a: 1\n---\nb: 1", "x.yaml:2:1: expected a single document"),
        ("a: *nowhere", "x.yaml:1:4: found undefined alias 'nowhere'"),
        ("a: 1\nb: \a", "x.yaml:2: the character '\\x07' is not allowed"),
        ("&a [*a]", "x.yaml:1:1: nested more than 50 deep, or an anchor (&) that contains itself"),
        ("a: " + "[" * 51 + "]" * 51, "x.yaml:1:54: nested more than 50 deep"),
        ("[" * 5000, "x.yaml: nested more than 50 deep"),
    ],
)
def test_a_refusal_says_where_and_what(text: str, message: str) -> None:
    """What is not plain, valid YAML is refused with file, line and column."""
    assert refusal(text).startswith(message)


def test_an_anchor_bomb_is_refused() -> None:
    """A small text that stands for a billion values is refused before they are built."""
    lines = ["a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [
        f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]" for old, new in pairwise("abcdefghi")
    ]
    assert "more than 10000 values" in refusal("\n".join(lines))


@pytest.mark.parametrize("digits", [309, 400, 5000])
def test_a_whole_number_beyond_every_float_is_refused(digits: int) -> None:
    """Whoever calculates with it, the memory a preset needs for example, would meet an overflow."""
    said = refusal(f"presets: {{full: {{needs_memory_gib: {'9' * digits}}}}}")
    assert f"1:36: '{'9' * 40}' is not a valid int" in said


def test_a_file_is_read(tmp_path: Path) -> None:
    """A mapping in a file is read, also with the byte order mark some editors write."""
    path = tmp_path / "x.yaml"
    path.write_bytes(b"\xef\xbb\xbftraining: {steps: 3}\n")
    assert yaml_reader.read(path, "x.yaml") == {"training": {"steps": 3}}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a: 1\nb: \xff", "x.yaml:2: not UTF-8 (byte 0xff)"),
        (b"", "x.yaml: the file is empty; it must be a mapping of sections"),
        (b"# nothing\n", "x.yaml: the file is empty; it must be a mapping of sections"),
        (b"- 1", "x.yaml: the file is a list; it must be a mapping of sections"),
        (b"text", "x.yaml: the file is text; it must be a mapping of sections"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(
    tmp_path: Path, data: bytes, message: str
) -> None:
    """A file with anything but one mapping in UTF-8 of sane size is refused."""
    path = tmp_path / "x.yaml"
    path.write_bytes(data)
    with pytest.raises(UsageProblem) as caught:
        yaml_reader.read(path, "x.yaml")
    assert str(caught.value) == message


def test_a_file_beyond_the_limit_is_refused(tmp_path: Path) -> None:
    """A configuration has a few hundred bytes to a few thousand: a huge file is none."""
    path = tmp_path / "x.yaml"
    path.write_bytes(b"a: " + b"x" * yaml_reader.MAX_BYTES)
    with pytest.raises(UsageProblem, match=r"x: .* has 262147 bytes; the limit is 262144"):
        yaml_reader.read(path, "x")


def test_what_is_no_regular_file_is_refused(tmp_path: Path) -> None:
    """A folder and a pipe, which would block, are named as what they are."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageProblem, match=r"x: .* is not a regular file but a folder"):
        yaml_reader.read(tmp_path, "x")
    with pytest.raises(UsageProblem, match=r"x: .* is not a regular file but a named pipe"):
        yaml_reader.read(tmp_path / "pipe", "x")


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """The reason of the operating system is passed on without a traceback."""
    with pytest.raises(UsageProblem, match="x: cannot be read: No such file or directory"):
        yaml_reader.read(tmp_path / "x", "x")
