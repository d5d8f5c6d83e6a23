"""The state of the process is put back after a benchmark."""

from __future__ import annotations

import gc
import os
import random
import sys
import types
import warnings
from collections.abc import Callable
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gpubench_plugin.core.errors import GpubenchError
from gpubench_plugin.measure.torch_state import state_restored

CPU = torch.device("cpu")


class BodyError(Exception):
    """What the body of a test raises."""


def raising(device: torch.device, *changes: Callable[[], object]) -> None:
    """Make these changes in a body that then raises."""
    with state_restored(device):
        for change in changes:
            change()
        raise BodyError


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spare many small tests the collection of garbage and of compiled code."""
    monkeypatch.setattr(gc, "collect", lambda: 0)
    monkeypatch.setattr(torch.compiler, "reset", lambda: None)


def set_precision(path: str, value: str) -> None:
    """Set an fp32_precision, at any depth of torch.backends."""
    owner: Any = attrgetter(path)(torch.backends) if path else torch.backends
    owner.fp32_precision = value


def precisions() -> dict[str, Any]:
    """Every fp32_precision, and what the switches before them say."""
    backends: Any = torch.backends

    def old(read: Callable[[], object]) -> object:
        try:
            return read()
        except RuntimeError:
            return "unreadable"

    paths = ("cuda.matmul", "cudnn", "cudnn.conv", "cudnn.rnn")
    paths += ("mkldnn", "mkldnn.matmul", "mkldnn.conv", "mkldnn.rnn")
    return {
        "": backends.fp32_precision,
        **{path: attrgetter(path)(backends).fp32_precision for path in paths},
        "old matmul": old(lambda: backends.cuda.matmul.allow_tf32),
        "old cudnn": old(lambda: backends.cudnn.allow_tf32),
        "old overall": old(torch.get_float32_matmul_precision),
    }


PRECISION_CHANGES: dict[str, Callable[[], None]] = {
    "all ieee": lambda: set_precision("", "ieee"),
    "all tf32": lambda: set_precision("", "tf32"),
    "matmul tf32": lambda: set_precision("cuda.matmul", "tf32"),
    "cudnn ieee": lambda: set_precision("cudnn", "ieee"),
    "convolutions ieee": lambda: set_precision("cudnn.conv", "ieee"),
    "mkldnn bf16": lambda: set_precision("mkldnn", "bf16"),
    "old matmul": partial(setattr, torch.backends.cuda.matmul, "allow_tf32", True),
    "old cudnn": partial(setattr, torch.backends.cudnn, "allow_tf32", False),
    "old overall": lambda: torch.set_float32_matmul_precision("medium"),
}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("second", PRECISION_CHANGES)
@pytest.mark.parametrize("first", PRECISION_CHANGES)
def test_tf32_switches_are_put_back(first: str, second: str) -> None:
    """Old and new switches read as before, whichever two of them were set, in either order."""
    before = precisions()
    changed: list[dict[str, Any]] = []
    with pytest.raises(BodyError):
        raising(
            CPU,
            PRECISION_CHANGES[first],
            PRECISION_CHANGES[second],
            lambda: changed.append(precisions()),
        )
    assert [before] != changed
    assert before == precisions()


def test_old_switches_that_cannot_be_read_are_left_alone() -> None:
    """Where the new switches were set before, nothing is read or written by the old names."""
    with state_restored(CPU):
        set_precision("cuda.matmul", "tf32")
        set_precision("cudnn.conv", "ieee")
        before = precisions()
        assert before["old matmul"] == "unreadable"
        with state_restored(CPU):
            set_precision("", "ieee")
        assert before == precisions()


def attribute(owner: object, name: str, value: object) -> tuple[Callable[[], object], ...]:
    """How it is read, and changed to `value`."""
    return partial(getattr, owner, name), partial(setattr, owner, name, value)


CHANGES: dict[str, tuple[Callable[[], object], ...]] = {
    "cudnn.enabled": attribute(torch.backends.cudnn, "enabled", False),
    "cudnn.benchmark": attribute(torch.backends.cudnn, "benchmark", True),
    "cudnn.deterministic": attribute(torch.backends.cudnn, "deterministic", True),
    "deterministic algorithms": (
        torch.get_deterministic_debug_mode,
        partial(torch.use_deterministic_algorithms, True, warn_only=True),
    ),
    "memory": attribute(torch.utils.deterministic, "fill_uninitialized_memory", False),
    "dtype": (torch.get_default_dtype, partial(torch.set_default_dtype, torch.float64)),
    "device": (torch.get_default_device, partial(torch.set_default_device, "meta")),
    "grad mode": (torch.is_grad_enabled, partial(torch.set_grad_enabled, False)),
    "autocast": (
        partial(torch.is_autocast_enabled, "cpu"),
        partial(torch.set_autocast_enabled, "cpu", True),
    ),
    "autocast's dtype": (
        partial(torch.get_autocast_dtype, "cpu"),
        partial(torch.set_autocast_dtype, "cpu", torch.float16),
    ),
    "a variable": (partial(os.getenv, "PATH"), partial(os.environ.update, PATH="/nowhere")),
    "all variables": (
        lambda: {name: os.environ[name] for name in os.environ if name != "PYTEST_CURRENT_TEST"},
        os.environ.clear,
    ),
    "working directory": (Path.cwd, partial(os.chdir, "/")),
    "anomaly mode": (torch.is_anomaly_enabled, partial(torch.set_anomaly_enabled, True)),
    "threads": (torch.get_num_threads, lambda: torch.set_num_threads(torch.get_num_threads() + 1)),
    "garbage collection": (gc.isenabled, gc.disable),
}


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("what", CHANGES)
def test_a_switch_is_put_back(what: str) -> None:
    """The switch reads as before, although the body raised."""
    read, change = CHANGES[what]
    before = read()
    changed: list[object] = []
    with pytest.raises(BodyError):
        raising(CPU, change, lambda: changed.append(read()))
    assert [before] != changed
    assert before == read()


@pytest.mark.usefixtures("quick")
def test_variables_of_libraries_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was added to the environment stays."""
    monkeypatch.setenv("GPUBENCH_TEST_ADDED", "")
    monkeypatch.delenv("GPUBENCH_TEST_ADDED")
    with state_restored(CPU):
        os.environ["GPUBENCH_TEST_ADDED"] = "by a library"
    assert os.environ["GPUBENCH_TEST_ADDED"] == "by a library"


