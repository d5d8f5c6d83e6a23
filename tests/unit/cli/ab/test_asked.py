"""The command line of ``gpubench ab``, checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpubench_plugin.cli.ab import Asked, check_pairs, limits_from
from gpubench_plugin.errors import UsageProblem

HERE = Path("/repo/sub")


@pytest.mark.parametrize("text", ["3%", "=3%", "step_time_s=", "step_time_s=3"])
def test_a_limit_names_its_metric(text: str) -> None:
    """--limit takes <metric>=<limit>."""
    with pytest.raises(UsageProblem, match="--limit"):
        limits_from([text])


def test_limits_are_by_metric() -> None:
    """Bounds with an equals sign are understood."""
    assert limits_from(["step_time_s=3%", "peak_memory_bytes=<=1e9"]) == {
        "step_time_s": "3%",
        "peak_memory_bytes": "<=1e9",
    }


def test_pairs_end_at_a_look() -> None:
    """Stopping elsewhere would be a look that no error rate accounts for."""
    assert check_pairs(10) == 10
    with pytest.raises(UsageProblem, match="allowed: 5, 10, 15"):
        check_pairs(7)


def test_secrets_are_not_written_down() -> None:
    """Arguments that were hidden make the record incomplete, others come back equal."""
    plain = Asked(here=HERE, base="main", arguments=("-k", "a"), limits={"mfu": "3%"})
    assert Asked.from_json(plain.to_json()) == plain
    secret = Asked(here=HERE, base="main", arguments=("--api-key=hunter2",))
    assert "hunter2" not in str(secret.to_json())
    assert plain.complete
    assert not Asked.from_json(secret.to_json()).complete


def test_the_command_is_told_again() -> None:
    """What GitHub's page shows to see it again is what was asked for."""
    asked = Asked(
        here=HERE, base="main", head_python="py", pairs=5, limits={"mfu": "3%"}, arguments=("-x",)
    )
    options = ["--base=main", "--head-python=py", "--pairs=5", "--limit=mfu=3%", "--", "-x"]
    assert asked.options() == options


def test_whose_limits_count_is_recorded_and_told() -> None:
    """A comparison of an earlier version, which records nothing of it, goes on by the base's."""
    asked = Asked(here=HERE, base="main", limits_from="head")
    assert asked.options() == ["--base=main", "--limits-from=head", "--"]
    assert Asked.from_json(asked.to_json()) == asked
    earlier = {k: v for k, v in asked.to_json().items() if k != "limits_from"}
    assert Asked.from_json(earlier).limits_from == "base"


def test_versions_are_exempt_only_where_pythons_are_compared() -> None:
    """Without a Python of its own on a side, another torch is incomparable."""
    assert Asked(here=HERE, base="main").exempt == ()
    assert "torch." in Asked(here=HERE, base="main", base_python="py").exempt
