"""Tests on several ranks that measure nothing, as the guide shows them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.support.documents import GUIDE, files

if TYPE_CHECKING:
    from tests.support.projects import Project

pytestmark = pytest.mark.exhaustive


def test_guide_s_tests_run_on_their_ranks(project: Project) -> None:
    """Passed ones have no row, and the one that hangs is one failure with its rank's stack."""
    first, second = files(GUIDE / "distributed-tests.md").items()
    for name, text in (first, second):
        project.write(name, text)

    run = project.run("tests", "-rf", env={"COLUMNS": "100"})

    assert run.code == 1
    assert "1 failed, 4 passed" in run.out
    assert "rank 0 timed out after 5 s (measure.timeout_s); rank 1 had passed" in run.out
    stack = run.out.partition("Stack of rank 0")[2].partition("====")[0]
    assert "in barrier" in stack
    assert second[0] in stack
    assert re.search(r"\(\d+ frames of pytest\)", stack)
    assert "_pytest" not in stack
    assert "Stack of rank 1" not in run.out
    assert "shards_cover_everything" not in run.out.partition("= gpubench =")[2]
    assert run.outcomes == {
        "test_all_reduce[ranks2]": "not_measured",
        "test_shards_cover_everything": "not_measured",
        "test_shards_cover_everything[ranks2]": "not_measured",
        "test_every_rank_takes_part[ranks2]": "hang",
        "test_gradients_are_averaged[ranks2]": "not_measured",
    }