@pytest.mark.parametrize("draw", [random.random, np.random.random, lambda: float(torch.rand(()))])
def test_random_generators_are_put_back(draw: Callable[[], float]) -> None:
    """After the body the generator gives what it would have given without it."""
    with state_restored(CPU):
        expected = draw()
    seeds = (partial(seed, 1) for seed in (torch.manual_seed, np.random.seed, random.seed))
    with pytest.raises(BodyError):
        raising(CPU, *seeds, draw)
    assert expected == draw()


def test_a_default_device_of_the_user_is_put_back() -> None:
    """A default device other than the CPU that was set before is set again."""
    try:
        torch.set_default_device("meta")
        with state_restored(CPU):
            torch.set_default_device("cpu")
        assert torch.get_default_device().type == "meta"
    finally:
        torch.set_default_device(None)


@pytest.mark.parametrize("imported", [True, False])
def test_compiled_code_is_forgotten_if_there_can_be_any(
    monkeypatch: pytest.MonkeyPatch, imported: bool
) -> None:
    """Dynamo is reset only where something imported it: the reset itself never does."""
    resets: list[str] = []
    monkeypatch.setattr(torch.compiler, "reset", lambda: resets.append("reset"))
    if imported:
        monkeypatch.setitem(sys.modules, "torch._dynamo", types.ModuleType("torch._dynamo"))
    else:
        monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)
    with pytest.raises(BodyError):
        raising(CPU)
    assert resets == ["reset"] * imported


