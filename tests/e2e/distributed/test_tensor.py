"""Tensor parallelism: what is shared, training with it, and what is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from gpubench_plugin.config.sections import DistributedSection, TrainingSection
from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import Unsupported, UsageProblem
from gpubench_plugin.ranks.world import World
from gpubench_plugin.training.parallelism.tensor import TensorParallel, _require_layers

pytestmark = pytest.mark.followed

Found = list[dict[str, Any]]


def tensor(ranks: int) -> TensorParallel:
    group: Any = SimpleNamespace(world=World(size=ranks), device=torch.device("cpu"))
    return TensorParallel(group, DistributedSection())


def workload(name: str, **keys: Any) -> Any:
    kind = catalog.load("workloads", name)
    return kind(kind.Section(name=name, **keys))


def test_heads_features_and_vocabulary_are_shared(equivalence: Found) -> None:
    """Every weight of a Llama but those of the norms is halved between two ranks."""
    found = equivalence[0]["tensor"]
    assert len(found["shared"]) == 4 * 7 + 2
    assert {"lm_head.weight", "model.embed_tokens.weight"} <= set(found["shared"])


def test_all_parameters_are_of_one_kind(equivalence: Found) -> None:
    """Those that every rank has are DTensors, too: optimizers and clipping take no mixture."""
    assert equivalence[0]["tensor"]["plain"] == []


@pytest.mark.parametrize(("precision", "error"), [("fp32", 1e-6), ("bf16", 1e-3), ("amp", 1e-3)])
def test_ranks_train_like_one_process(precision: str, error: float, equivalence: Found) -> None:
    """With clipping and accumulation, in bf16, and with a GradScaler losses are one process'."""
    expected = equivalence[0]["one process"][f"tensor {precision}"]
    for rank in equivalence:
        found = rank["trained"][f"tensor {precision}"]
        assert found["losses"] == pytest.approx(expected["losses"], rel=error)
        assert found["skipped"] == 0


def test_ranks_count_equal_parts_of_the_batch(equivalence: Found) -> None:
    """The samples of all ranks add up to those of the one batch that they work on."""
    expected = equivalence[0]["one process"]["tensor bf16"]["samples"]
    assert sum(rank["trained"]["tensor bf16"]["samples"] for rank in equivalence) == expected == 32


@pytest.mark.parametrize("case", ["tensor", "tensor blocks", "tensor step"])
def test_model_runs_compiled_and_exact(case: str, equivalence: Found) -> None:
    """In every scope the layers are in compiled graphs, with the gradients of one process."""
    for rank in equivalence:
        found = rank["compiled"][case]
        assert found["error"] <= 1e-7
        assert found["operations"] >= 4  # as many linear layers


def test_all_ranks_see_a_gradient_go_wrong_on_one(equivalence: Found) -> None:
    """NaN in a part of a gradient, and a gradient that is missing, are everybody's complaint."""
    for rank in equivalence:
        assert rank["spoilt"]["tensor"] == "the gradient of parameter 1.weight is not finite"
        assert rank["forgotten"]["tensor"].startswith("parameter 1.weight received no gradient")


def test_forward_pass_alone_is_that_of_one_process(equivalence: Found) -> None:
    """Inference works on the shared batch, from rank zero's weights; each rank counts its part."""
    for rank in equivalence:
        assert rank["inferred"]["error"] <= 1e-6
        assert rank["inferred"]["samples"] == 16


def test_one_rank_shares_nothing() -> None:
    """A single rank is unsupported rather than measured as something else."""
    assert tensor(1).unsupported("fp32") == "requires at least 2 ranks"
    assert tensor(2).unsupported("fp32") is None


def test_workload_without_a_plan_is_refused() -> None:
    """Which layers can be shared is the workload's to know."""
    with pytest.raises(Unsupported, match=r"no tensor parallel plan for mlp; use .*ddp or fsdp2"):
        tensor(2).configure(workload("mlp"), TrainingSection())


@pytest.mark.parametrize(
    ("keys", "ranks", "said"),
    [
        ({}, 3, r"model\.heads=32 is not divisible by 3 ranks"),
        ({}, 8, r"model\.key_value_heads=4 is not divisible by 8 ranks"),
        ({"intermediate_size": 5}, 2, r"model\.intermediate_size=5 is not divisible by "),
        ({"vocabulary": 7}, 2, r"model\.vocabulary=7 is not divisible by "),
    ],
)
def test_what_does_not_divide_is_refused(keys: dict[str, int], ranks: int, said: str) -> None:
    """The size that the ranks cannot share evenly is named."""
    with pytest.raises(Unsupported, match=said):
        tensor(ranks).configure(workload("llama", **keys), TrainingSection())


@pytest.mark.parametrize(
    ("plan", "error", "said"),
    [
        (
            {"*.weights": "colwise"},
            Unsupported,
            r"names the layer \*\.weights, which the model does not have",
        ),
        ({"1": "rowwize"}, UsageProblem, r"style of 1.*rowwize.*did you mean 'rowwise'"),
    ],
)
def test_plan_that_does_nothing_is_refused(
    plan: dict[str, str], error: type[Exception], said: str
) -> None:
    """A layer that would stay whole without a word is no tensor parallelism."""
    with pytest.raises(error, match=said):
        _require_layers(nn.Sequential(nn.ReLU(), nn.Linear(2, 2)), plan)
