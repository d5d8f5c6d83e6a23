"""A training in a user's project: reference, seeds, checkpoint, going on, deterministic mode."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.messages import mentions

if TYPE_CHECKING:
    from tests.support.projects import Project

TESTS = """
    import pytest
    import torch


    @pytest.mark.gpubench(config="mlp")
    def test_right(gpubench, trainer):
        gpubench(trainer.step)


    @pytest.mark.precision("bf16")
    @pytest.mark.gpubench(config="mlp")
    def test_wrong(gpubench, trainer, model):
        inner = model[-1].forward
        model[-1].forward = lambda x: inner(x) * (1 + torch.is_autocast_enabled("cpu"))
        gpubench(trainer.step)


    @pytest.mark.precision("bf16")
    @pytest.mark.gpubench(config="mlp")
    @pytest.mark.gpubench_set("measure.check=false")
    def test_unchecked(gpubench, trainer):
        gpubench(trainer.step)


    @pytest.mark.precision("fp32")
    @pytest.mark.gpubench()
    def test_odd(gpubench):
        pooled, at = torch.ones(1, 1, 1), torch.zeros(1, 1, 1, dtype=torch.long)
        gpubench(lambda: torch.nn.functional.max_unpool1d(pooled, at, 2))
"""


def benchmarks(run: Any) -> dict[str, Any]:
    return {b["name"]: b for b in run.summary["benchmarks"]}


@pytest.mark.usefixtures("project")
def test_training_is_checked_kept_and_resumed(project: Project) -> None:
    """One run writes records and checkpoints, another one goes on from one of them."""
    project.write("test_room.py", TESTS)
    first = project.run("--precision=bf16", "--training.checkpoint=true", "--experiment.seed=3")
    found = benchmarks(first)
    right, wrong, unchecked = (
        found[f"test_{name}[bf16]"] for name in ("right", "wrong", "unchecked")
    )
    # The reference: by default with the preset tiny, with its errors as metrics, and it judges.
    reference = right["correctness"]["reference"]
    assert 0 < reference["gradient_norm_error"] <= max(reference["gradient_bands"])
    assert right["metrics"]["loss_error"]["value"] == reference["loss_error"]
    assert wrong["outcome"] == "failed"
    assert " in plain fp32: the error of " in wrong["reason"]
    assert "(measure.check_" in wrong["reason"]
    assert "reference" not in unchecked["correctness"]
    # The check is no part of what makes numbers comparable.
    assert "measure.check" not in str(unchecked.get("settings", {}))
    # Seeds.
    assert right["correctness"]["seeds"]["model"] == 3
    # Checkpoints: of what passed its check only.
    folders = sorted(p.name for p in (first.directory / "checkpoints").iterdir())
    assert folders == ["test_right-bf16", "test_unchecked-bf16"]
    checkpoint = first.directory / "checkpoints" / "test_right-bf16"
    assert {p.suffix for p in checkpoint.iterdir()} == {".json", ".pt"}
    assert right["correctness"]["checkpoint"]["step"] == 20

    resume = (f"--training.resume={checkpoint}", "--training.deterministic=true")
    again = ("--experiment=second", "--experiment.seed=3")
    second = project.run("-k", "right or odd", "--precision=bf16,fp32", *resume, *again)
    after = {b["name"]: b for b in _summary(second, "second")["benchmarks"]}
    resumed = after["test_right[bf16]"]
    assert resumed["correctness"]["resumed"]["step"] == 20
    assert resumed["correctness"]["losses"][0] < right["correctness"]["losses"][-1] * 1.05
    assert "reference" not in resumed["correctness"]
    (journal,) = (second.results / "second").glob("*/metrics.jsonl")
    lines = map(json.loads, journal.read_text().splitlines())
    events = [line for line in lines if line.get("benchmark") == resumed["id"]]
    assert [e["step"] for e in events if e["event"] == "training_step"] == [25, 30, 35, 40]
    assert [e["steps"] for e in events if e.get("phase") == "train"] == [40]
    # Whatever is measured, not training alone.
    odd = after["test_odd"]
    assert odd["outcome"] == "unsupported"
    assert mentions(odd["reason"], "no deterministic implementation", "remove the key")
    refused = after["test_right[fp32]"]
    assert refused["outcome"] == "misconfigured"
    assert "precision.name is bf16 in the checkpoint, but fp32 here" in refused["reason"]


def _summary(run: Any, experiment: str) -> dict[str, Any]:
    (path,) = (run.results / experiment).glob("*/summary.json")
    loaded: dict[str, Any] = json.loads(path.read_text())
    return loaded
