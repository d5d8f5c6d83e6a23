"""What is asked of a step after its timing, in a user's project."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.projects import InlineProject

if TYPE_CHECKING:
    from tests.support.projects import Run

BENCHMARKS = """
import itertools, threading
import pytest, torch
from torch import nn
from torch.nn.functional import cross_entropy

def net(*more):
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), *more, nn.Linear(256, 10))

BATCH = torch.randn(32, 64), torch.randint(10, (32,))

class StopsUpdating(torch.optim.SGD):
    calls = 0

    def step(self, *args, **options):
        self.calls += 1
        if self.calls <= 25:
            return super().step(*args, **options)

class Later(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.calls = nn.Linear(64, 256), nn.Linear(256, 10), 0

    def forward(self, inputs):
        self.calls += 1
        hidden = self.a(inputs)
        return self.b(hidden.detach() if self.calls > 60 else hidden)

def test_stops_updating(gpubench):
    gpubench.train(net(), BATCH, cross_entropy, optimizer=lambda p: StopsUpdating(p, lr=0.01))

def test_lacks_gradient(gpubench):
    gpubench.train(Later(), BATCH, cross_entropy)

def test_one_sample(gpubench):
    calls = itertools.count()
    def loss(outputs, targets):
        samples = 32 if next(calls) < 40 else 1
        return cross_entropy(outputs[:samples], targets[:samples])
    gpubench.train(net(), BATCH, loss)

def test_samples_that_vary(gpubench):
    calls = itertools.count()
    def loss(outputs, targets):
        call = next(calls)
        samples = 32 if call < 60 else 1 + call % 7
        return cross_entropy(outputs[:samples], targets[:samples])
    gpubench.train(net(), BATCH, loss)

def test_less_inference(gpubench):
    class Cached(Later):
        def forward(self, inputs):
            self.calls += 1
            if self.calls < 5:
                self.outputs = self.b(self.a(inputs))
            return self.outputs
    gpubench.infer(Cached(), BATCH[0])

def test_variants(gpubench):
    calls = itertools.count()
    b = lambda: torch.ones(3) if next(calls) < 3 else torch.zeros(3)
    gpubench.compare({"a": lambda: torch.ones(3), "b": b})

@pytest.mark.gpubench_set("measure.check=false")
def test_unasked(gpubench):
    gpubench.train(net(), BATCH, cross_entropy, optimizer=lambda p: StopsUpdating(p, lr=0.01))

@pytest.mark.gpubench_set("training.scheduler=cosine", "training.schedule_steps=25")
def test_healthy_schedule(gpubench):
    gpubench.train(net(nn.Dropout(0.5)), BATCH, cross_entropy)

@pytest.mark.gpubench_set("training.accumulation_steps=3", "training.gradient_clipping=1.0")
def test_healthy_accumulation(gpubench):
    gpubench.train(net(), BATCH, cross_entropy, optimizer="adamw")

@pytest.mark.gpubench_set("training.fused=true")
def test_healthy_fused(gpubench):
    gpubench.train(net(), BATCH, cross_entropy)

@pytest.mark.parametrize("precision", ["amp"], indirect=True)
@pytest.mark.gpubench_set("precision.growth_interval=1")
def test_healthy_scaler(gpubench, precision):
    gpubench.train(net(), BATCH, cross_entropy)

class LayerDrop(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(64, 64), nn.Linear(64, 10)
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(12))

    def forward(self, inputs):
        hidden = self.first(inputs)
        for layer in self.layers:
            if not self.layers_used or torch.rand(()) > 0.3:
                hidden = hidden + layer(hidden)
        self.layers_used = True
        return self.last(hidden)

    layers_used = False

LOW_RATE = "training.learning_rate=0.001"

@pytest.mark.gpubench_set("measure.check_steps=1", "training.loss_drop=null", LOW_RATE)
def test_healthy_depth(gpubench):
    gpubench.train(LayerDrop(), BATCH, cross_entropy)

def test_healthy_variants(gpubench):
    state = {"a": torch.zeros(3), "b": torch.zeros(3)}
    gpubench.compare({name: lambda t=t: t.add_(1.0) for name, t in state.items()})

def test_healthy_inference(gpubench):
    gpubench.infer(net().eval(), BATCH[0])

@pytest.mark.gpubench_set("model.compile=default")
def test_healthy_compiled(gpubench):
    gpubench.train(net(), BATCH, cross_entropy)

DONE = threading.Event()  # which never is: the threads end with the process

def test_thread(gpubench):
    started = []
    def start():
        started.append(threading.Thread(target=DONE.wait, daemon=True, name="left"))
        started[-1].start()
    start()
    def step():
        if len(started) == 1:
            start()
        return sum(range(100))
    gpubench(step)
"""

CHANGED = {
    "stops_updating": "no update of 0.bias",
    "lacks_gradient": "no gradient of a.bias; no gradient of a.weight",
    "one_sample": "11 values in the loss, 352 before",
    "samples_that_vary": " values in the loss, 352 before",
    "less_inference": "0 FLOPs, ",
    "variants": "variant 'b' disagrees with 'a'",
}
"""What differs, by benchmark."""


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """All benchmarks, by name."""
    project = InlineProject(tmp_path_factory.mktemp("changed"))
    project.write("test_work.py", BENCHMARKS)
    options = ("--measure.by=steps", "--measure.steps=80", "--measure.warmup_s=0.001")
    run: Run = project.run("test_work.py", *options, quick=False)
    benchmarks = run.summary["benchmarks"]
    return {b["name"].partition("[")[0].removeprefix("test_"): b for b in benchmarks}


def test_other_work_after_the_timing_is_a_doubt(measured: dict[str, Any]) -> None:
    """And no outcome: the number stands, and the record says what differs."""
    for name, difference in CHANGED.items():
        assert measured[name]["outcome"] == "measured", measured[name]["reason"]
        assert "changed_work" in measured[name]["flags"], name
        assert difference in measured[name]["correctness"]["changed_work"]


def test_what_varies_by_itself_is_none(measured: dict[str, Any]) -> None:
    """Schedules, accumulation, scalers, dropped layers, results that move, compiled models."""
    healthy = {name: b for name, b in measured.items() if name not in CHANGED}
    assert {name: b["reason"] for name, b in healthy.items() if b["outcome"] != "measured"} == {}
    assert [name for name, b in healthy.items() if "changed_work" in b["flags"]] == []


def test_threads_that_calls_leave_are_noted(measured: dict[str, Any]) -> None:
    """By their names, which one before may have; no other benchmark leaves one."""
    assert measured["thread"]["correctness"]["left_running"] == ["thread left"]
    assert [name for name, b in measured.items() if "left_running" in b["flags"]] == ["thread"]
