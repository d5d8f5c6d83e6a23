"""A benchmark is comparable with itself, whoever starts its ranks, unless its threads differ."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.compare.comparability import Comparability
from gpubench_plugin.results.reader import RunReader
from gpubench_plugin.results.run_directory import RunDirectory

if TYPE_CHECKING:
    from gpubench_plugin.core.records import Run
    from tests.support.projects import Project

pytestmark = [pytest.mark.own_process, pytest.mark.slow]

SUITE = """
import os
import pytest
import torch

@pytest.mark.gpubench(ranks=2)
@pytest.mark.parametrize("variable", ["THREADS_OF_A", "THREADS_OF_B"])
def test_sum(gpubench, process_group, variable):
    if number := os.environ.get(variable):
        torch.set_num_threads(int(number))
    gpubench.record("threads", torch.get_num_threads(), unit="count")
    gpubench(torch.ones(64).sum)
"""

A, B = (f"test_it.py::test_sum[THREADS_OF_{name}-ranks2]" for name in "AB")


def differences(base: Run, head: Run) -> dict[str, str]:
    """What makes each benchmark of two runs incomparable; empty where nothing does."""
    judge = Comparability(exempt=(), allow=False).differences
    return {name: judge(base, base.results[name], head, head.results[name]) for name in (A, B)}


class Launched:
    """A run of the suite: by gang, or with `ranks` by torchrun."""

    def __init__(self, project: Project, name: str, *, ranks: int = 0, **variables: str):
        project.write("test_it.py", SUITE)
        env = {"OMP_NUM_THREADS": None, **variables}
        done = project.run(f"--results-dir={name}", env=env, ranks=ranks)
        assert done.code == 0, done.out + done.err
        run = replace(done, results=project.path / name)
        self.run = RunReader(RunDirectory(path=run.directory)).run()
        self.threads = [b["metrics"]["threads"]["value"] for b in run.summary["benchmarks"]]


def test_ranks_of_a_gang_and_of_torchrun_share_the_cores_alike(project: Project) -> None:
    """Torchrun's OMP_NUM_THREADS counts as little as the gang's; another number is one test's."""
    gang = Launched(project, "gang")
    torchrun = Launched(project, "torchrun", ranks=2, THREADS_OF_B="3")
    (share, _), (same, other) = gang.threads, torchrun.threads
    assert (same, other) == (share, 3)
    text = f"torch.threads {share:g} in base, 3 in head"
    assert differences(gang.run, torchrun.run) == {A: "", B: text}


@pytest.mark.exhaustive
def test_the_users_number_is_obeyed_by_every_launcher(project: Project) -> None:
    """Also by torchrun, and where it is the number that torchrun sets itself."""
    for number in (1, 3):
        asked = [
            Launched(project, f"{number}-{ranks}", ranks=ranks, OMP_NUM_THREADS=str(number))
            for ranks in (0, 2)
        ]
        assert [one.threads for one in asked] == [[number, number]] * 2
        gang, torchrun = (one.run for one in asked)
        assert gang.machine["environment_variables.OMP_NUM_THREADS"] == str(number)
        assert differences(gang, torchrun) == {A: "", B: ""}
