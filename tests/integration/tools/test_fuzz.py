"""A short run of the fuzzer over everything that commands read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools import fuzz

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


CASES = 65
"""Five of each kind; `python -m tools.fuzz --count=10000` runs more."""


def test_no_damaged_file_escapes(tmp_path: Path) -> None:
    """No exception, traceback, exit code 1 or endless call, whatever stands in a file."""
    scene = fuzz.Scene.build(tmp_path)
    outcome = fuzz.fuzz(scene, seed=20, numbers=range(CASES), kinds=list(fuzz.KINDS))
    assert outcome.escapes == []
    assert outcome.codes.total() == CASES
    assert outcome.codes[0]
    assert outcome.codes[4]


def test_a_case_is_the_same_again(tmp_path: Path) -> None:
    """Its number and the seed alone make it, so that an escape can be looked at."""
    scene = fuzz.Scene.build(tmp_path)
    for kind in fuzz.KINDS:
        path = scene.root / fuzz.KINDS[kind].path
        before, cases = path.read_bytes(), set()
        for _ in range(2):
            path.write_bytes(before)
            fuzz.damage_of(scene, kind, seed=3, number=5)
            cases.add(path.read_bytes())
        assert len(cases) == 1
        assert cases != {before}


def test_an_escape_is_told_with_what_makes_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The seed, the number and the kind of its case."""

    def escape(scene: fuzz.Scene) -> None:
        raise KeyError("nobody catches it")

    kind = fuzz.Kind(path="rounds.json", readers=(escape,), structure=fuzz.json_structure)
    monkeypatch.setitem(fuzz.KINDS, "rounds", kind)
    code = fuzz.main(["--kind=rounds", "--only=3", "--seed=4"])
    out = capsys.readouterr().out
    assert code == 1
    assert "escape" in out
    assert "rounds.json of --seed=4 --only=3 --kind=rounds: Traceback" in out
    assert "1 cases of 1 kinds" in out
