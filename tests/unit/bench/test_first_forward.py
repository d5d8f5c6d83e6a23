"""What notes the first call of a model."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from gpubench_plugin.bench.subjects import FirstForward

BATCH = torch.ones(1, 2)


def test_a_call_is_noted_and_leaves_nothing_behind() -> None:
    """The calls after it run what they ran before."""
    model = nn.Linear(2, 2)
    note = FirstForward(model)
    torch.testing.assert_close(model(BATCH), nn.functional.linear(BATCH, model.weight, model.bias))
    assert model._compiled_call_impl is None
    assert note.was_called()


def test_whoever_asks_ends_it() -> None:
    """A model that nobody has called is watched no more: what is timed is the model alone."""
    model = nn.Linear(2, 2)
    note = FirstForward(model)
    assert not note.was_called()
    assert model._compiled_call_impl is None
    model(BATCH)
    assert not note.was_called()


def test_a_compiled_model_is_watched_from_outside() -> None:
    """What is compiled has nothing of it."""
    model = torch.compile(nn.Linear(2, 2), backend="eager")
    note = FirstForward(model)
    model(BATCH)
    assert note.was_called()


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
def test_copies_and_scripts_have_nothing_of_it() -> None:
    """Their calls are their own, and a model can be scripted as ever."""
    model = nn.Linear(2, 2)
    note = FirstForward(model)
    copy.deepcopy(model)(BATCH)
    torch.jit.script(model)(BATCH)
    assert not note.was_called()


def test_what_was_compiled_in_place_meanwhile_stays_compiled() -> None:
    """``Module.compile`` takes the same place."""
    model = nn.Linear(2, 2)
    note = FirstForward(model)
    model.compile(backend="eager")
    note.was_called()
    assert model._compiled_call_impl is not None
