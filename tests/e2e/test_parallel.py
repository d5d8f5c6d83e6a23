"""One model divided among ranks: this repository's benchmarks, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.projects import Project

SUITE = Path(__file__).parents[2] / "benchmarks" / "distributed"

REFUSED = """
import pytest

def case(*keys):
    return pytest.param(marks=pytest.mark.gpubench_set(*keys), id=keys[-1].split("=")[1])

@pytest.mark.parametrize((), [
    case("distributed.parallelism=tensor"),
    case("distributed.parallelism=pipeline"),
    case("distributed.parallelism=pipeline", "training.accumulation_steps=2"),
])
@pytest.mark.gpubench(config="mlp", ranks=2)
def test_refused(gpubench, trainer):
    gpubench(trainer.step)

@pytest.mark.gpubench(config="mlp", ranks=2)
@pytest.mark.gpubench_set("distributed.parallelism=fsdp2")
def test_hidden(gpubench, trainer, exposed_communication):
    gpubench(trainer.step)
"""
SHORT = (
    "--training.steps=3",
    "--training.loss_drop=null",
    "--measure.check_steps=2",
    "--measure.by=steps",
    "--measure.steps=3",
    "--measure.warmup_iterations=1",
    "--measure.warmup_s=0.001",
    "--measure.warmup_max_rounds=1",
)


@pytest.mark.exhaustive
def test_ranks_divide_a_model_or_say_why_not(project: Project) -> None:
    """Ranks that share a batch count it once, and the reference checks what they compute.

    DDP's exposed communication stands in its record; what cannot be divided is unsupported.
    """
    for name in ("parallel", "overlap"):
        project.write(f"test_{name}.py", (SUITE / f"test_{name}.py").read_text())
    project.write("test_refused.py", REFUSED)

    chosen = "tensor or pipeline-1f1b or bucket-0.1MiB or refused or hidden"
    run = project.run("-k", chosen, "--precision=fp32", "--world-size=2", *SHORT, quick=False)

    assert run.code == 0, run.out + run.err
    case = "test_llama_train"
    assert run.outcomes == {
        f"{case}_parallel[tensor-fp32-ranks2]": "measured",
        f"{case}_parallel[pipeline-1f1b-fp32-ranks2]": "measured",
        f"{case}_overlap[bucket-0.1MiB-fp32-ranks2]": "measured",
        "test_refused[tensor-fp32-ranks2]": "unsupported",
        "test_refused[pipeline-fp32-ranks2]": "unsupported",
        "test_refused[2-fp32-ranks2]": "unsupported",
        "test_hidden[fp32-ranks2]": "unsupported",
    }
    for line in run.journal:
        if line.get("outcome") == "measured":
            samples, metrics = line["samples"], line["metrics"]
            calls_per_s = sum(samples["block_calls"]) / sum(samples["block_s"])
            assert metrics["samples_per_s"]["value"] == pytest.approx(8 * calls_per_s)
            assert metrics["tokens_per_s"]["value"] == pytest.approx(8 * 32 * calls_per_s)
            assert len(line["correctness"]["losses"]) == 3
            assert ("exposed_communication_s" in metrics) == ("overlap" in line["name"])
    reasons = {line["name"]: line["reason"] for line in run.journal if line.get("reason")}
    assert "no tensor parallel plan for mlp" in reasons["test_refused[tensor-fp32-ranks2]"]
    assert "mlp does not define pipeline stages" in reasons["test_refused[pipeline-fp32-ranks2]"]
    assert "accumulation_steps=2" in reasons["test_refused[2-fp32-ranks2]"]
    assert "under fsdp2 a step cannot run without" in reasons["test_hidden[fp32-ranks2]"]
