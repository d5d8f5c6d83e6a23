"""Reads of the device by the host, planted and counted, with the line of each."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from gpubench_plugin.measure.probes.host_reads import HostReads
from gpubench_plugin.measure.probes.operations import take_census
from gpubench_plugin.measure.probes.places import place_text

if TYPE_CHECKING:
    from collections.abc import Callable

CPU = torch.device("cpu")
META = torch.device("meta")
X = torch.ones(4, 4)
MASK = X > 0
CLASSES = torch.arange(4)
aten = torch.ops.aten


def reads_of(step: Callable[[], object]) -> list[tuple[Any, int]]:
    reads = HostReads(CPU)
    assert take_census(step, reads) is not None
    return reads.reads


def branch() -> None:
    if X.sum() > 0:
        return


def filled() -> None:
    y = X.clone()
    y[MASK] = 0.0  # no read: torch fills it masked
    y[MASK] = X[0].repeat(4)


def inferred() -> None:
    with torch.inference_mode():
        X.sum().item()


@pytest.mark.parametrize(
    ("step", "count", "size"),
    [
        (lambda: X.sum().item(), 1, 4),
        (lambda: float(X.sum()), 1, 4),
        (lambda: int(X.sum()), 1, 4),
        (branch, 1, 1),
        (lambda: [X.cpu()], 1, 64),
        (lambda: X.to("cpu"), 1, 64),
        (lambda: [X.tolist()], 1, 64),
        (lambda: [X.numpy()], 1, 64),
        (lambda: np.asarray(X), 1, 64),
        (lambda: repr(X), 1, 64),
        (lambda: f"{X.sum():.1f}", 1, 4),
        (lambda: [X.nonzero()], 1, 8),
        (lambda: torch.where(MASK), 1, 8),
        (lambda: X[MASK], 1, 8),
        (filled, 1, 8),
        (lambda: X.masked_select(MASK), 1, 8),
        (lambda: [X.unique()], 1, 8),
        (lambda: torch.equal(X, X), 1, 8),
        (lambda: torch.allclose(X, X), 1, 8),
        (inferred, 1, 4),
        (lambda: [X.sum().item() for _ in range(3)], 3, 12),
        (lambda: nn.functional.one_hot(CLASSES), 1, 8),
        (lambda: nn.functional.one_hot(CLASSES, 4), 0, 0),
        (lambda: nn.functional.one_hot(CLASSES, num_classes=4), 0, 0),
        (lambda: X.to(CPU), 0, 0),
        (lambda: X.to(torch.float64).sum(), 0, 0),
        (lambda: [row + 1 for row in X], 0, 0),
        (lambda: (X.shape, len(X), X.is_floating_point()), 0, 0),
    ],
)
def test_reads_are_counted_where_they_are(
    step: Callable[[], object], count: int, size: int
) -> None:
    """Each once, on the line that reads; a copy to a given device is none on a CPU."""
    found = reads_of(step)
    assert (len(found), sum(size for _, size in found)) == (count, size)
    lines, first = inspect.getsourcelines(step)
    here = Path(__file__)
    for place, _ in found:
        text = place_text(place, here.parent)
        assert text.startswith(f"{here.name}:{place.lineno} in ")
        assert first <= int(place.lineno or 0) < first + len(lines)


def trained(model: nn.Module, x: Tensor, optimizer: type[torch.optim.Optimizer]) -> None:
    own = optimizer(model.parameters(), lr=1e-3)
    model(x).square().mean().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    own.step()
    own.zero_grad()


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW, torch.optim.RAdam])
@pytest.mark.parametrize(
    ("model", "x"),
    [
        (nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Dropout(), nn.Linear(8, 2)), X),
        (nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)), torch.ones(2, 3, 8, 8)),
    ],
)
def test_training_reads_nothing(
    model: nn.Module, x: Tensor, optimizer: type[torch.optim.Optimizer]
) -> None:
    """The counters of steps that torch's optimizers read are on the CPU on every device."""
    assert reads_of(lambda: trained(model, x, optimizer)) == []


class Items(Dataset[float]):
    """Rows that are read on the CPU, whatever the device."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> float:
        return X[index].sum().item()


def test_loading_data_is_no_read() -> None:
    """Sampler, seed and dataset are on the CPU anyway."""
    assert reads_of(lambda: [*DataLoader(Items(), shuffle=True)]) == []


def test_a_gradient_scaler_reads_once() -> None:
    """Whether a gradient was infinite, at the line of the step that asks it."""
    model = nn.Linear(4, 2)
    optimizer, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu")

    def step() -> None:
        scaler.scale(model(X).sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    ((place, _),) = reads_of(step)
    assert place.line == "scaler.step(optimizer)"


@pytest.mark.parametrize(
    ("op", "args", "kwargs", "sizes"),
    [
        (aten._to_copy.default, (torch.ones(2, device=META),), {"device": CPU}, [8]),
        (aten._to_copy.default, (torch.ones(2, device=META),), {"device": META}, []),
        (
            aten._to_copy.default,
            (torch.ones(2, device=META),),
            {"device": CPU, "non_blocking": True},
            [],
        ),
        (aten.copy_.default, (torch.ones(2), torch.ones(2, device=META)), {}, [8]),
        (aten.copy_.default, (torch.ones(2), torch.ones(2, device=META), True), {}, []),
        (aten.copy_.default, (torch.ones(2, device=META), torch.ones(2)), {}, []),
        (aten.nonzero.default, (torch.ones(2),), {}, []),
        (aten.nonzero.default, (torch.ones(2, device=META),), {}, [8]),
    ],
)
def test_of_an_accelerator_only_what_comes_from_it_counts(
    op: object, args: tuple[object, ...], kwargs: dict[str, object], sizes: list[int]
) -> None:
    """Copies to the host for which it waits, and sizes; nothing of tensors on the host."""
    reads = HostReads(META)
    reads.count(op, args, kwargs)
    assert [size for _, size in reads.reads] == sizes
