"""Sessions that fit the batch size, beside a model that takes as much memory as it is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.support.exhaustive import shown
from tests.support.messages import mentions

if TYPE_CHECKING:
    from tests.support.projects import Project, Run

CONFIG = """
model: {name: mlp, hidden_sizes: [16]}
data: {source: synthetic}
distributed: {threads: 1}
training: {steps: 6, learning_rate: 0.1}
"""

CONFTEST = """
import os

import pytest
import torch

from gpubench_plugin.workloads.mlp import MLP

ERRORS = {
    "cuda": lambda: torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
    "cpu": lambda: RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to"),
    "python": MemoryError,
}


@pytest.fixture(autouse=True)
def memory(monkeypatch):
    capacity, kind = int(os.environ["CAPACITY"]), os.environ.get("KIND", "cuda")
    forward = MLP.forward

    def limited(self, module, batch):
        if len(batch.inputs) > capacity:
            raise ERRORS[kind]()
        return forward(self, module, batch)

    monkeypatch.setattr(MLP, "forward", limited)
"""

TRAINING = """
import pytest
import torch


@pytest.mark.gpubench(config="small")
@pytest.mark.parametrize(
    "size", [pytest.param(n, marks=pytest.mark.gpubench_set(f"training.batch_size={n}"))
             for n in ("auto", 11)]
)
def test_train(gpubench, gpubench_config, trainer, model, size):
    gpubench.record("configured", gpubench_config.training.batch_size)
    gpubench.record("drawn", torch.rand(()).item())
    weights = []

    def keep_first():
        if not weights:
            weights.append(sum(p.detach().double().sum() for p in model.parameters()).item())

    gpubench.record("weights", lambda: weights[0])
    gpubench(trainer, setup=keep_first)
"""


@pytest.fixture
def fitting(project: Project) -> Project:
    """A project that trains a small model, with the memory that CAPACITY states."""
    project.write("configs/small.yaml", CONFIG)
    project.write("conftest.py", CONFTEST)
    project.write("test_it.py", TRAINING)
    return project


def records(run: Run) -> dict[str, dict[str, Any]]:
    """The record of each benchmark by its parameter, or by its function."""
    return {
        b["params"].get("size", b["name"].partition("[")[0]): b for b in run.summary["benchmarks"]
    }


@pytest.mark.parametrize("kind", shown("cuda", exhaustively=("cpu", "python")))
def test_the_fitted_batch_is_what_is_measured_and_recorded(fitting: Project, kind: str) -> None:
    """However memory runs out: the number stands in the configuration, with the trials beside."""
    run = fitting.run("-k", "auto", env={"CAPACITY": "11", "KIND": kind, "COLUMNS": "200"})

    record = records(run)["auto"]
    assert record["outcome"] == "measured", record["reason"]
    assert record["work"]["samples"] == 11
    assert record["configuration"]["training"]["batch_size"] == 11
    assert record["settings"]["training.batch_size"] == 11
    assert record["metrics"]["configured"]["value"] == 11
    fit = record["correctness"]["batch_fit"]
    assert (fit["samples"], fit["bound_by"]) == (11, "memory")
    assert {"samples": 12, "fits": False} in fit["trials"]
    assert "first_step_s" not in record["metrics"]
    assert mentions(run.out, "training.batch_size=11 fitted: ", "memory")
    trials = [line for line in run.journal if line["event"] == "batch_trial"]
    assert [trial["samples"] for trial in trials] == [1, 2, 4, 8, 16, 12, 10, 11]


@pytest.mark.parametrize(
    "keys",
    [
        (),
        ("--model.compile=default", "--model.compile_backend=aot_eager"),
        ("--data.source=digits", "--training.optimizer=adamw", "--training.scheduler=cosine"),
        ("--precision=amp", "--measure.check=false"),
    ],
    ids=["plain", "compiled", "digits", "amp"],
)
def test_the_trials_leave_nothing_behind(fitting: Project, keys: tuple[str, ...]) -> None:
    """Losses, weights, random numbers and memory are those with the number written down."""
    run = fitting.run(*keys, env={"CAPACITY": "11"})

    fitted, stated = records(run)["auto"], records(run)["11"]
    assert fitted["outcome"] == stated["outcome"] == "measured", run.out
    fitted["correctness"].pop("batch_fit")
    assert fitted["correctness"] == stated["correctness"]
    assert fitted["settings"] == stated["settings"]
    for name in ("drawn", "weights", "loss_first", "loss_last"):
        assert fitted["metrics"].get(name) == stated["metrics"].get(name), name
    peaks = [record["metrics"]["peak_memory_bytes"]["value"] for record in (fitted, stated)]
    assert peaks[0] == peaks[1]


def test_a_compiled_step_is_of_fixed_shapes(fitting: Project) -> None:
    """The compiler does not see the sizes of the trials, after which shapes would be dynamic."""
    fitting.write(
        "conftest.py",
        CONFTEST
        + """
