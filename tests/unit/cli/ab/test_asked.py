"""The command line of ``gpubench ab``, checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpubench_plugin.cli.ab.request import (
    Request,
    check_pairs,
    check_unchanged_from,
    parse_duration,
)
from gpubench_plugin.core.errors import UsageProblem

HERE = Path("/repo/sub")


def test_pairs_end_at_a_look() -> None:
    """Stopping elsewhere would be a look that no error rate accounts for."""
    assert check_pairs(10) == 10
    with pytest.raises(UsageProblem, match="allowed: 5, 10, 15"):
        check_pairs(7)


def test_more_pairs_than_fifteen_may_be_asked_for() -> None:
    """Any multiple of five, or as many as it takes."""
    assert check_pairs(45) == 45
    assert Request(here=HERE, base="main", pairs=45).max_pairs == 45
    assert Request(here=HERE, base="main", until_decided=True).max_pairs == 200


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("20m", 1200), ("2h", 7200), ("1h30m", 5400)]
)
def test_a_time_has_units(text: str, seconds: float) -> None:
    """Hours, minutes and seconds, and it is told again as it was given."""
    assert parse_duration(text) == seconds
    asked = Request(here=HERE, base="main", until_decided=True, time_s=seconds, unchanged_from=5)
    told = parse_duration(asked.options()[2].removeprefix("--time="))
    assert told == seconds
    assert (asked.options()[1], asked.options()[3]) == ("--until-decided", "--unchanged-from=5")


@pytest.mark.parametrize("text", ["20", "", "m", "0s", "1.5h", "-5m", "30m1h", "9999999h"])
def test_what_is_no_time_is_refused(text: str) -> None:
    """The message has what is allowed."""
    with pytest.raises(UsageProblem, match=f"--time={text}: not a duration; allowed: .*90s, 20m"):
        parse_duration(text)


def test_unchanged_is_called_from_a_look_on() -> None:
    """One of the first three."""
    assert check_unchanged_from(15) == 15
    with pytest.raises(UsageProblem, match="--unchanged-from=7: not allowed; allowed: 5, 10, 15"):
        check_unchanged_from(7)


def test_what_an_earlier_version_asked_called_unchanged_by_five_pairs() -> None:
    """A comparison that it began goes on with its own rule."""
    recorded = Request(here=HERE, base="main").to_json()
    del recorded["unchanged_from"], recorded["time_s"], recorded["until_decided"]
    assert Request.from_json(recorded).unchanged_from == 5


def test_secrets_are_not_written_down() -> None:
    """Arguments that were hidden make the record incomplete, others come back equal."""
    plain = Request(here=HERE, base="main", arguments=("-k", "a"), limits={"mfu": "3%"})
    assert Request.from_json(plain.to_json()) == plain
    secret = Request(here=HERE, base="main", arguments=("--api-key=hunter2",))
    assert "hunter2" not in str(secret.to_json())
    assert plain.has_all_arguments
    assert not Request.from_json(secret.to_json()).has_all_arguments


def test_the_command_is_told_again() -> None:
    """What GitHub's page shows to see it again is what was asked for."""
    asked = Request(
        here=HERE, base="main", head_python="py", pairs=5, limits={"mfu": "3%"}, arguments=("-x",)
    )
    options = ["--base=main", "--head-python=py", "--pairs=5", "--limit=mfu=3%", "--", "-x"]
    assert asked.options() == options


def test_whose_limits_count_is_recorded_and_told() -> None:
    """A comparison of an earlier version, which records nothing of it, goes on by the base's."""
    asked = Request(here=HERE, base="main", limits_from="head")
    assert asked.options() == ["--base=main", "--limits-from=head", "--"]
    assert Request.from_json(asked.to_json()) == asked
    earlier = {k: v for k, v in asked.to_json().items() if k != "limits_from"}
    assert Request.from_json(earlier).limits_from == "base"


def test_versions_are_exempt_only_where_pythons_are_compared() -> None:
    """Without a Python of its own on a side, another torch is incomparable."""
    assert Request(here=HERE, base="main").exempt_facts == ()
    assert "torch." in Request(here=HERE, base="main", base_python="py").exempt_facts
