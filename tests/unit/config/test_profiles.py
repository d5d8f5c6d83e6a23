"""Profiles of measuring: defaults under a name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpubench_plugin.config.case import comparable
from gpubench_plugin.config.layers import PROFILES
from gpubench_plugin.config.sections import MeasureSection
from gpubench_plugin.core.errors import UsageProblem
from tests.support.resolving import resolved


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_has_keys_of_its_section(name: str) -> None:
    """Each is valid, and none of them is what the section has by itself."""
    section = MeasureSection(profile=name, **PROFILES[name])
    plain = MeasureSection()
    assert all(getattr(section, key) != getattr(plain, key) for key in PROFILES[name])


def test_a_profile_stands_in_for_the_defaults(tmp_path: Path) -> None:
    """Stated keys win, the last profile counts, and its keys are compared."""
    assert resolved(tmp_path).measure == MeasureSection()
    quick = resolved(tmp_path, "measure.profile=quick").measure
    assert quick == MeasureSection(profile="quick", **PROFILES["quick"])
    assert (quick.max_time_s, quick.warmup_max_rounds) == (0.5, 50)
    measure = resolved(tmp_path, "measure.max_time_s=3", "measure.profile=quick").measure
    assert (measure.max_time_s, measure.warmup_max_rounds) == (3.0, 50)
    chosen = resolved(tmp_path, "measure.profile=full", file="measure: {profile: quick}")
    assert chosen.measure.max_rounds == 4000
    none = resolved(tmp_path, "measure.profile=null", file="measure: {profile: quick}")
    assert none.measure == MeasureSection()
    with pytest.raises(UsageProblem, match=r"did you mean 'quick'.*input should be 'quick'"):
        resolved(tmp_path, "measure.profile=quikc")
    stated = [f"measure.{key}={value}" for key, value in PROFILES["quick"].items()]
    one_by_one = comparable(resolved(tmp_path, *stated))
    assert comparable(resolved(tmp_path, "measure.profile=quick")) == one_by_one
    assert one_by_one["measure.max_time_s"] == 0.5


@pytest.mark.parametrize("where", ["file", "preset", "overlay", "command line"])
def test_a_stated_key_wins_wherever_the_profile_was_chosen(tmp_path: Path, where: str) -> None:
    """The file comes before the command line, and still its key is no default."""
    profile = "measure: {profile: full}"
    texts: dict[str, Any] = {
        "file": {"file": "measure: {profile: full, max_rounds: 77}"},
        "preset": {"file": f"measure: {{max_rounds: 77}}\npresets: {{tiny: {{{profile}}}}}"},
        "overlay": {"file": "measure: {max_rounds: 77}", "overlays": [profile]},
        "command line": {"file": "measure: {max_rounds: 77}"},
    }
    overrides = ["measure.profile=full"] if where == "command line" else []
    measure = resolved(tmp_path, *overrides, **texts[where]).measure
    assert (measure.profile, measure.max_rounds, measure.max_time_s) == ("full", 77, 20.0)


@pytest.mark.parametrize(
    "stated",
    [
        ["measure.min_time_s=4"],
        ["measure.min_time_s=0.1", "measure.max_time_s=0.05"],
        ["measure.profile=full", "measure.min_time_s=9", "measure.max_time_s=0.5"],
    ],
)
def test_a_least_time_above_the_most_is_refused(tmp_path: Path, stated: list[str]) -> None:
    """The message names both keys, wherever the least time was stated."""
    with pytest.raises(UsageProblem, match=r"measure\.min_time_s=.* measure\.max_time_s="):
        resolved(tmp_path, *stated)


@pytest.mark.parametrize(
    ("stated", "limits"),
    [
        (["measure.profile=full", "measure.max_time_s=0.5"], (0.5, 0.5)),
        (["measure.profile=quick", "measure.min_time_s=1"], (1.0, 1.0)),
        (["measure.profile=full", "measure.max_time_s=9"], (1.0, 9.0)),
    ],
)
def test_a_profile_gives_way_to_what_is_stated(
    tmp_path: Path, stated: list[str], limits: tuple[float, float]
) -> None:
    """Nobody is told of a contradiction with a key that they never wrote."""
    measure = resolved(tmp_path, *stated).measure
    assert (measure.min_time_s, measure.max_time_s) == limits


def test_only_stated_bounds_contradict_each_other(tmp_path: Path) -> None:
    """A default gives way, and by time the least time says nothing."""
    with pytest.raises(UsageProblem, match=r"measure\.min_rounds=50 .* measure\.max_rounds=5"):
        resolved(tmp_path, "measure.min_rounds=50", "measure.max_rounds=5")
    assert resolved(tmp_path, "measure.max_rounds=5").measure.required_rounds == 5
    with pytest.raises(UsageProblem, match=r"measure\.confidence"):
        resolved(tmp_path, "measure.confidence=0.9999999999999999")
    measure = resolved(tmp_path, "measure.max_time_s=0.1").measure
    assert (measure.max_time_s, measure.min_time_s) == (0.1, 0.2)
    assert resolved(tmp_path, "measure.by=time", "measure.min_time_s=4").measure.min_time_s == 4
