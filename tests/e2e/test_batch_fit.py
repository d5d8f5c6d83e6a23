"""Batch sizes fitted where allocations really fail, and where each process has its own memory."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.results.outcomes import outcome_of

if TYPE_CHECKING:
    from tests.support.projects import Project

CONFIG = """
model: {name: mlp, hidden_sizes: [131072], image_size: 2}
data: {source: synthetic}
distributed: {threads: 1}
training: {steps: 3}
"""

LIMITED = """
import resource
from pathlib import Path

import pytest
import torch

HEADROOM_BYTES = 320 * 2**20  # of which a trial leaves 128 MiB


@pytest.fixture(scope="session", autouse=True)
def little_memory():
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    size = pages * resource.getpagesize() + HEADROOM_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (size, size))
"""

BENCHMARKS = """
import pytest


@pytest.mark.gpubench(config="small")
@pytest.mark.gpubench_set("training.batch_size=auto")
def test_fitted(gpubench, trainer):
    gpubench(trainer)


@pytest.mark.gpubench(config="small")
@pytest.mark.gpubench_set("training.batch_size=8")
def test_healthy(gpubench, trainer):
    gpubench(trainer)
"""


@pytest.mark.exhaustive
@pytest.mark.own_process
@pytest.mark.skipif(sys.platform != "linux", reason="other systems ignore the limit")
def test_the_largest_batch_is_found_by_allocations_that_fail(project: Project) -> None:
    """Under a limit of the process it is measured, one sample more is not, and all is put back."""
    project.write("configs/small.yaml", CONFIG)
    project.write("conftest.py", LIMITED)
    project.write("test_it.py", BENCHMARKS)

    run = project.run("--measure.steps=3")

    assert run.code == 0, run.out + run.err
    fitted, healthy = run.summary["benchmarks"]
    fit = fitted["correctness"]["batch_fit"]
    fits = {trial["samples"]: trial["fits"] for trial in fit["trials"]}
    samples = fit["samples"]
    assert samples > 1
    assert fit["bound_by"] == "memory"
    assert (fits[samples], fits[samples + 1]) == (True, False)
    assert fitted["outcome"] == "measured"
    assert fitted["work"]["samples"] == samples
    assert fitted["configuration"]["training"]["batch_size"] == samples
    assert "unchecked" not in fitted["flags"]
    reasons = {line["reason"] for line in run.journal if line.get("fits") is False}
    # The others are of the reference, which is beside the model where it fits by itself.
    assert any(outcome_of(RuntimeError(reason))[0] == "oom" for reason in reasons), reasons
    assert healthy["outcome"] == "measured"
    assert healthy["work"]["samples"] == 8


MODEL = """
import os
from pathlib import Path

import pytest
import torch

from gpubench_plugin.workloads.mlp import MLP


@pytest.fixture(autouse=True)
def memory(monkeypatch):
    processes = Path("processes")
    processes.mkdir(exist_ok=True)
    (processes / str(os.getpid())).touch()
    capacity = 3 + len(list(processes.iterdir())) * int(os.environ["GROWTH"])
    forward = MLP.forward

    def limited(self, module, batch):
        if len(batch.inputs) > capacity:
            raise MemoryError
        return forward(self, module, batch)

    monkeypatch.setattr(MLP, "forward", limited)
"""


@pytest.fixture
def several(project: Project) -> Project:
    """A project whose processes have memory for 3 samples, and GROWTH for each one so far."""
    project.write("configs/small.yaml", CONFIG.replace("131072", "16"))
    project.write("conftest.py", MODEL)
    project.write("test_it.py", BENCHMARKS.replace('"small"', '"small", ranks="any"'))
    return project


@pytest.mark.exhaustive
def test_launches_that_fit_other_sizes_are_not_merged(several: Project) -> None:
    """The benchmark fails, and names them."""
    run = several.run("-k", "fitted", "--launches=2", env={"GROWTH": "1"})
    (record,) = run.summary["benchmarks"]
    assert run.code == 1
    assert (record["outcome"], record["reason"]) == (
        "failed",
        "the launches differ, state a number: training.batch_size=4, 5",
    )


@pytest.mark.exhaustive
def test_several_ranks_do_not_fit_a_batch(several: Project) -> None:
    """Unsupported, with what is allowed; the benchmark after it is measured on the same ranks."""
    run = several.run("--world-size=2", env={"GROWTH": "9"})
    fitted, healthy = run.summary["benchmarks"]
    assert fitted["outcome"] == "unsupported"
    assert "allowed on 2 ranks: a number, or data.global_batch_size" in fitted["reason"]
    assert healthy["outcome"] == "measured"
