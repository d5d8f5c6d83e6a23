"""Diffusion inference with its steps split over ranks: measured and refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.core.quality_flags import doubtful_flags
from tests.support.projects import InlineProject

if TYPE_CHECKING:
    from tests.support.projects import Run

SUITE = Path(__file__).parents[2] / "benchmarks" / "distributed" / "test_diffusion.py"

MORE = """
import os
from dataclasses import replace
import pytest

keys = pytest.mark.gpubench_set
pytestmark = pytest.mark.gpubench(config="diffusion", ranks=2)

def run(gpubench, diffusion): gpubench(diffusion.step, setup=diffusion.meet)

@keys("diffusion.denoising_steps=5")
def test_left_over(gpubench, diffusion): run(gpubench, diffusion)
@keys("diffusion.denoising_steps=5", "diffusion.remainder=last")
def test_last_takes_it(gpubench, diffusion): run(gpubench, diffusion)
@keys("distributed.share_device=true")
def test_shared_cpu(gpubench, diffusion): run(gpubench, diffusion)
@keys("distributed.parallelism=ddp")
def test_ddp(gpubench, diffusion): run(gpubench, diffusion)
@keys("diffusion.samples=2", "distributed.failure_grace_s=0.5")
def test_mismatched(gpubench, diffusion):
    header = diffusion._header
    def late(sample, step, *, receiver):
        return replace(header(sample, step, receiver=receiver), step=step + sample)
    if os.environ["RANK"] == "0": diffusion._header = late
    run(gpubench, diffusion)
"""

ENDINGS = {
    "left_over": (
        "unsupported",
        "diffusion.denoising_steps: 5 steps are not divisible by 2 ranks (remainder 1)",
    ),
    "last_takes_it": ("measured", ""),
    "shared_cpu": (
        "unsupported",
        "distributed.share_device applies to cuda and xpu only; remove it on cpu",
    ),
    "ddp": ("unsupported", "distributed.parallelism=ddp: every rank"),
    "mismatched": (
        "failed",
        (
            "rank 1: CorrectnessError: rank 1 (steps 2 to 3) waited for sample 1 before step 2 "
            "(call 1) as float32 1x4x8x8 from rank 0 for rank 1, but received sample 1 before "
            "step 3 (call 1)"
        ),
    ),
}


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A session of two ranks with all of it."""
    project = InlineProject(tmp_path_factory.mktemp("project"))
    project.write("test_a.py", SUITE.read_text())
    project.write("test_b.py", MORE)
    return project.run("-k", "dummy-8-fp32 or test_b", "--world-size=2", "--precision=fp32")


@pytest.mark.parametrize("name", ENDINGS)
def test_each_ends_as_it_should(name: str, ended: Run) -> None:
    """Bad input has its outcome and reason; the others measure."""
    (found,) = (b for b in ended.summary["benchmarks"] if b["name"].startswith(f"test_{name}["))
    outcome, reason = ENDINGS[name]
    assert found["outcome"] == outcome, found["reason"]
    assert found["reason"].startswith(reason)


def test_record_has_the_efficiency_of_the_pipeline(ended: Run) -> None:
    """Speed-up over one process measured beside it, the ideal one, and their ratio."""
    (found,) = (b for b in ended.summary["benchmarks"] if "dummy-8" in b["name"])
    metrics = {name: metric["value"] for name, metric in found["metrics"].items()}
    gained = metrics["one_process_s"] / metrics["step_time_s"]
    assert metrics["ideal_speed_up"] == pytest.approx(16 / 9)
    if doubtful_flags(found["flags"]):  # of a busy machine, say
        assert not {"speed_up", "pipeline_efficiency"} & metrics.keys()
    else:
        assert metrics["speed_up"] == pytest.approx(gained)
        assert metrics["pipeline_efficiency"] == pytest.approx(gained / (16 / 9))
    assert metrics["samples_per_s"] > 0
    correctness = found["correctness"]
    assert correctness.pop("product_dtypes").keys() == {"fp32"}
    correctness.pop("places")  # where diffusers' schedulers read the device
    assert correctness == {
        "bitwise_equal_to_one_process": True,
        "verified_samples": 8,
        "steps_of_ranks": [[0, 2], [2, 4]],
    }


def test_each_rank_logs_its_steps_and_messages(ended: Run) -> None:
    """In the run's file of a rank: its range, its messages, and how long each step took."""
    for rank, (steps, message) in enumerate([([0, 2], "send"), ([2, 4], "receive")]):
        events = events_of(ended, rank, "dummy-8")
        assert events[0] == {"event": "pipeline", "call": 2, "steps": steps, "samples": 8}
        noted = [(e["event"], e["sample"], e["step"]) for e in events[1:] if "sample" in e]
        of_steps = [(sample, step) for kind, sample, step in noted if kind == "step"]
        of_messages = [(sample, step) for kind, sample, step in noted if kind == message]
        assert of_steps == [(sample, step) for sample in range(8) for step in range(*steps)]
        assert of_messages == [(sample, 2) for sample in range(8)]
    (told,) = (
        line
        for line in ended.journal
        if line["event"] == "pipeline" and "dummy-8" in line["benchmark"]
    )
    assert (told["rank"], told["steps"]) == (0, [0, 2])
    assert told["step_s"] > 0


def events_of(run: Run, rank: int, benchmark: str) -> list[dict[str, Any]]:
    lines = (run.directory / "ranks" / f"rank-{rank}.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    *_, begun, done = (
        one["events"] for one in found if "events" in one and benchmark in one["benchmark"]
    )
    return [*begun, *done]  # of the last untimed call