import torch._dynamo

INPUTS = []


def seen(graph, inputs):
    INPUTS.append([type(one).__name__ for one in inputs])
    return graph.forward


torch._dynamo.register_backend(seen, name="seen")


@pytest.fixture(autouse=True)
def fixed_shapes():
    INPUTS.clear()
    yield
    assert INPUTS and not any("SymInt" in kinds or "int" in kinds for kinds in INPUTS), INPUTS
""",
    )
    keys = ("--model.compile=default", "--model.compile_backend=seen")
    run = fitting.run("-k", "auto", *keys, env={"CAPACITY": "11"})
    assert run.code == 0, run.out
    assert records(run)["auto"]["work"]["samples"] == 11


def test_the_search_ends_with_the_data(fitting: Project) -> None:
    """No batch is larger than an epoch of the 1,438 digits."""
    run = fitting.run("-k", "auto", "--data.source=digits", env={"CAPACITY": "100000"})
    fit = records(run)["auto"]["correctness"]["batch_fit"]
    assert (fit["samples"], fit["bound_by"]) == (1438, "data")


def test_the_reference_must_fit_as_well(fitting: Project) -> None:
    """What the check needs counts, unless the check is off."""
    fitting.write(
        "conftest.py",
        CONFTEST
        + """
from gpubench_plugin.training.reference import Fp32Reference


@pytest.fixture(autouse=True)
def reference_memory(monkeypatch):
    backward = Fp32Reference._backward

    def limited(self, module, batches):
        if len(batches[0].inputs) > 5:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return backward(self, module, batches)

    monkeypatch.setattr(Fp32Reference, "_backward", limited)
""",
    )
    checked = fitting.run("-k", "auto", "--tag=a", env={"CAPACITY": "11"})
    assert records(checked)["auto"]["work"]["samples"] == 5
    reason = next(line["reason"] for line in checked.journal if line.get("fits") is False)
    assert mentions(reason, "not the fp32 reference", "measure.check=false")
    checked.directory.rename(fitting.path / "checked")

    unchecked = fitting.run("-k", "auto", "--measure.check=false", env={"CAPACITY": "11"})
    assert records(unchecked)["auto"]["work"]["samples"] == 11


def test_the_census_after_the_timing_must_fit_as_well(fitting: Project) -> None:
    """A step that is looked into keeps tensors longer; without memory it would leave no census."""
    fitting.write(
        "conftest.py",
        CONFTEST
        + """
from gpubench_plugin.measure.probes import operations


@pytest.fixture(autouse=True)
def census_memory(monkeypatch):
    run = operations.Census.__torch_dispatch__

    def limited(self, operation, types, args=(), kwargs=None):
        if any(isinstance(a, torch.Tensor) and a.shape[:1].numel() in range(6, 12) for a in args):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return run(self, operation, types, args, kwargs)

    monkeypatch.setattr(operations.Census, "__torch_dispatch__", limited)
