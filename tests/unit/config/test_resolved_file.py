"""Tests of ``config_resolved.yaml`` from anywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.config import resolved_file
from gpubench_plugin.core.errors import BrokenFile

if TYPE_CHECKING:
    from pathlib import Path


def bomb(value: str, merge: str = "") -> str:
    """Nine times as many values with each of twelve lines."""
    lines = [f"a0: &a0 {value}"]
    for n in range(1, 12):
        several = ", ".join([f"*a{n - 1}"] * 9)
        lines.append(f"a{n}: &a{n} " + (f"{{{merge}: [{several}]}}" if merge else f"[{several}]"))
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 200_000, "nested too deeply"),
        ("{a: " * 50_000, "nested too deeply"),
        ("- " * 100_000, "nested too deeply"),
        ("? " * 100_000, "nested too deeply"),
        ("\n".join(" " * n + "a:" for n in range(3000)), "nested too deeply"),
        ("a: " + "[\n" * 5000, "nested too deeply"),
        ("a: " + "[" * 101 + "]" * 101, "nested too deeply"),
        (bomb("[x]"), "more than 10000000 values"),
        (bomb("{x: 1}", "<<"), "malformed: could not determine a constructor for the tag .*:merge"),
        ("a: &a [*a]", "contains itself"),
        ("a: *b", "undefined alias"),
        ("a: !!binary aGk=", "unsupported type bytes"),
        ("a: 2026-01-01", "unsupported type date"),
        ("1: a", "the key 1 is not text"),
        ("a: [1", "malformed: while parsing a flow sequence"),
        (
            "a: !!python/object:os.system {}",
            "malformed: could not determine a constructor for the tag .*os.system",
        ),
        ("- a", "malformed: not a mapping"),
        ("", "malformed: not a mapping"),
        ("a: \x01", "malformed: unacceptable character #x0001"),
        ("? [a]\n: b", "malformed: while constructing a mapping .* found unhashable key"),
        ("a: 0o9", None),
        ("a: " + "9" * 5000, "malformed: .*Exceeds the limit"),
    ],
)
def test_what_this_project_has_not_written_is_one_error(
    tmp_path: Path, text: str, said: str | None
) -> None:
    """Whatever stands there: no crash of the C library, no endless walk, one message."""
    path = tmp_path / "config_resolved.yaml"
    path.write_text(text)
    if said is None:
        assert resolved_file.read(path)
        return
    with pytest.raises(BrokenFile, match=said) as caught:
        resolved_file.read(path)
    assert str(caught.value).startswith(str(path))
    assert len(str(caught.value)) < 500


def test_many_benchmarks_may_share_a_configuration(tmp_path: Path) -> None:
    """5,000 of them with 100 keys each are far within the bounds, by alias or written out."""
    keys = "".join(f"  key{n}: {n}\n" for n in range(100))
    path = tmp_path / "config_resolved.yaml"
    shared = "".join(f"tests/a.py::test[{n}-x[y]: *one\n" for n in range(1, 5000))
    path.write_text(f"tests/a.py::test[0]: &one\n{keys}{shared}")
    found = resolved_file.read(path)
    assert len(found) == 5000
    assert found["tests/a.py::test[4999-x[y]"]["key99"] == 99
    path.write_text("".join(f"t[{n}]:\n{keys}" for n in range(200)))
    assert len(resolved_file.read(path)) == 200
