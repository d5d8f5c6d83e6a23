"""Pinned cache, graph capture and phase times, as far as they can be shown without a GPU."""

from __future__ import annotations

import pytest
import torch

from gpubench_plugin.core.errors import Unsupported
from gpubench_plugin.workloads.moe import construction as room
from gpubench_plugin.workloads.moe import measured as timing
from gpubench_plugin.workloads.moe.experts import CachedExperts, offload
from gpubench_plugin.workloads.moe.layer import GraphedRouter, _TensorRouter, capture_router
from gpubench_plugin.workloads.moe.measured import phase_times
from tests.unit.workloads.moe.made import CPU, construction, measured


def cache_of(experts, size):
    kept = [(torch.full((2, 4), float(e)), torch.full((2, 2), float(e))) for e in range(experts)]
    return CachedExperts(kept, size=size, device=CPU)


def test_the_cache_drops_what_was_used_longest_ago():
    """Of two places, expert 0 used again stays, and expert 1 gives way to expert 2."""
    cache = cache_of(3, 2)
    misses = []
    for expert in (0, 1, 0, 2, 0, 1):
        before = cache.misses
        w_in, w_out = cache.weights(expert)
        assert (float(w_in[0, 0]), float(w_out[0, 0])) == (expert, expert)
        misses.append(cache.misses - before)
    assert misses == [1, 1, 0, 1, 0, 1]
    assert cache.hits == 2


def test_cached_experts_compute_what_the_others_do(monkeypatch):
    """With two of four experts on the device outputs are the reference's; hits are counted."""
    monkeypatch.setattr(
        room, "offload", lambda experts, size: offload(experts, size=size, pin=torch.clone)
    )
    layer = measured("forward", pinned_cache=2)
    check = layer.prepare(None)
    assert check.correctness["error_against_one_process"] == {"output": 0.0}
    layer.begin()
    layer.step()
    facts = layer.finish()
    assert facts["expert_cache_hit_fraction"] == 0  # four experts in turn, two places
    whole = measured("forward", pinned_cache=4)
    whole.prepare(None)
    whole.begin()
    whole.step()
    assert whole.finish()["expert_cache_hit_fraction"] == 1


def test_a_cache_needs_weights_it_can_take(monkeypatch):
    """Transformer Engine keeps its own, so both at once are refused."""
    kind = room.KINDS["te-grouped"]
    monkeypatch.setattr(kind, "unsupported", classmethod(lambda *_: None))
    with pytest.raises(Unsupported, match=r"not supported by moe\.expert_kind=te-grouped"):
        construction(expert_kind="te-grouped", pinned_cache=1)


def test_a_captured_router_gives_the_routing():
    """What capturing replays, tensors in a row, becomes a routing again, with gradients."""
    for keys in ({}, {"capacity_factor": 0.5}):
        made = construction(**keys)
        router, tokens = made.router(), made.tokens(0)
        replayed, plain = GraphedRouter(_TensorRouter(router))(tokens), router(tokens)
        for one, other in zip(replayed, plain, strict=True):
            assert one is None is other or one.equal(other)


@pytest.fixture
def capture(monkeypatch):
    """Captures nothing: the module that is to be captured, and the mode of a capture."""
    calls = []

    def graph(cuda_graph, *, capture_error_mode="global"):
        return capture_error_mode

    def capturing(module, samples):
        calls.append((module, samples, torch.cuda.graph(None)))
        return module

    monkeypatch.setattr(torch.cuda, "graph", graph)
    monkeypatch.setattr(torch.cuda, "make_graphed_callables", capturing)
    return calls, graph


class OnCuda:
    """Tokens as `capture_router` gets them on CUDA."""

    device = torch.device("cuda")

    def __init__(self, tokens):
        self._tokens = tokens

    def detach(self):
        return self._tokens.detach()


def test_a_captured_router_has_the_parameters_of_the_router(capture):
    """They are registered where the layer looks for them, and its zero_grad reaches them."""
    made = construction()
    router, tokens = made.router(), made.tokens(0)
    layer = made.layer(made.placement())
    layer.router = capture_router(router, OnCuda(tokens))
    assert [id(p) for p in layer.router.parameters()] == [id(router.weight)]
    layer(tokens)[0].sum().backward()
    assert router.weight.grad is not None
    layer.zero_grad()
    assert router.weight.grad is None
    ((_, (sample,), _),) = capture[0]
    assert (sample.requires_grad, sample.shape) == (True, tokens.shape)


def test_a_capture_restricts_its_own_thread_alone(capture):
    """NCCL's watchdog may query events meanwhile; afterwards torch's own class is back."""
    made = construction()
    capture_router(made.router(), OnCuda(made.tokens(0)))
    calls, graph = capture
    assert [mode for *_, mode in calls] == ["thread_local"]
    assert torch.cuda.graph is graph


@pytest.mark.parametrize(
    ("device", "dtype", "capability", "reason"),
    [
        ("cpu", "fp32", None, None),
        ("cuda", "bf16", (9, 0), None),
        ("cuda", "bf16", (10, 0), None),
        ("cuda", "bf16", (8, 0), "compute capability 8.0"),
        ("cuda", "bf16", (12, 0), "compute capability 12.0"),
        ("cuda", "fp16", (9, 0), "no grouped kernel for fp16"),
        ("cuda", "tf32", (9, 0), "no grouped kernel for tf32"),
    ],
)
def test_grouped_experts_say_where_torch_waits(device, dtype, capability, reason, monkeypatch):
    """Outside of bf16, and on devices without the kernel, torch reads the ends on the host."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    found = room.KINDS["grouped"].wait_reason(torch.device(device), dtype)
    assert found is None if reason is None else reason in found


def test_the_record_says_that_experts_wait(monkeypatch):
    """The reason stands beside the errors, and nothing where nothing waits."""

    def correctness():
        return measured("forward", expert_kind="grouped").prepare(None).correctness

    assert "experts_wait" not in correctness()
    monkeypatch.setattr(room.KINDS["grouped"], "wait_reason", classmethod(lambda *_: "torch loops"))
    assert correctness()["experts_wait"] == "torch loops"


class Event:
    """A CUDA event on a device whose every stage takes 2 ms."""

    now_ms = 0.0

    def __init__(self, enable_timing):
        assert enable_timing

    def record(self):
        self.at = Event.now_ms

    def synchronize(self):
        pass

    def elapsed_time(self, end):
        return end.at - self.at


def test_phases_are_timed_by_events_on_cuda(monkeypatch):
    """Seconds between the events around a stage, whatever the host's clock says."""
    monkeypatch.setattr(timing.torch.cuda, "Event", Event)

    def stage(value):
        Event.now_ms += 2.0
        return value

    times = phase_times([("a", stage), ("b", stage)], device=torch.device("cuda"), calls=3)
    assert times == pytest.approx({"a": 0.002, "b": 0.002})


def test_each_stage_is_fed_by_the_one_before(monkeypatch):
    """On the host: the median over the calls, by a clock of its own."""
    ticks = iter([0.0, 1.0, 3.0, 10.0, 11.5, 14.0, 20.0, 21.0, 29.0])
    monkeypatch.setattr(timing, "perf_counter", lambda: next(ticks))
    seen = []
    stages = [("first", lambda _: 1), ("second", seen.append)]
    assert phase_times(stages, device=CPU, calls=3) == {"first": 1.0, "second": 2.5}
    assert seen == [1, 1, 1]
