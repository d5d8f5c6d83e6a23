"""Pipeline parallelism: who has which stages, training with it, and what is refused."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from torch.torch_version import TorchVersion

from gpubench_plugin.config.sections import DistributedSection, TrainingSection
from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import Unsupported, UsageProblem
from gpubench_plugin.ranks.world import World
from gpubench_plugin.training.parallelism.pipeline import (
    PipelineParallel,
    _Stage,
    microbatches,
    runs_in_a_v,
)
from gpubench_plugin.workloads.base import Stages
from gpubench_plugin.workloads.llama import decoder_stages

pytestmark = pytest.mark.followed

Found = list[dict[str, Any]]

STAGES = {
    "GPipe": [[0], [1]],
    "1F1B": [[0], [1]],
    "Interleaved1F1B": [[0, 2], [1, 3]],
    "ZBVZeroBubble": [[0, 3], [1, 2]],
}


in_a_v = pytest.mark.skipif(not runs_in_a_v("gloo"), reason="gloo cannot, before torch 2.13")


def pipeline(ranks: int = 2, backend: str = "gloo", **options: Any) -> PipelineParallel:
    group: Any = SimpleNamespace(
        world=World(size=ranks), device=torch.device("cpu"), backend=backend
    )
    return PipelineParallel(group, DistributedSection(**options))


def workload(name: str = "mlp", **keys: Any) -> Any:
    kind = catalog.load("workloads", name)
    return kind(kind.Section(name=name, **keys))


@pytest.mark.parametrize(
    "schedule",
    [*[s for s in STAGES if s != "ZBVZeroBubble"], pytest.param("ZBVZeroBubble", marks=in_a_v)],
)
def test_ranks_have_the_stages_of_the_schedule(schedule: str, equivalence: Found) -> None:
    """One stage each, two in turns, or two down and up again; together they are the model."""
    found = [rank["pipeline"][schedule] for rank in equivalence]
    assert [rank["stages"] for rank in found] == STAGES[schedule]
    together = sorted(name for rank in found for name in rank["names"])
    assert [rank["all_names"] for rank in found] == [together] * 2


@pytest.mark.parametrize(
    ("case", "error"),
    [
        ("pipeline fp32", 1e-6),
        ("pipeline bf16", 1e-3),
        pytest.param("pipeline in a V fp32", 1e-6, marks=in_a_v),
    ],
)
def test_ranks_train_like_one_process(case: str, error: float, equivalence: Found) -> None:
    """Every rank records the losses of one process, also one that never sees a loss."""
    expected = equivalence[0]["one process"][case]["losses"]
    for rank in equivalence:
        assert rank["trained"][case]["losses"] == pytest.approx(expected, rel=error)
        assert rank["trained"][case]["samples"] == 16  # of a batch of 32


def test_stages_run_compiled_and_exact(equivalence: Found) -> None:
    """Each stage is in a compiled graph of its own, with the gradients of one process."""
    for rank in equivalence:
        found = rank["compiled"]["pipeline"]
        assert found["error"] <= 1e-7
        assert found["operations"] >= 2  # linear layers of a stage


def test_all_ranks_name_the_parameter_that_goes_wrong_on_one(equivalence: Found) -> None:
    """Rank zero, which has other parameters, complains of rank one's by its name."""
    for rank in equivalence:
        spoilt, forgotten = rank["spoilt"]["pipeline"], rank["forgotten"]["pipeline"]
        assert spoilt == "the gradient of parameter stages.1.0.weight is not finite"
        assert forgotten.startswith("parameter stages.1.0.weight received no gradient")


def test_one_rank_is_no_pipeline() -> None:
    """A single rank is unsupported rather than measured as something else."""
    assert pipeline(ranks=1).unsupported("fp32") == "requires at least 2 ranks"
    assert pipeline().unsupported("fp32") is None


@pytest.mark.parametrize(
    ("options", "model", "training", "said"),
    [
        ({}, {}, {"accumulation_steps": 2}, r"accumulation_steps=2.*pipeline_microbatches"),
        ({}, {}, {"gradient_clipping": 1.0}, r"gradient_clipping=1\.0.*set null"),
        ({}, {"compile_scope": "blocks"}, {}, r"compile_scope=blocks: each stage.*: model, null"),
        ({}, {"compile_scope": "step"}, {}, r"compile_scope=step: the schedule.*: model, null"),
        ({}, {"compile": "reduce-overhead"}, {}, r"model\.compile=reduce-overhead.*use default"),
        (
            {"pipeline_schedule": "ZBVZeroBubble"},
            {"compile": "default"},
            {},
            r"ZBVZeroBubble.*compiled stage; use none",
        ),
    ],
)
def test_what_a_schedule_cannot_do_is_refused(
    options: dict[str, Any], model: dict[str, Any], training: dict[str, Any], said: str
) -> None:
    """The key is named, why it cannot be, and what to set instead."""
    with pytest.raises(Unsupported, match=said):
        pipeline(**options).configure(workload(**model), TrainingSection(**training))


