"""What every parallelism must keep, shipped or plugged in, and what DDP computes."""

from __future__ import annotations

import math
import runpy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from gpubench_plugin import catalog
from gpubench_plugin.distributed.process_group import ProcessGroup
from gpubench_plugin.distributed.world import World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PARALLELISMS = catalog.choices("parallelism")
TRAIN = runpy.run_path(str(Path(__file__).parent / "ranks" / "train.py"))


@pytest.fixture
def alone() -> Iterator[ProcessGroup]:
    with ProcessGroup(World(), device=torch.device("cpu")) as group:
        yield group


@pytest.mark.parametrize("name", PARALLELISMS)
def test_one_rank_computes_the_plain_gradients(name: str, alone: ProcessGroup) -> None:
    """Wrapped and accumulated over two halves of a batch, one rank's gradients are the plain."""
    parallelism = catalog.load("parallelism", name)(alone)
    assert name == parallelism.name
    module = parallelism.wrap(TRAIN["build"](0))
    inputs, labels = TRAIN["batch"]()
    halves = list(zip(inputs.chunk(2), labels.chunk(2), strict=True))
    with parallelism.no_sync(module):
        (nn.functional.cross_entropy(module(halves[0][0]), halves[0][1]) / 2).backward()
    (nn.functional.cross_entropy(module(halves[1][0]), halves[1][1]) / 2).backward()
    assert distance(TRAIN["whole_batch"](), TRAIN["gradients"](module)) <= 1e-5


@pytest.mark.parametrize("name", PARALLELISMS)
def test_model_without_parameters_to_train_is_wrapped(name: str, alone: ProcessGroup) -> None:
    """A frozen model can be benchmarked too."""
    frozen = nn.Linear(2, 1).requires_grad_(requires_grad=False)
    wrapped = catalog.load("parallelism", name)(alone).wrap(frozen)
    assert wrapped(torch.ones(3, 2)).shape == (3, 1)


def test_ddp_on_two_ranks_equals_one_process(torchrun: Callable[[str], list[Any]]) -> None:
    """Averaged at once or accumulated first, the gradients are those of the global batch."""
    expected = TRAIN["whole_batch"]()
    first, second = torchrun("train.py")
    for rank in (first, second):
        assert distance(expected, rank["at_once"]) <= 1e-5
        assert distance(expected, rank["accumulated"]) <= 1e-5
    assert distance(first["local"], second["local"]) > 1e-2


def distance(expected: list[float], actual: list[float]) -> float:
    """The global norm of the difference relative to the expected one's."""
    return math.dist(expected, actual) / math.hypot(*expected)
