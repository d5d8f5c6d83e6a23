"""Benchmarks on real data: convergence, evaluation, and images through workers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.support.messages import mentions
from tests.support.projects import InlineProject

if TYPE_CHECKING:
    from tests.support.projects import Run

REGRESSION = """
    model: {name: regression, hidden_sizes: [16]}
    data: {source: diabetes}
    training: {optimizer: adamw, learning_rate: 0.01, batch_size: 32}
    measure: {by: steps, steps: 2, warmup_iterations: 1, warmup_max_s: 0.001}
"""
IMAGES = """
    model: {name: mlp}
    data: {source: images, path: PATH, workers: 1}
    training: {batch_size: 8, loss_drop: 1.0}
    measure: {by: steps, steps: 10, warmup_iterations: 1, warmup_max_s: 0.001, check: false}
"""
BENCHMARKS = """
    import multiprocessing

    import pytest

    target = pytest.mark.gpubench_set("training.target_loss=0.9", "training.evaluate_every=3")


    @pytest.mark.gpubench(config="regression")
    @pytest.mark.precision("fp32", "bf16")
    @target
    def test_reached(gpubench, convergence):
        convergence.observers.append(lambda milestone: None)
        gpubench(convergence.step, setup=convergence.restart)


    @pytest.mark.gpubench(config="regression")
    @pytest.mark.gpubench_set("training.target_loss=0.01", "training.max_steps=4")
    def test_unreachable(gpubench, convergence):
        gpubench(convergence.step, setup=convergence.restart)


    @pytest.mark.gpubench(config="images")
    @pytest.mark.gpubench_set("training.evaluate=true")
    def test_images(gpubench, trainer):
        gpubench(trainer.step, samples=trainer.samples_per_step)


    @pytest.mark.gpubench(config="images")
    def test_failing_in_the_middle(gpubench, data):
        next(data)
        gpubench(lambda: 1 / 0)


    def test_no_worker_is_left():
        assert multiprocessing.active_children() == []


    @pytest.mark.gpubench(config="images")
    @pytest.mark.gpubench_set("model.classes=2")
    def test_few_classes(gpubench, trainer):
        gpubench(trainer.step)
"""


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One session of all of them."""
    folder = tmp_path_factory.mktemp("project")
    pictures = folder / "cifar-10-batches-bin"
    pictures.mkdir()
    for name in ("data_batch_1.bin", "test_batch.bin"):
        records = np.random.default_rng(0).integers(0, 256, (64, 3073), dtype=np.uint8)
        records[:, 0] = np.arange(64) % 10
        (pictures / name).write_bytes(records.tobytes())
    project = InlineProject(folder)
    project.write("configs/regression.yaml", REGRESSION)
    project.write("configs/images.yaml", IMAGES.replace("PATH", str(pictures)))
    project.write("test_it.py", BENCHMARKS)
    return project.run(quick=False)


def found(ended: Run, name: str) -> dict[str, Any]:
    (one,) = (b for b in ended.summary["benchmarks"] if b["name"].startswith(name))
    return one


def values(benchmark: dict[str, Any]) -> dict[str, float]:
    return {name: metric["value"] for name, metric in benchmark["metrics"].items()}


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_record_of_a_convergence(precision: str, ended: Run) -> None:
    """Time, steps and epochs to the target, the final loss, its curve and the parity are there."""
    benchmark = found(ended, f"test_reached[{precision}")
    assert benchmark["outcome"] == "measured", benchmark["reason"]
    metrics, correctness = values(benchmark), benchmark["correctness"]
    last = correctness["evaluations"][-1]
    assert metrics["time_to_target_s"] == metrics["step_time_s"]
    assert metrics["steps_to_target"] == last["step"] == len(correctness["losses"])
    assert metrics["epochs_to_target"] == metrics["steps_to_target"] / 12
    assert metrics["test_loss"] == pytest.approx(last["test_loss"])
    assert last["test_loss"] <= 0.9
    assert all(one["test_loss"] > 0.9 for one in correctness["evaluations"][:-1])
    assert correctness["target"] == "training.target_loss=0.9"
    assert ("parity_error" in metrics) == (precision == "bf16")
    per_call = 32 * metrics["steps_to_target"]
    assert metrics["samples_per_s"] == pytest.approx(per_call / metrics["step_time_mean_s"])
    assert metrics["tflops"] > 0


def test_target_out_of_reach_fails(ended: Run) -> None:
    """A training that ends before its target fails with the best value."""
    benchmark = found(ended, "test_unreachable")
    assert benchmark["outcome"] == "failed"
    assert mentions(benchmark["reason"], "not reached", "training.max_steps=4", "best value")


def test_images_are_loaded_by_workers_and_evaluated_on(ended: Run) -> None:
    """The record has what was loaded and how, the waiting, and the accuracy on held-out images."""
    benchmark = found(ended, "test_images")
    assert benchmark["outcome"] == "measured", benchmark["reason"]
    assert benchmark["correctness"]["data"] == {
        "kind": "cifar-10",
        "classes": 10,
        "samples": 64,
        "held_out": 64,
        "workers": 1,
        "pinned_memory": False,
        "prefetch_factor": 2,
        "persistent_workers": True,
    }
    metrics = values(benchmark)
    assert 0 < metrics["data_wait_fraction"] < 1
    assert 0 <= metrics["test_accuracy"] <= 1
    assert benchmark["correctness"]["evaluation"]["test_loss"] == metrics["test_loss"] > 0
    assert metrics["tflops"] > 0


def test_workers_end_with_a_benchmark_that_fails(ended: Run) -> None:
    """After a benchmark that failed while its workers ran, none of them is left."""
    assert found(ended, "test_failing_in_the_middle")["outcome"] == "failed"
    assert "test_no_worker_is_left" not in ended.out  # it is listed where it failed


def test_model_that_does_not_fit_the_images_is_misconfigured(ended: Run) -> None:
    """Only reading them tells: its reason says what to change, and the other benchmarks run."""
    benchmark = found(ended, "test_few_classes")
    assert benchmark["outcome"] == "misconfigured"
    assert benchmark["reason"].startswith("model.classes=2 is too small; the images have ")
