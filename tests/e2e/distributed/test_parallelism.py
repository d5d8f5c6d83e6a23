"""What every parallelism with a batch per rank must keep, shipped or plugged in.

``test_equivalence.py`` looks at all workloads, and at parallelisms whose ranks share a batch.
"""

from __future__ import annotations

import runpy
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from gpubench_plugin.config.sections import DistributedSection
from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import Unsupported
from gpubench_plugin.ranks.process_group import ProcessGroup
from gpubench_plugin.ranks.world import World
from gpubench_plugin.training.inference import Inference
from tests.e2e.distributed.conftest import found_once

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpubench_plugin.training.parallelism.base import Parallelism

    Found = list[dict[str, Any]]

SCRIPT = Path(__file__).parent / "ranks" / "train.py"
TRAIN = runpy.run_path(str(SCRIPT))
LARGEST_ERROR = 1e-5

every_parallelism = pytest.mark.parametrize("name", ["none", *TRAIN["PARALLELISMS"]])
several_ranks = pytest.mark.parametrize("name", TRAIN["PARALLELISMS"])
every_workload = pytest.mark.parametrize("workload", TRAIN["WORKLOADS"])


@pytest.fixture
def alone() -> Iterator[ProcessGroup]:
    with closing(ProcessGroup(World(), device=torch.device("cpu"))) as group:
        yield group


def load(name: str, group: ProcessGroup, **options: Any) -> Parallelism:
    made: Parallelism = catalog.load("parallelism", name)(group, DistributedSection(**options))
    return made


# On one rank.


@every_parallelism
def test_one_rank_computes_the_plain_gradients(name: str, alone: ProcessGroup) -> None:
    """Wrapped and accumulated over two halves of a batch, one rank's gradients are the plain."""
    parallelism = load(name, alone)
    found = TRAIN["compared"](workload("mlp"), parallelism, alone.world)
    assert (name, None) == (parallelism.name, found["reason"])
    assert max(found["at_once"], found["accumulated"]) <= LARGEST_ERROR


@every_parallelism
def test_model_without_parameters_to_train_is_wrapped(name: str, alone: ProcessGroup) -> None:
    """A frozen model can be benchmarked too."""
    frozen = nn.Linear(2, 1).requires_grad_(requires_grad=False)
    assert load(name, alone).wrap(frozen)(torch.ones(3, 2)).shape == (3, 1)


@every_parallelism
def test_norm_of_16_bit_gradients_does_not_overflow(name: str, alone: ProcessGroup) -> None:
    """It is taken in fp32: 100 gradients of 60000 in fp16 have a norm beyond that type."""
    module = load(name, alone).wrap(nn.Linear(100, 1, bias=False).half())
    for parameter in module.parameters():
        parameter.grad = torch.full_like(parameter, 6e4)
    assert load(name, alone).gradient_norm(module.parameters()) == pytest.approx(6e5, rel=1e-3)


@every_parallelism
def test_wrapped_model_infers(name: str, alone: ProcessGroup) -> None:
    """The forward pass alone runs again and again on a wrapped model."""
    mlp = workload("mlp")
    inference = Inference(
        module=load(name, alone).wrap(mlp.build()),
        workload=mlp,
        data=catalog.load("data", "synthetic")(mlp, batch_size=4, device=torch.device("cpu")),
        precision=catalog.load("precision", "fp32")(),
        device=torch.device("cpu"),
    )
    inference.prepare(lambda event: None)
    inference.step()
    assert set(inference.finish()) == {"data_wait_s"}


def test_fsdp2_refuses_weights_in_channels_last(alone: ProcessGroup) -> None:
    """Only contiguous parameters can be sharded: the benchmark is unsupported, and why is said."""
    convolution = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    with pytest.raises(Unsupported, match=r"weight is not; set model\.channels_last=false"):
        load("fsdp2", alone).wrap(convolution)


@pytest.mark.parametrize(
    ("dtype", "computes_in", "fits"),
    [
        ("bf16", "bf16", True),
        ("bf16", "fp32", False),
        ("fp16", "bf16", False),
        (None, "fp16", True),
    ],
)
def test_fsdp2_computes_in_what_the_precision_says(
    dtype: str | None, computes_in: str, fits: bool, alone: ProcessGroup
) -> None:
    """A dtype of parameters that belies the precision's name makes the benchmark unsupported."""
    reason = load("fsdp2", alone, fsdp_param_dtype=dtype).unsupported(computes_in)
    assert (reason is None) == fits
    assert fits or f"this precision computes in {computes_in}" in str(reason)


def test_fsdp2_gathers_in_the_dtype_that_is_configured(alone: ProcessGroup) -> None:
    """With an explicit dtype the matrix products run in it; what the optimizer sees stays fp32."""
    module = load("fsdp2", alone, fsdp_param_dtype="bf16").wrap(nn.Sequential(nn.Linear(3, 2)))
    output = module(torch.ones(1, 3))
    output.float().sum().backward()
    gradient = next(module.parameters()).grad
    assert gradient is not None
    assert (output.dtype, gradient.dtype) == (torch.bfloat16, torch.float32)


def test_fsdp2_shards_the_entries_of_lists_by_themselves(alone: ProcessGroup) -> None:
    """Each block of a network is gathered when it runs, the rest with the root."""
    module = load("fsdp2", alone).wrap(workload("resnet18").build())
    sharded = [name for name, part in module.named_modules() if type(part).__name__[:4] == "FSDP"]
    blocks = [f"layer{stage}.{block}" for stage in range(1, 5) for block in range(2)]
    assert sharded == ["", *blocks]


