"""Pinned cache, graph capture and phase times, as far as they can be shown without a GPU."""

from __future__ import annotations

import pytest
import torch

from gpubench_plugin.errors import Unsupported
from gpubench_plugin.workloads.moe import ExpertCache, GraphedRouter, offload, phase_times
from gpubench_plugin.workloads.moe import construction as room
from gpubench_plugin.workloads.moe import measured as timing
from gpubench_plugin.workloads.moe.layer import _TensorRouter
from tests.unit.workloads.moe.made import CPU, construction, measured


def cache_of(experts, size):
    kept = [(torch.full((2, 4), float(e)), torch.full((2, 2), float(e))) for e in range(experts)]
    return ExpertCache(kept, size=size, device=CPU)


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


def test_a_cache_holds_no_more_than_there_is():
    """Room for nine of three experts takes the memory of three."""
    assert len(cache_of(3, 9)._slots) == 3


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
