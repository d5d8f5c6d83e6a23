"""What the tensors of a benchmark take on a CPU."""

from __future__ import annotations

import gc
import io
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

from gpubench_plugin.measure.probes.operations import take_census
from gpubench_plugin.measure.probes.tensor_memory import TensorMemory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KIB = 1024


def tensor(kibibytes: int) -> torch.Tensor:
    return torch.zeros(kibibytes * KIB, dtype=torch.uint8)


def peak_of(memory: TensorMemory, call: Callable[[], object]) -> int:
    memory.watch(call)
    assert memory.peak_bytes is not None
    return memory.peak_bytes


def test_what_is_held_and_what_a_call_takes_are_added() -> None:
    """A tensor made since the start, and the most that the call held at once beyond it."""
    _before = tensor(512)
    memory = TensorMemory()
    _held, _view = (made := tensor(64)), made[:8]

    def call() -> None:
        for size in (16, 32, 8):
            tensor(size)  # freed before the next one

    assert peak_of(memory, call) == (64 + 32) * KIB


def test_weights_gradients_activations_and_optimizer_count() -> None:
    """A training step: parameters, momentum, gradients, and what the backward pass needs."""
    memory = TensorMemory()
    model = nn.Linear(64, 64, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    batch = torch.zeros(16, 64)

    def step() -> None:
        model(batch).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    held = model.weight.nbytes * 2 + batch.nbytes  # with momentum
    assert held < peak_of(memory, step) <= held + model.weight.nbytes * 2 + 4 * batch.nbytes + KIB


def test_gradients_that_stay_are_held() -> None:
    """A gradient that no Python object stands for is found at its parameter."""
    memory = TensorMemory()
    weight = torch.zeros(64 * KIB, requires_grad=True)
    weight.sum().backward()
    gc.collect()
    assert peak_of(memory, lambda: None) == 2 * weight.nbytes


def test_cycles_of_earlier_calls_are_not_held() -> None:
    """Also those that the collector has seen alive, which the next collections pass over."""
    memory = TensorMemory()
    cycle: list[object] = [tensor(64)]
    cycle.append(cycle)
    gc.collect()
    del cycle
    assert peak_of(memory, lambda: tensor(16)) == 16 * KIB


def test_the_same_again_takes_as_much() -> None:
    """It does not depend on what ran before, or on what was freed."""

    def peak() -> int:
        memory = TensorMemory()
        model = nn.Linear(256, 256)
        batch = torch.zeros(64, 256)
        return peak_of(memory, lambda: model(batch).sum().backward())

    first = peak()
    _left_behind = [tensor(300) for _ in range(20)]
    del _left_behind[::2]
    assert peak() == first


def test_older_tensors_count_where_the_step_works_on_them() -> None:
    """However they reach an operation, once each; others stay whose they are."""
    used, listed, _unused = tensor(64), tensor(32), tensor(512)
    memory = TensorMemory()
    _held = tensor(8)

    def call() -> None:
        torch.cat([listed[:KIB], listed])
        used[: 4 * KIB].add_(used[4 * KIB : 8 * KIB])

    before = peak_of(memory, call)
    assert before == (8 + 33) * KIB
    census = take_census(call)
    assert census is not None
    memory.add_inputs(census.inputs.values())
    assert memory.peak_bytes == before + (64 + 32) * KIB


@pytest.fixture
def _frozen_as_before() -> Iterator[None]:
    """What is left out of collections afterwards is what was left out before."""
    was_frozen = gc.get_freeze_count() > 0
    yield
    gc.unfreeze()
    if was_frozen:
        gc.collect()
        gc.freeze()


@pytest.mark.usefixtures("_frozen_as_before")
def test_older_tensors_count_where_they_are_left_out_of_collections() -> None:
    """The collector does not list them; newer ones, and those made by the step, it does."""
    older, loaded = tensor(64), io.BytesIO()
    torch.save(tensor(128), loaded)
    gc.freeze()
    memory = TensorMemory()
    newer = tensor(32)

    def call() -> None:
        loaded.seek(0)
        torch.load(loaded).add_(1)
        older.add_(1)
        newer.add_(torch.tensor(1, dtype=torch.uint8))

    peak = peak_of(memory, call)
    assert peak > (32 + 128) * KIB
    census = take_census(call)
    assert census is not None
    memory.add_inputs(census.inputs.values())
    assert memory.peak_bytes == peak + 64 * KIB


@pytest.mark.parametrize(
    ("call", "inputs"), [(tensor(64).clone, None), (lambda: bytearray(KIB), ())]
)
def test_what_nobody_could_look_at_has_no_peak(call: Callable[[], object], inputs: Any) -> None:
    """The older tensors that it works on are not known, or there are none: nought were wrong."""
    memory = TensorMemory()
    memory.watch(call)
    memory.add_inputs(inputs)
    assert memory.facts == {}


def test_a_tensor_in_the_place_of_an_older_one_is_new() -> None:
    """It has the same size, and the memory of one that was there when the benchmark began."""
    older = [tensor(64) for _ in range(50)]
    memory = TensorMemory()
    older.clear()
    _newer = [tensor(64) for _ in range(50)]
    assert peak_of(memory, lambda: None) == 50 * 64 * KIB


def test_tensors_in_the_place_of_those_of_an_earlier_call_are_held() -> None:
    """The call that frees them takes as much as it would have taken without the earlier one."""
    kept: list[torch.Tensor] = []

    def keep() -> set[int]:
        kept.extend(tensor(64) for _ in range(50))
        return {older.data_ptr() for older in kept}

    def free_and_allocate() -> None:
        kept.clear()
        tensor(128)

    earlier: list[set[int]] = []
    TensorMemory().watch(lambda: earlier.append(keep()))
    kept.clear()
    memory = TensorMemory()
    assert keep() & earlier[0]  # else nothing is shown
    assert peak_of(memory, free_and_allocate) == (50 * 64 + 128) * KIB


def test_what_only_torch_holds_of_an_earlier_call_is_not_taken_off() -> None:
    """The graph that a call drops before it builds its own has blocks in the place of others."""
    weight = tensor(64).float().requires_grad_()

    def build() -> torch.Tensor:
        return weight.exp().exp()  # saves the results, which Python does not see

    graphs = []

    def rebuild() -> None:
        graphs.clear()
        graphs.append(build())

    first, second = TensorMemory(), TensorMemory()
    for memory in (first, second):
        graphs[:] = [build()]
        memory.watch(rebuild)
        graphs.clear()
    assert first.peak_bytes == second.peak_bytes


def test_a_call_that_fails_is_left_to_the_next() -> None:
    """What it raises, the timed call raises again, where it is told; there is no peak."""

    def fail() -> None:
        tensor(16)
        raise ValueError

    memory = TensorMemory()
    memory.watch(fail)
    memory.add_inputs(())
    assert memory.facts == {}
    assert not torch.autograd._profiler_enabled()


def test_under_a_profiler_nothing_is_known() -> None:
    """Only one runs at a time: the call is not even made."""
    memory, calls = TensorMemory(), []
    with torch.autograd.profiler.profile():
        memory.watch(lambda: calls.append(1))
    assert (memory.facts, calls) == ({}, [])
