"""A workload, a precision, a metric, a parallelism and a format, each a file of somebody else."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpubench_plugin.cli.main import main
from tests.support.projects import InlineProject, Run

TESTS = Path(__file__).parents[1]

WORKLOAD = """
from torch import nn, randn

from gpubench_plugin.workloads import Batch, Workload


class Sum(Workload):
    '''Fits the sum of four numbers.'''

    def build(self):
        return nn.Linear(4, 1)

    def synthetic_batch(self, size, *, device, generator=None):
        inputs = randn(size, 4, device=device, generator=generator)
        return Batch(inputs, inputs.sum(1, keepdim=True))

    def forward(self, module, batch):
        return module(batch.inputs)

    def loss(self, module, batch):
        error = self.forward(module, batch).float() - batch.targets.float()
        return error.square().mean()
"""
CONFIGURATION = """
model:
  name: toy-workload
training:
  batch_size: 16
  learning_rate: 0.1
  momentum: 0.0
  loss_drop: 0.5
precision:
  init_scale: 128.0
"""
PRECISION = """
import torch

from gpubench_plugin.precision import Precision


class ByAutocast(Precision):
    '''Products in bf16.'''

    name = "toy-precision"
    compute_dtype = "bf16"
    where = "devices with autocast"

    def forward_context(self, device):
        return torch.autocast(device.type, dtype=torch.bfloat16)
"""
METRIC = """
from gpubench_plugin import Metric
from gpubench_plugin.measure.metrics import metrics


@metrics(toy_calls="Timed calls of the step")
def toy_metric(observation):
    '''How often the step was called.'''
    calls = float(observation.samples.calls)
    yield Metric(name="toy_calls", value=calls, unit="count", better="higher")
"""
PARALLELISM = """
from contextlib import contextmanager

import torch
from torch import distributed

from gpubench_plugin.training.parallelism import Parallelism


class Averaging(Parallelism):
    '''Each gradient averaged by itself.'''

    name = "toy-parallelism"
    exchanges = True

    @torch.no_grad()
    def wrap(self, module):
        if self.group.world.size > 1:
            for tensor in (*module.parameters(), *module.buffers()):
                distributed.broadcast(tensor, src=0)
            for parameter in module.parameters():
                if parameter.requires_grad:
                    parameter.register_post_accumulate_grad_hook(self.average)
        return module

    def average(self, parameter):
        if self.exchanges:
            distributed.all_reduce(parameter.grad)
            parameter.grad /= self.group.world.size

    @contextmanager
    def no_sync(self, module):
        self.exchanges = False
        yield
        self.exchanges = True
"""
FORMAT = """
from gpubench_plugin.reports.formats import Format


@Format
def toy_format(comparisons, page):
    '''A line for each verdict.'''
    verdicts = [verdict for comparison in comparisons for verdict in page.verdicts(comparison)]
    lines = [f"- {v.id!a} {v.metric!a}: {v.kind}" for v in verdicts]
    return "\\n".join(["toy", *lines, ""])
"""
ENTRY_POINTS = """
[gpubench.workloads]
toy-workload = toy_workload:Sum
[gpubench.precision]
toy-precision = toy_precision:ByAutocast
[gpubench.metrics]
toy-metric = toy_metric:toy_metric
[gpubench.parallelism]
toy-parallelism = toy_parallelism:Averaging
[gpubench.formats]
toy-format = toy_format:toy_format
"""
DISTRIBUTION = {
    "toy_workload.py": WORKLOAD,
    "toy_precision.py": PRECISION,
    "toy_metric.py": METRIC,
    "toy_parallelism.py": PARALLELISM,
    "toy_format.py": FORMAT,
    "toys-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: toys\nVersion: 1.0\n",
    "toys-1.0.dist-info/entry_points.txt": ENTRY_POINTS,
}

LISTED = {
    ("workloads", "toy-workload", "Fits the sum of four numbers", "everywhere"),
    ("precision", "toy-precision", "Products in bf16", "devices with autocast"),
    ("metrics", "toy_calls", "Timed calls of the step", "everywhere"),
    ("parallelism", "toy-parallelism", "Each gradient averaged by itself", "any number of ranks"),
    ("formats", "toy-format", "A line for each verdict", "everywhere"),
}

BENCHMARK = """
import pytest

@pytest.mark.gpubench(config="toy-workload", ranks="any")
def test_sum(gpubench, trainer):
    gpubench(trainer.step, samples=trainer.samples_per_step)
"""


@pytest.fixture(scope="module")
def distribution(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the newcomers, as an installer leaves it."""
    folder = tmp_path_factory.mktemp("installed")
    for name, text in DISTRIBUTION.items():
        file = folder / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    return folder


@pytest.fixture(scope="module")
def installed(distribution: Path) -> Iterator[None]:
    """The newcomers are installed for this process and those that it starts."""
    before = os.environ.get("PYTHONPATH", "")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(distribution)
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(distribution), before))))
        yield
    for name in DISTRIBUTION:
        sys.modules.pop(name.removesuffix(".py"), None)


@pytest.fixture(scope="module")
def measured(installed: None, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of the newcomers on two ranks."""
    project = InlineProject(tmp_path_factory.mktemp("project"))
    project.write("configs/toy-workload.yaml", CONFIGURATION)
    project.write("test_own.py", BENCHMARK)
    chosen = ("--precision=toy-precision", "--distributed.parallelism=toy-parallelism")
    run = project.run(*chosen, "--world-size=2")
    assert run.code == 0, run.out + run.err
    return run


@pytest.mark.usefixtures("installed")
def test_newcomers_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """``gpubench list`` has a line for each with its meaning and place, of formats when asked."""
    rows: list[dict[str, Any]] = []
    for kinds in ((), ("formats",)):
        assert main(["list", "--format=json", *kinds]) == 0
        rows += json.loads(capsys.readouterr().out)["components"]
    assert {tuple(row.values()) for row in rows if row["name"].startswith("toy")} == LISTED


def test_newcomers_are_measured_together(measured: Run) -> None:
    """The workload trains as precision and parallelism say, and the metric is in the record."""
    (record,) = measured.summary["benchmarks"]
    assert (record["name"], record["outcome"]) == ("test_sum[toy-precision-ws2]", "measured")
    configuration = record["configuration"]
    assert configuration["model"]["name"] == "toy-workload"
    assert configuration["distributed"]["parallelism"] == "toy-parallelism"
    (calls,) = (
        sum(line["samples"]["block_calls"]) for line in measured.journal if "samples" in line
    )
    assert calls > 0
    assert record["metrics"]["toy_calls"] == {"value": calls, "unit": "count", "better": "higher"}
    assert record["correctness"]["differs_from_one_process"] is None
    assert record["correctness"]["reference"]["loss_error"] > 0  # bf16 rounds


@pytest.mark.usefixtures("installed")
def test_newcomers_are_compared(measured: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """``gpubench compare`` judges the metric by a limit, and prints in the format."""
    run = str(measured.directory)
    limit = "--limit=toy_calls=1%"
    assert main(["compare", run, run, limit, "--format=toy-format", "--registry=none"]) == 0
    head, *lines = capsys.readouterr().out.splitlines()
    assert head == "toy"
    assert "- 'test_own.py::test_sum[toy-precision-ws2]' 'toy_calls': unchanged" in lines
