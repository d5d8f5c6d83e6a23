"""Tests of run ids."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

import pytest

from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.results.run_directory import new_run_id, path_component

NOON = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)


def test_run_id_has_the_start_in_utc_a_tag_and_random_digits() -> None:
    """Without a tag it says ``run``; two of one second differ."""
    assert new_run_id("nightly", NOON).startswith("20260131T120000Z_nightly_")
    local_time = NOON.astimezone(timezone(timedelta(hours=9)))
    assert re.fullmatch(r"20260131T120000Z_run_[0-9a-f]{6}", new_run_id(None, local_time))
    assert new_run_id(None, NOON) != new_run_id(None, NOON)


@pytest.mark.parametrize(
    "tag", ["../evil", "a/b", "..", ".hidden", "-x", "two words", "a\x00b", "ü", "x" * 81]
)
def test_unsafe_tag_is_refused(tag: str) -> None:
    """A tag that is no plain name of a folder is refused by name."""
    with pytest.raises(UsageProblem) as refused:
        new_run_id(tag, NOON)
    assert str(refused.value).startswith(f"--tag: {tag!r} is not a valid folder name")


def test_refusal_proposes_the_nearest_safe_name() -> None:
    """The message proposes a name that would be accepted."""
    with pytest.raises(UsageProblem, match="did you mean 'my-first-try'"):
        path_component("--experiment", "my first/try")
