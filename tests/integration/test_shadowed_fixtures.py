"""Fixtures of a project that have the names of gpubench's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.messages import mentions

if TYPE_CHECKING:
    from tests.support.projects import Project

CONFTEST = """
import pytest

@pytest.fixture
def model():
    return 3

@pytest.fixture
def inference():
    return "the project's"
"""

TESTS = """
import pytest
from torch import nn

def test_ordinary(model):
    assert model == 3

def test_own(gpubench, model, inference):
    assert (model, inference) == (3, "the project's")
    gpubench(lambda: sum(range(1000)))

@pytest.mark.gpubench(config="mlp")
def test_shadowed(gpubench, trainer):
    gpubench(trainer)

@pytest.mark.parametrize("workload", ["small"])
@pytest.mark.gpubench(config="mlp")
def test_parameter(gpubench, workload, data):
    gpubench(lambda: next(data))

class TestRanks:
    @pytest.fixture
    def world_size(self):
        return 4

    def test_ranks(self, gpubench):
        gpubench(lambda: sum(range(1000)))

class TestPrecision:
    @pytest.fixture
    def precision(self):
        from gpubench_plugin.core.catalog import load
        return load("precision", "bf16")()

    def test_precision(self, gpubench, precision):
        gpubench(lambda: sum(range(1000)))

class TestDevice:
    @pytest.fixture
    def torch_device(self):
        return "cpu"

    def test_device(self, gpubench, torch_device):
        gpubench(lambda: sum(range(1000)))

class TestOverride:
    @pytest.fixture
    def model(self, workload):
        import torch
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(0)
            return workload.build()

    @pytest.mark.gpubench(config="mlp")
    @pytest.mark.gpubench_set("inference.batch_size=4")
    def test_override(self, gpubench, trainer, inference):
        gpubench(trainer)
"""


def test_names_of_a_project_stay_its_own(project: Project) -> None:
    """They are read in place of gpubench's only if of their kind; else the message names them."""
    project.write("conftest.py", CONFTEST)
    project.write("test_it.py", TESTS)

    run = project.run()

    reasons = {
        b["name"].partition("[")[0].removeprefix("test_"): b["reason"]
        for b in run.summary["benchmarks"]
        if b["outcome"] != "measured"
    }
    assert reasons.keys() == {"shadowed", "parameter", "ranks", "precision", "device"}
    said = ("'model' has a value of type int", "reads a torch.nn.Module", "rename")
    assert mentions(reasons["shadowed"], *said)
    assert "parameter 'workload' has a value of type str" in reasons["parameter"]
    assert "'world_size' has 4" in reasons["ranks"]
    assert "'precision' has 'bf16'" in reasons["precision"]
    assert "'torch_device' has a value of type str" in reasons["device"]
    assert "3 passed" in run.out
