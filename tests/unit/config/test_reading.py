"""YAML as the configuration reads it."""

from __future__ import annotations

import math
import os
import re
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.config import yaml_reader
from gpubench_plugin.core.errors import BrokenFile

if TYPE_CHECKING:
    from pathlib import Path


def refusal(text: str) -> str:
    with pytest.raises(BrokenFile) as caught:
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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: [1,", "x.yaml:"),
        ("a: 1\na: 2", "x.yaml:2:1: duplicate key 'a' in a mapping"),
        ("a: {b: 1, b: 2}", "x.yaml:1:11: duplicate key 'b' in a mapping"),
        ("a: !!python/object/apply:os.system [id]", "x.yaml:1:4: the tag !!python/object/apply"),
        ("a: !mine 1", "x.yaml:1:4: the tag !mine is not allowed"),
        ("a: !!binary aGk=", "x.yaml:1:4: the tag !!binary is not allowed"),
        ("a: !!timestamp 2026-01-01", "x.yaml:1:4: the tag !!timestamp is not allowed"),
        ("a: !!map [1]", "x.yaml:1:4: "),
        ("a: !!int many", "x.yaml:1:4: 'many' is not a valid int"),
        ("a: !!bool maybe", "x.yaml:1:4: 'maybe' is not a valid bool"),
        ("1: a", "x.yaml:1:1: the key 1 is not text"),
        ("[a]: 1", "x.yaml:1:1: the key ['a'] is not text"),
        ("a: 1\n---\nb: 1", "x.yaml:2:1: expected a single document"),
        ("a: *nowhere", "x.yaml:1:4: found undefined alias"),
        ("a: 1\nb: \a", "x.yaml: unacceptable character #x0007"),
        ("a: " + "9" * 5000, "x.yaml:1:4: '9999"),
        ("&a [*a]", "x.yaml:1:1: found unconstructable recursive node"),
        *((start * 200_000, "x.yaml:1:") for start in ("[", "{a: ", "- ", "? ")),
    ],
)
def test_a_refusal_says_where_and_what(text: str, message: str) -> None:
    """What is not plain, valid YAML is refused with file, line and column, however deep."""
    assert refusal(text).startswith(message)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a: 1\nb: \xff", "x.yaml:2: not UTF-8 (byte 0xff)"),
        (b"# nothing\n", "x.yaml: the file is empty; it must be a mapping"),
        (b"- 1", "x.yaml: the file is [1]; it must be a mapping"),
        (b"a: " + b"x" * 2**18, "262147 bytes"),
    ],
)
def test_a_file_that_is_no_configuration_is_refused(
    tmp_path: Path, data: bytes, message: str
) -> None:
    """A file with anything but one mapping in UTF-8 of sane size is refused."""
    path = tmp_path / "x.yaml"
    path.write_bytes(data)
    with pytest.raises(BrokenFile, match=re.escape(message)):
        yaml_reader.read(path, "x.yaml")


def test_a_file_is_read(tmp_path: Path) -> None:
    """Also with a byte order mark and anchors."""
    path = tmp_path / "x.yaml"
    path.write_bytes(b"\xef\xbb\xbftraining: {steps: 3}\n")
    assert yaml_reader.read(path, "x.yaml") == {"training": {"steps": 3}}
    assert yaml_reader.parse("a: &x [1]\nb: *x", "x.yaml") == {"a": [1], "b": [1]}


def test_what_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    """Neither a pipe nor a folder; for one that is not there the nearest name is suggested."""
    os.mkfifo(tmp_path / "pipe.yaml")
    for name, words in (
        ("pipe.yaml", "is not a regular file"),
        ("", "is not a regular file"),
        ("pip.yaml", "no such file (did you mean 'pipe.yaml'?)"),
    ):
        with pytest.raises(BrokenFile, match=f"--config=x: .*{re.escape(words)}"):
            yaml_reader.read(tmp_path / name, "--config=x")
