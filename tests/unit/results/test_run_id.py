"""Tests of run ids."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

import pytest

from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.results.run_directory import new_run_id, path_component

NOON = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)


def test_run_id_has_time_tag_and_random_digits() -> None:
    """A run id is the UTC start, the tag and the random digits."""
    run_id = new_run_id("nightly", NOON, lambda count: "0a" * count)
    assert run_id == "20260131T120000Z_nightly_0a0a0a"


def test_run_id_without_tag_says_run() -> None:
    """Without a tag the word run stands in its place."""
    assert re.fullmatch(r"20260131T120000Z_run_[0-9a-f]{6}", new_run_id(None, NOON))


def test_run_id_is_in_utc() -> None:
    """A start in another time zone is converted."""
    local_time = NOON.astimezone(timezone(timedelta(hours=9)))
    assert new_run_id(None, local_time).startswith("20260131T120000Z_")


def test_run_ids_differ() -> None:
    """Two runs of the same second have different ids."""
    assert new_run_id(None, NOON) != new_run_id(None, NOON)


@pytest.mark.parametrize(
    "tag", ["../evil", "a/b", "..", ".hidden", "-x", "two words", "a\x00b", "ü", "x" * 81]
)
def test_unsafe_tag_is_refused(tag: str) -> None:
    """A tag that is no plain name of a folder is refused, and the message names option and tag."""
    with pytest.raises(UsageProblem) as refused:
        new_run_id(tag, NOON)
    assert str(refused.value).startswith(f"--tag: {tag!r} is not a valid folder name")


def test_refusal_proposes_the_nearest_safe_name() -> None:
    """The message proposes a name that would be accepted."""
    with pytest.raises(UsageProblem, match="did you mean 'my-first-try'"):
        path_component("--experiment", "my first/try")
