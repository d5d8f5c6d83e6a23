"""States of the random generators, those of a device included, by a device module of our own."""

from __future__ import annotations

import json
import random
from dataclasses import asdict
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from gpubench_plugin.training import seeding

CPU, CUDA = torch.device("cpu"), torch.device("cuda", 1)


@pytest.fixture
def generator(monkeypatch: pytest.MonkeyPatch) -> torch.Generator:
    """The generator of the second CUDA device."""
    generator = torch.Generator()

    def set_state(state: torch.Tensor, device: torch.device) -> None:
        assert device == CUDA
        generator.set_state(state)

    module = SimpleNamespace(
        get_rng_state=lambda device: generator.get_state() if device == CUDA else None,
        set_rng_state=set_state,
    )
    monkeypatch.setattr(torch, "get_device_module", lambda _: module)
    return generator


def draws(generator: torch.Generator) -> tuple[float, float, float, float]:
    """The next number of each generator."""
    drawn_on_device = float(torch.rand((), generator=generator))
    return random.random(), float(np.random.rand()), float(torch.rand(())), drawn_on_device


def test_a_device_s_generator_goes_on_as_captured(generator: torch.Generator) -> None:
    """After JSON, too, every generator draws what it drew after the capture."""
    state = seeding.RandomState.capture(CUDA)
    first = draws(generator)
    seeding.RandomState(**json.loads(json.dumps(asdict(state)))).restore(CUDA)
    assert draws(generator) == first


def test_a_state_of_the_cpu_leaves_the_device_s_generator(generator: torch.Generator) -> None:
    """A state without the device's generator restores the others, and that one goes on."""
    state = seeding.RandomState.capture(CPU)
    *first, drawn_on_device = draws(generator)
    state.restore(CUDA)
    *again, drawn_next = draws(generator)
    assert state.device is None
    assert again == first
    assert drawn_next != drawn_on_device