@pytest.mark.parametrize("is_initialized", [True, False])
def test_an_accelerator_begins_and_ends_afresh(
    monkeypatch: pytest.MonkeyPatch, is_initialized: bool
) -> None:
    """The allocator's cache and peaks before and after, the generators of its devices after.

    Before its first use there are no peaks, and torch refuses to reset them.
    """
    did: list[object] = []
    module = types.SimpleNamespace(
        is_initialized=lambda: is_initialized,
        empty_cache=lambda: did.append("empty cache"),
        reset_peak_memory_stats=lambda device: did.append(("reset peaks", device)),
        get_rng_state_all=lambda: ["state"],
        set_rng_state_all=lambda state: did.append(("generators", state)),
    )
    monkeypatch.setattr(torch, "get_device_module", lambda _: module)
    device = torch.device("cuda", 1)
    with pytest.raises(BodyError):
        raising(device, lambda: did.append("body"))
    fresh = ["empty cache", *[("reset peaks", device)] * is_initialized]
    assert [*fresh, "body", ("generators", ["state"]), *fresh] == did


def test_accelerator_that_keeps_its_memory_harms_no_benchmark(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What it refuses before and after a benchmark is a warning each, even if those are errors."""

    def refuse(*_: object) -> None:
        raise torch.AcceleratorError("CUDA error: not ready")

    module = types.SimpleNamespace(
        is_initialized=lambda: True,
        empty_cache=refuse,
        reset_peak_memory_stats=refuse,
        get_rng_state_all=list,
        set_rng_state_all=lambda _: None,
    )
    monkeypatch.setattr(torch, "get_device_module", lambda _: module)
    with warnings.catch_warnings(record=True) as recorded:
        warnings.simplefilter("error")
        with state_restored(torch.device("cuda", 1)):
            pass
    refused = ["release the unused memory of cuda:1", "reset the peak memory of cuda:1"] * 2
    assert [str(warning.message) for warning in recorded] == [
        f"could not {action}: AcceleratorError: CUDA error: not ready" for action in refused
    ]


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], bool]], list[str]]:
    """A CUDA device in use, whose stream answers by a function; what is done is listed."""
    done: list[str] = []

    def install(query: Callable[[], bool]) -> list[str]:
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
        stream = types.SimpleNamespace(query=query)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda _: stream)
        module = types.SimpleNamespace(
            empty_cache=lambda: done.append("empty cache"),
            get_rng_state_all=list,
            set_rng_state_all=lambda _: done.append("generators"),
        )
        monkeypatch.setattr(torch, "get_device_module", lambda _: module)
        return done

    return install


LOST = "CUDA error: an illegal memory access was encountered"


def lost() -> bool:
    """What a query of a lost device does."""
    raise torch.AcceleratorError(LOST)


def test_context_lost_by_work_left_on_the_device_is_raised_at_the_end(
    cuda: Callable[[Callable[[], bool]], list[str]],
) -> None:
    """By the benchmark whose work it was, not by the next; everything else is restored."""
    ended = False
    done = cuda(lambda: lost() if ended else True)
    threads = torch.get_num_threads()

    def body() -> None:
        nonlocal ended
        with state_restored(torch.device("cuda", 0)):
            torch.set_num_threads(threads + 1)
            ended = True

    with pytest.raises(torch.AcceleratorError, match=LOST):
        body()
    assert torch.get_num_threads() == threads
    assert done == ["empty cache", "generators"]


def test_context_lost_before_the_body_is_not_the_bodys(
    cuda: Callable[[Callable[[], bool]], list[str]],
) -> None:
    """A test that is no benchmark may have lost it: the body never runs."""
    done = cuda(lost)
    message = "cuda:0: its context was lost before this benchmark"
    with pytest.raises(GpubenchError, match=message) as error:
        raising(torch.device("cuda", 0), lambda: done.append("body"))
    assert str(error.value.__cause__) == LOST
    assert done == []


def test_garbage_of_the_body_is_collected() -> None:
    """A cycle that the body leaves is gone, although collection was off meanwhile."""

    class Node:
        alive = 0

        def __init__(self) -> None:
            self.me = self
            Node.alive += 1

        def __del__(self) -> None:
            Node.alive -= 1

    with state_restored(CPU):
        gc.disable()
        Node()
        assert Node.alive == 1
    assert Node.alive == 0