@pytest.mark.parametrize(
    ("version", "backend", "runs"),
    [("2.11.0+cu130", "gloo", False), ("2.13.0", "gloo", True), ("2.11.0+cu130", "nccl", True)],
)
def test_stages_in_a_v_need_a_torch_that_sends_nothing_to_itself(
    version: str, backend: str, *, runs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With gloo, which refuses it while the first step runs: it is said before."""
    monkeypatch.setattr(torch, "__version__", TorchVersion(version))
    chosen = pipeline(backend=backend, pipeline_schedule="ZBVZeroBubble")
    with nullcontext() if runs else pytest.raises(Unsupported, match="to the own rank"):
        chosen.configure(workload(), TrainingSection())


def test_workload_that_cannot_be_cut_is_refused() -> None:
    """Where a model can be cut is the workload's to know."""
    mlp, chosen = workload(), pipeline()
    chosen.configure(mlp, TrainingSection())
    with pytest.raises(Unsupported, match="mlp does not define pipeline stages"):
        chosen.wrap(mlp.build())


def test_fewer_layers_than_stages_are_refused() -> None:
    """Three blocks make no four stages; three blocks in two stages are two and one."""
    blocks = [nn.Linear(1, 1) for _ in range(3)]
    model = SimpleNamespace(layers=blocks, embed_tokens=None, rotary_emb=None, norm=None)
    sizes = SimpleNamespace(max_position_embeddings=8, hidden_size=4)
    decoder = SimpleNamespace(model=model, lm_head=None, config=sizes)
    with pytest.raises(Unsupported, match=r"model\.layers=3 cannot be cut into 4 stages"):
        decoder_stages(decoder, 4)
    cut: Any = decoder_stages(decoder, 2)
    assert [len(stage.layers) for stage in cut.modules] == [2, 1]
    assert cut.between == (8, 4)


def test_shared_parameter_is_refused() -> None:
    """Two stages with one parameter would train two of it."""
    shared = nn.Linear(2, 2)
    cut = Stages((nn.Sequential(shared), nn.Sequential(shared)), (2,), nn.functional.mse_loss)
    chosen = pipeline()
    chosen.configure(tied := workload(), TrainingSection())
    tied.stages = lambda module, count: cut
    with pytest.raises(Unsupported, match="two stages share a parameter"):
        chosen.wrap(nn.Module())


def test_loss_scaling_and_a_forward_pass_alone_are_refused() -> None:
    """Precision amp needs one scaler over all stages; inference, a rank with the whole model."""
    parts = (nn.Linear(2, 2), nn.Linear(2, 2))
    chosen = pipeline()
    chosen.configure(halves := workload(), TrainingSection())
    halves.stages = lambda module, count: Stages(parts, (2,), nn.functional.mse_loss)
    module = chosen.wrap(nn.Module())
    with pytest.raises(Unsupported, match="GradScaler"):
        chosen.passes(module, catalog.load("precision", "amp")())
    with pytest.raises(Unsupported, match="a forward pass alone"):
        module(torch.ones(1, 2))


@pytest.mark.parametrize(
    ("schedule", "ranks", "samples", "number"),
    [
        ("GPipe", 2, 16, 2),
        ("1F1B", 4, 24, 4),
        ("Interleaved1F1B", 2, 16, 4),
        ("ZBVZeroBubble", 2, 6, 6),  # 4 stages; 6 is the first that divides 6
        ("ZBVZeroBubble", 2, 2, 2),  # a batch too small to keep all stages busy
    ],
)
def test_default_keeps_all_stages_busy(
    schedule: Any, ranks: int, samples: int, number: int
) -> None:
    """As many microbatches as stages, or the next number that divides the batch."""
    stages = ranks * (1 if schedule in {"GPipe", "1F1B"} else 2)
    section = DistributedSection(pipeline_schedule=schedule)
    assert microbatches(section, stages=stages, ranks=ranks, samples=samples) == number


@pytest.mark.parametrize(
    ("schedule", "number", "ranks", "samples", "allowed"),
    [
        ("GPipe", 3, 2, 16, "1, 2, 4, 8, 16"),
        ("1F1B", 2, 4, 16, "4, 8, 16"),
        ("Interleaved1F1B", 9, 4, 36, "1, 2, 3, 4, 6, 12, 36"),
    ],
)
def test_microbatches_that_do_not_suit_are_refused(
    schedule: Any, number: int, ranks: int, samples: int, allowed: str
) -> None:
    """Unequal parts, or a number the schedule cannot take; those that are allowed are listed."""
    section = DistributedSection(pipeline_schedule=schedule, pipeline_microbatches=number)
    said = rf"pipeline_microbatches={number} is not supported by {schedule} .* allowed: {allowed}$"
    with pytest.raises(UsageProblem, match=said):
        microbatches(section, stages=ranks, ranks=ranks, samples=samples)


def test_activations_keep_the_dtype_of_parameters_between_stages() -> None:
    """Under autocast a stage hands on what the next rank expects to receive."""
    stage = nn.Linear(2, 2)
    autocast = _Stage(stage, lambda: torch.autocast("cpu", torch.bfloat16), torch.float32)
    assert autocast(torch.ones(1, 2)).dtype is torch.float32
    last = _Stage(stage.bfloat16(), nullcontext, None)
    assert last(torch.ones(1, 2, dtype=torch.bfloat16)).dtype is torch.bfloat16
