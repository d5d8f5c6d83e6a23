"""The fixture ``torch_device`` on CUDA, with a torch whose device is on paper."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch

from gpubench_plugin.bench import fixtures
from gpubench_plugin.config.sections import Configuration, ModelSection
from gpubench_plugin.launchers import context

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

STATE = ["empty_cache"]  # without peaks: this CUDA has not started


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is done to the device, in order."""
    actions: list[str] = []

    @contextmanager
    def entered(device: torch.device) -> Iterator[None]:
        actions.append(f"enter {device}")
        yield
        actions.append(f"leave {device}")

    def noted(action: str, *_: object) -> list[object]:
        actions.append(action)
        return []

    monkeypatch.setattr(torch.cuda, "device", entered)
    for action in (*STATE, "get_rng_state_all", "set_rng_state_all"):
        monkeypatch.setattr(torch.cuda, action, partial(noted, action))
    monkeypatch.setattr(torch, "manual_seed", lambda seed: actions.append(f"seed {seed}"))
    return actions


@pytest.fixture
def device_of(monkeypatch: pytest.MonkeyPatch, log: list[str]) -> Callable[..., Any]:
    """A context with the fixture's device, for a case on ``cuda:1``; its end tears it down."""
    ranks = SimpleNamespace(world=SimpleNamespace(local_size=1), variables={})
    monkeypatch.setattr(context, "context_of", lambda _: SimpleNamespace(ranks=ranks))

    def of(model: ModelSection) -> Any:
        case = SimpleNamespace(
            device=SimpleNamespace(torch_name="cuda:1"),
            configuration=Configuration[ModelSection](model=model),
        )
        monkeypatch.setattr(fixtures, "case_of", lambda _: case)
        generator: Any = fixtures.torch_device
        return contextmanager(generator.__wrapped__)(SimpleNamespace(config=None))

    return of


@pytest.mark.parametrize(
    ("configured", "expected"), [(None, True), (True, True), (False, False)], ids=str
)
def test_cudnn_chooses_its_kernels_by_measuring_unless_told_not_to(
    device_of: Callable[..., Any], configured: bool | None, expected: bool
) -> None:
    """During the benchmark; the switch is put back to what it was."""
    for before in (False, True):
        torch.backends.cudnn.benchmark = before
        try:
            with device_of(ModelSection(cudnn_benchmark=configured)):
                assert torch.backends.cudnn.benchmark is expected
            assert torch.backends.cudnn.benchmark is before
        finally:
            torch.backends.cudnn.benchmark = False


def test_device_with_an_index_is_entered(device_of: Callable[..., Any], log: list[str]) -> None:
    """It is the current one from before the seed until its generators are to be put back."""
    with device_of(ModelSection()) as device:
        assert str(device) == "cuda:1"
    assert log == [
        *STATE,
        "get_rng_state_all",
        "enter cuda:1",
        f"seed {Configuration[ModelSection](model=ModelSection()).experiment.seed}",
        "leave cuda:1",
        "set_rng_state_all",
        *STATE,
    ]


def test_a_benchmark_that_raises_leaves_the_device(
    device_of: Callable[..., Any], log: list[str]
) -> None:
    """The switch, the generators and the memory as well."""
    with pytest.raises(ZeroDivisionError), device_of(ModelSection()):
        raise ZeroDivisionError
    assert torch.backends.cudnn.benchmark is False
    assert log[-2:] == ["set_rng_state_all", *STATE]
