"""Tags of a run, in its folder."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.core.errors import ResultsError, UsageProblem
from gpubench_plugin.results.tags import change_tags, tags_of
from tests.support.runs_builder import write_run

if TYPE_CHECKING:
    from pathlib import Path


def test_tags_are_added_and_taken(tmp_path: Path) -> None:
    """They are sorted, each is there once, and what is no safe word changes nothing."""
    run = write_run(tmp_path, 0)
    assert tags_of(run) == ()
    assert change_tags(run, add=["nightly", "good"]) == ("good", "nightly")
    assert change_tags(run, add=["good"], remove=["nightly", "unknown"]) == ("good",)
    with pytest.raises(UsageProblem, match="tag: 'a b'"):
        change_tags(run, add=["fine", "a b"])
    assert tags_of(run) == ("good",)


def test_those_who_tag_at_once_lose_nothing(tmp_path: Path) -> None:
    """Every tag is there."""
    run = write_run(tmp_path, 0)
    words = [f"tag{number}" for number in range(16)]
    with ThreadPoolExecutor(max_workers=8) as pool:
        list(pool.map(lambda word: change_tags(run, add=[word]), words))
    assert set(tags_of(run)) == {*words}


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "is empty"), ('{"schema_version": 3, "tags": [1]}', "violates the schema at tags.0")],
)
def test_a_broken_file_is_said(tmp_path: Path, text: str, message: str) -> None:
    """It is not taken for no tags: a tag protects its run."""
    run = write_run(tmp_path, 0)
    (run.path / "tags.json").write_text(text)
    with pytest.raises(ResultsError, match=message):
        tags_of(run)
