"""gpubench.train on two ranks: the training of one process with the global batch."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.support.projects import Project

TESTS = """
import pytest, torch
from torch import nn
from torch.nn.functional import cross_entropy

GENERATOR = torch.Generator().manual_seed(5)
INPUTS = torch.randn(8, 8, generator=GENERATOR)
TARGETS = torch.randint(4, (8,), generator=GENERATOR)

def net():
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))

def shares(process_group):
    world = process_group.world
    return INPUTS.chunk(world.size)[world.rank], TARGETS.chunk(world.size)[world.rank]

@pytest.mark.gpubench(ranks="any")
def test_ddp(gpubench, precision, process_group):
    gpubench.train(net(), shares(process_group), cross_entropy)

@pytest.mark.gpubench_set("training.accumulation_steps=2")
@pytest.mark.gpubench(ranks="any")
def test_accumulated(gpubench, precision, process_group):
    adam = lambda parameters: torch.optim.Adam(parameters, lr=0.01)
    gpubench.train(net, shares(process_group), cross_entropy, optimizer=adam)

@pytest.mark.gpubench_set("distributed.parallelism=fsdp2")
@pytest.mark.gpubench(ranks="any")
def test_fsdp2(gpubench, precision, process_group):
    gpubench.train(net(), shares(process_group), cross_entropy)

class Stops(torch.optim.SGD):
    calls = 0

    def step(self, *args, **options):
        self.calls += 1
        return super().step(*args, **options) if self.calls < 25 else None

@pytest.mark.gpubench(ranks=2)
def test_ddp_stops(gpubench, process_group):
    gpubench.train(net(), shares(process_group), cross_entropy, optimizer=lambda p: Stops(p, 0.01))

@pytest.mark.gpubench_set("distributed.parallelism=fsdp2")
@pytest.mark.gpubench(ranks=2)
def test_fsdp2_stops(gpubench, process_group):
    gpubench.train(net(), shares(process_group), cross_entropy, optimizer=lambda p: Stops(p, 0.01))

@pytest.mark.gpubench(ranks=2)
def test_drawn(gpubench):
    gpubench.train(net, lambda n: (torch.randn(n, 8), torch.randint(4, (n,))), cross_entropy)

@pytest.mark.gpubench(ranks=2)
def test_sum(gpubench, process_group):
    gpubench.train(net(), shares(process_group), nn.CrossEntropyLoss(reduction="sum"))

@pytest.mark.gpubench(ranks=2)
def test_other_sizes(gpubench, process_group):
    kept = 4 - process_group.world.rank
    inputs, targets = shares(process_group)
    gpubench.train(net(), (inputs[:kept], targets[:kept]), cross_entropy)
"""
ONE_SIDED = """
@pytest.mark.gpubench(ranks=2)
def test_other_shapes(gpubench, process_group):
    inputs, targets = shares(process_group)
    gpubench.train(net(), (inputs[:, process_group.world.rank :], targets), cross_entropy)
"""


@pytest.mark.exhaustive
@pytest.mark.slow
def test_two_ranks_are_one_process_with_the_global_batch(project: Project) -> None:
    """Losses and gradients agree; what would make them differ is refused."""
    project.write("test_it.py", TESTS)

    alone = project.run("--world-size=1", "--experiment=alone")
    together = project.run("--world-size=2")

    summaries = [json.loads(file.read_text()) for file in alone.results.glob("*/*/summary.json")]
    found = {b["name"]: b for summary in summaries for b in summary["benchmarks"]}
    assert together.code == 1
    for name in ("ddp", "fsdp2"):
        stopped = found[f"test_{name}_stops[ranks2]"]
        assert (
            "no update of 0.bias; no update of 0.weight" in stopped["correctness"]["changed_work"]
        )
    for name in ("ddp", "accumulated", "fsdp2"):
        one, two = (found[f"test_{name}[fp32{ranks}]"] for ranks in ("", "-ranks2"))
        assert (one["outcome"], two["outcome"]) == ("measured", "measured"), two["reason"]
        assert "changed_work" not in {*one["flags"], *two["flags"]}
        assert one["work"]["samples"] == two["work"]["samples"]
        assert two["correctness"]["differs_from_one_process"] is None
        for of in (lambda b: b["correctness"]["losses"], _norms):
            assert of(two) == pytest.approx(of(one), rel=1e-5)
    assert found["test_drawn[ranks2]"]["outcome"] == "measured"
    added = found["test_sum[ranks2]"]
    assert added["outcome"] == "failed"
    assert "is the sum of those of its samples, but 2 ranks average" in added["reason"]
    uneven = found["test_other_sizes[ranks2]"]
    assert uneven["outcome"] == "failed"
    assert "allowed: equally many on all ranks" in uneven["reason"]


@pytest.mark.exhaustive
def test_a_batch_that_does_not_fit_fails_its_rank(project: Project) -> None:
    """Alone, and named."""
    project.write("test_it.py", TESTS + ONE_SIDED)

    (faulty,) = project.run("--world-size=2", "-k", "other_shapes").summary["benchmarks"]

    assert faulty["outcome"] == "failed"
    assert "float32[4, 7]" in faulty["reason"]


def _norms(benchmark: dict[str, Any]) -> list[float]:
    norms: list[float] = benchmark["correctness"]["reference"]["gradient_norms"]
    return norms


def test_a_model_by_its_name_is_measured_on_ranks(project: Project) -> None:
    """Ranks that pytest starts, and those of torchrun, collect the same module by the option."""
    net = "from torch import nn\n\n\ndef net():\n    return nn.Sequential(nn.Linear(8, 4))\n"
    project.write("nets.py", net)
    quick = "--measure.profile=quick"
    option = "--measure=nets:net --train --batch=4"

    gang = project.run(option, "--world-size=1,2", quick)
    ids = {one["id"] for one in gang.summary["benchmarks"]}
    torchrun = project.run(option, quick, "--results-dir=others", ranks=2)

    assert (gang.code, torchrun.code) == (0, 0), gang.out + torchrun.out
    alone, together = (f"test_net.py::test_net_train[b4-fp32{end}]" for end in ("", "-ranks2"))
    assert ids == {alone, together}
    (summary,) = (project.path / "others").glob("*/*/summary.json")
    assert [one["id"] for one in json.loads(summary.read_text())["benchmarks"]] == [together]