def test_dropout_is_said_to_draw_per_rank(alone: ProcessGroup) -> None:
    """A model whose ranks draw for themselves differs from one process while it trains."""
    module = nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.0), nn.SyncBatchNorm(3))
    ddp = load("ddp", alone)
    said = ddp.differs_from_one_process(module)
    assert said == "Dropout uses per-rank random numbers (1 layers)"
    assert ddp.differs_from_one_process(module.eval()) is None


def test_normalising_layer_is_named_as_its_author_does(alone: ProcessGroup) -> None:
    """FSDP2 makes classes of its own of what it shards, which nobody would look for."""
    fsdp2 = load("fsdp2", alone)
    module = fsdp2.wrap(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)))
    said = fsdp2.differs_from_one_process(module)
    assert said == "BatchNorm1d normalises by each rank's own batch (1 layers)"


# On two ranks: they are started once, and what they found is looked at below.


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> Found:
    """What each of two ranks found."""
    return found_once(SCRIPT.name, tmp_path_factory)


@pytest.mark.exhaustive
@several_ranks
@every_workload
def test_gradients_equal_one_process_or_the_reason_is_said(
    name: str, workload: str, two_ranks: Found
) -> None:
    """Averaged at once or accumulated first, gradients are those of the global batch.

    Where a reason is said why they are not, they are not, and are as soon as it is gone.
    """
    for rank in two_ranks:
        found = rank["gradients"][f"{name} {workload}"]
        assert max(found["at_once"], found["accumulated"]) <= LARGEST_ERROR
        assert found["alone"] > 1e-2  # a rank's own share is something else
        if found["reason"]:
            assert found["as_said"] > LARGEST_ERROR
            assert found["reason_in_eval_mode"] is None


@pytest.mark.exhaustive
@several_ranks
def test_batch_statistics_are_the_reason_of_residual_networks(name: str, two_ranks: Found) -> None:
    """The reason names the layer, what it does, and how many there are."""
    said = "BatchNorm2d normalises by each rank's own batch"
    reasons = [two_ranks[0]["gradients"][f"{name} {of}"]["reason"] for of in ("mlp", "resnet18")]
    assert reasons == [None, f"{said} (20 layers)"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("case", TRAIN["OPTIONS"])
def test_options_change_no_gradient(case: str, two_ranks: Found) -> None:
    """Buckets, a static graph, and when parameters are freed make a difference in time alone."""
    for rank in two_ranks:
        found = rank["options"][case]
        assert max(found["at_once"], found["accumulated"]) <= LARGEST_ERROR


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "scope"), [(name, scope) for name, all in TRAIN["SCOPES"].items() for scope in all]
)
def test_compiled_models_run_compiled_and_exact(name: str, scope: str, two_ranks: Found) -> None:
    """In every scope the layers are in compiled graphs, and gradients are the same."""
    for rank in two_ranks:
        found = rank["compiled"][f"{name} {scope}"]
        assert max(found["at_once"], found["accumulated"]) <= LARGEST_ERROR
        assert found["operations"] >= 3  # the MLP has three linear layers
        assert found["has_loss"] is (scope == "step")


@pytest.mark.exhaustive
@several_ranks
def test_strong_scaling_trains_like_one_process(name: str, two_ranks: Found) -> None:
    """In fp32 two ranks sharing a global batch have one process' losses, step by step.

    They clip by the whole norm and accumulate, and both record the mean over the ranks.
    """
    expected = two_ranks[0]["one_process"]["losses"]
    for rank in two_ranks:
        found = rank["training"][f"{name} fp32"]
        assert found["losses"] == pytest.approx(expected, rel=1e-5)
        assert found["differs_from_one_process"] is None


@pytest.mark.exhaustive
@pytest.mark.parametrize("precision", TRAIN["OPTIMIZERS"])
@several_ranks
def test_every_precision_trains(name: str, precision: str, two_ranks: Found) -> None:
    """The loss falls in fp32, bf16 and amp, no step is skipped, and the ranks agree on it."""
    first, second = (rank["training"][f"{name} {precision}"] for rank in two_ranks)
    assert first["losses"] == second["losses"]
    assert (first["loss_drop"] < 0.95, first["skipped_steps"]) == (True, 0)


@pytest.mark.exhaustive
@several_ranks
def test_all_ranks_refuse_a_loss_that_is_nan_on_one(name: str, two_ranks: Found) -> None:
    """No rank is left waiting for one that gave up."""
    assert [rank["nan"][name] for rank in two_ranks] == ["the loss at step 1 is nan"] * 2


@pytest.mark.exhaustive
@several_ranks
def test_all_ranks_see_an_overflow_on_one(name: str, two_ranks: Found) -> None:
    """A gradient that is not finite on one rank is everybody's: in the check, and in a scaler."""
    for rank in two_ranks:
        found = rank["overflow"][name]
        assert found["complaint"].endswith("1.weight is not finite")
        # A gradient that is not sharded is the same on all ranks, but for what the test did to it.
        assert found["skipped"] == 1 or not found["sharded"]


def workload(name: str) -> Any:
    return TRAIN["made"](TRAIN["configured"](name))
