"""What a comparison remembers, and when it refuses to go on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpubench_plugin.cli.ab.request import Request
from gpubench_plugin.cli.ab.saved_state import LaunchRecord, SavedState
from gpubench_plugin.core.errors import UsageProblem


def state(folder: Path) -> SavedState:
    asked = Request(here=folder, base="main")
    return SavedState(folder=folder, request=asked, identity={"base": {"commit": "a1"}}, seed=5)


def done(pair: int, side: str, *, attempt: int = 1, problem: str = "") -> LaunchRecord:
    return LaunchRecord(
        pair=pair, attempt=attempt, side=side, folder="launches/1", seconds=2.0, problem=problem
    )


def test_what_was_added_is_read_again(tmp_path: Path) -> None:
    """Every launch is on disk as soon as it was added."""
    made = state(tmp_path)
    made.add(done(0, "base"))
    made.add(done(0, "head"))
    again = SavedState.read(tmp_path)
    assert again == made
    assert again.pair_launches(0) == {"base": made.launches[0], "head": made.launches[1]}


def test_a_launch_takes_as_long_as_the_latest(tmp_path: Path) -> None:
    """Of each side the last one that succeeded."""
    made = state(tmp_path)
    for pair, seconds in enumerate((100.0, 2.0, 4.0)):
        made.add(replace(done(pair, "base"), seconds=seconds))
    made.add(done(0, "head", problem="was killed by SIGSEGV"))
    assert made.launch_seconds() == {"base": 4.0}
    made.add(replace(done(0, "head"), seconds=6.0))
    assert made.launch_seconds() == {"base": 4.0, "head": 6.0}


def test_half_a_pair_is_no_pair(tmp_path: Path) -> None:
    """Nor a replaced one, which stays in the record; the first warm-up pair counts."""
    made = state(tmp_path)
    made.add(done(3, "base"))
    assert made.pair_launches(3) is None
    made.add(done(3, "head", attempt=2))
    assert made.pair_launches(3) is None
    made.add(done(3, "base", attempt=2))
    assert made.pair_launches(3) is not None
    made.add(done(3, "base", attempt=3))
    made.add(done(3, "head", attempt=3, problem="was killed by SIGSEGV"))
    assert (made.pair_launches(3), made.attempts(3)) == (None, 3)
    made = state(tmp_path)
    made.add(done(1, "base"))
    made.add(done(1, "head"))
    made.supersede(1, "base: contended")
    assert SavedState.read(tmp_path).pair_launches(1) is None
    assert made.repeats() == 1
    made.add(done(1, "base", attempt=2))
    made.add(done(1, "head", attempt=2))
    again = SavedState.read(tmp_path).pair_launches(1) or {}
    assert {one.attempt for one in again.values()} == {2}
    assert [one.replaced for one in made.launches] == ["base: contended"] * 2 + [""] * 2
    made = state(tmp_path)
    made.add(done(0, "base", problem="was killed by SIGSEGV"))
    for attempt in (2, 3):
        for side in ("base", "head"):
            made.add(done(0, side, attempt=attempt))
    assert {one.attempt for one in (made.warmup_launches() or {}).values()} == {2}


def test_only_one_process_goes_on_with_it(tmp_path: Path) -> None:
    """A second one is refused while it runs; other code by key, with both values."""
    made = state(tmp_path)
    with (
        made.locked(),
        pytest.raises(UsageProblem, match="another process"),
        state(tmp_path).locked(),
    ):
        pass
    with made.locked():
        pass
    made = state(tmp_path)
    made.require_same({"base": {"commit": "a1"}})
    with pytest.raises(UsageProblem, match=r'base\.commit: "a1" in the run, "b2" now'):
        made.require_same({"base": {"commit": "b2"}})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is not JSON"),
        ('{"schema_version": 99}', "schema_version 99"),
        ('{"schema_version": 1, "asked": {}}', r"violates the schema at asked\.here: missing"),
        (None, r"has no state\.json"),
    ],
)
def test_what_is_no_comparison_is_refused(tmp_path: Path, text: str | None, said: str) -> None:
    """A file that is none, or newer, gives one message; so does a folder without it."""
    if text is not None:
        (tmp_path / "state.json").write_text(text)
    with pytest.raises(UsageProblem, match=said):
        SavedState.read(tmp_path)
