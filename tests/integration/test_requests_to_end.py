"""A session that is asked to end while a compiler, or whatever else, swallows what is raised."""

from __future__ import annotations

import signal
from collections import Counter
from pathlib import Path

import pytest

from tests.support.asked_to_end import Moment, asked, write_tests
from tests.support.projects import InlineProject

NAMES = {f"test_{name}[ws1]": name for name in ("before", "compiled", "after")}


def kept(project: InlineProject, seed: int) -> str:
    """What became of the request of a seed: ``kept``, or how it was lost."""
    folder = project.path / f"{seed}"
    folder.mkdir()
    one = InlineProject(folder)
    write_tests(one)
    run = asked(one, "before or compiled or after", Moment.of_seed(seed))
    ended = {line for line in (folder / "ended").read_text().splitlines()}
    outcomes = run.outcomes
    expected = {name: "measured" if name in ended else "not_measured" for name in NAMES}
    if (run.code, run.summary["status"]) != (2, "interrupted"):
        return f"exit {run.code}, {run.summary['status']}"
    return "kept" if outcomes == expected else f"{outcomes}"


@pytest.mark.parametrize(
    "seeds", [pytest.param(range(12), id="12"), pytest.param(range(200), id="200")]
)
def test_no_moment_of_a_compiler_loses_a_request(project: InlineProject, seeds: range) -> None:
    write_tests(project)
    assert project.run("-k", "before or compiled or after").code == 0
    counted = Counter(kept(project, seed) for seed in seeds)
    print(counted)
    assert counted == {"kept": len(seeds)}