""",
    )
    keys = ("--model.hidden_sizes=[32]", "--model.classes=32")
    record = records(fitting.run("-k", "auto", *keys, env={"CAPACITY": "11"}))["auto"]
    assert record["work"]["samples"] == 5
    assert record["correctness"]["product_dtypes"] is not None


def test_a_model_that_does_not_fit_at_all_is_out_of_memory(fitting: Project) -> None:
    """The outcome is ``oom``; the benchmark after it is measured."""
    fitting.write(
        "test_it.py",
        TRAINING + "\n\ndef test_healthy(gpubench):\n    gpubench(lambda: sum(range(99)))\n",
    )
    run = fitting.run("-k", "auto or healthy", env={"CAPACITY": "0"})
    fitted = records(run)["auto"]
    assert fitted["outcome"] == "oom"
    said = ("training.batch_size=auto: ", "size 1 ", "OutOfMemoryError")
    assert mentions(fitted["reason"], *said)
    assert records(run)["test_healthy"]["outcome"] == "measured"


def test_a_loss_that_does_not_fall_fails_the_benchmark_and_no_trial(fitting: Project) -> None:
    """The benchmark's own check judges the fitted size."""
    keys = ("--training.loss_drop=0.5", "--training.learning_rate=1e-9")
    run = fitting.run("-k", "auto", *keys, env={"CAPACITY": "3"})
    fitted = records(run)["auto"]
    assert fitted["outcome"] == "failed"
    assert "training.loss_drop=0.5" in fitted["reason"]


def test_a_model_with_batch_normalization_starts_with_two_samples(fitting: Project) -> None:
    """One sample may leave it nothing to normalize."""
    fitting.write("configs/small.yaml", CONFIG.replace("mlp, hidden_sizes: [16]", "cnn"))
    fitting.write("conftest.py", CONFTEST.replace("mlp import MLP", "cnn import CNN as MLP"))
    run = fitting.run("-k", "auto", "--data.source=digits", env={"CAPACITY": "3"})
    fit = records(run)["auto"]["correctness"]["batch_fit"]
    assert [trial["samples"] for trial in fit["trials"]] == [2, 4, 3]


REFUSED = """
import pytest

config = pytest.mark.gpubench(config="small")
auto = pytest.mark.gpubench_set("training.batch_size=auto")


@config
@auto
def test_inference(gpubench, inference):
    gpubench(inference)


@config
@pytest.mark.gpubench_set("training.batch_size=auto", "inference.batch_size=4")
def test_stated_inference(gpubench, inference):
    gpubench(inference)


@config
@auto
@pytest.mark.gpubench_set("training.target_loss=0.1", "data.source=digits")
def test_convergence(gpubench, convergence):
    gpubench(convergence, setup=convergence.restart)


@config
@auto
def test_data(gpubench, data):
    gpubench(lambda: next(data))


class TestOwnData:
    @pytest.fixture
    def data(self, data):
        from gpubench_plugin.training.data.synthetic import Synthetic

        yield Synthetic(data._workload, batch_size=2, device=data._device)

    @config
    @auto
    def test_own_data(self, gpubench, trainer):
        gpubench(trainer)


@auto
def test_unconcerned(gpubench, gpubench_config):
    gpubench(lambda: sum(range(99)))
"""


def test_what_cannot_be_fitted_is_refused_with_what_to_set(fitting: Project) -> None:
    """Unsupported where no number would be fitted, and nothing else of the session is touched."""
    fitting.write("test_it.py", REFUSED)
    run = fitting.run(env={"CAPACITY": "8"})
    ended = {name: (b["outcome"], b["reason"]) for name, b in records(run).items()}
    only = ("training.batch_size=auto: ", "only", "fixture trainer")
    for name in ("test_convergence", "test_data"):
        assert ended[name][0] == "unsupported"
        assert mentions(ended[name][1], *only)
    assert ended["test_inference"] == ("measured", "")
    assert records(run)["test_inference"]["work"]["samples"] == 8  # as CAPACITY says
    assert records(run)["test_stated_inference"]["work"]["samples"] == 4
    assert ended["test_stated_inference"] == ("measured", "")
    assert ended["test_own_data"][0] == "unsupported"
    assert "the fixture 'data' is this project's own" in ended["test_own_data"][1]
    assert ended["test_unconcerned"] == ("measured", "")


def test_a_run_with_a_fitted_size_is_resumed(fitting: Project) -> None:
    """What was measured is kept: the request is the same, whatever it was fitted to."""
    first = fitting.run("-k", "auto", env={"CAPACITY": "11"})
    again = fitting.run("-k", "auto", f"--resume={first.directory}", env={"CAPACITY": "11"})
    assert again.code == 0, again.out + again.err
    assert "1 already measured" in again.out
    assert records(again)["auto"]["work"]["samples"] == 11
