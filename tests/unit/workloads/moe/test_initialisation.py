"""Weights drawn by integers."""

from __future__ import annotations

import pytest
import torch

from gpubench_plugin.workloads.moe import experts
from gpubench_plugin.workloads.moe.experts import weights
from tests.unit.workloads.moe.made import section


def values(count, seed=0, stream=0):
    return experts.uniform((count,), bound=0.5, seed=seed, stream=stream, device="cpu")


def test_values_are_those_of_the_hash_in_plain_integers():
    """An element is what Python's integers give for its number: no device computes otherwise."""

    def mixed(number):
        for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
            number = (number ^ (number >> shift)) * factor % 2**32
        return number ^ (number >> 16)

    key = mixed(mixed(7) ^ 3)
    expected = [((mixed(mixed(n) ^ key) >> 8) - 2**23) / 2**23 * 0.5 for n in range(50)]
    assert values(50, seed=7, stream=3).tolist() == expected


def test_values_are_uniform():
    """Mean, variance and ends are those of a uniform distribution on ±0.5."""
    drawn_values = values(100_000).double()
    assert abs(float(drawn_values.mean())) < 0.003
    assert float(drawn_values.var()) == pytest.approx(1 / 12, rel=0.01)
    assert -0.5 <= float(drawn_values.min()) < -0.499
    assert 0.499 < float(drawn_values.max()) < 0.5


def test_chunks_do_not_show(monkeypatch):
    """A weight drawn piece by piece is the one drawn at once."""
    whole = values(1000)
    monkeypatch.setattr(experts, "_CHUNK", 64)
    assert values(1000).equal(whole)


def test_seeds_and_streams_are_independent():
    """Another seed or stream gives values that have nothing to do with each other."""
    several = torch.stack([values(10_000, s, t) for s, t in ((0, 0), (1, 0), (0, 1), (1, 1))])
    correlation = torch.corrcoef(several) - torch.eye(4)
    assert float(correlation.abs().max()) < 0.05


def test_an_expert_is_the_same_whoever_draws_it():
    """A rank that draws experts 2 and 0 gets those that a rank drawing all of them has."""
    everything, some = (weights(section(), experts, seed=5) for experts in (range(4), (2, 0)))
    assert all(part.equal(whole[[2, 0]]) for part, whole in zip(some, everything, strict=True))


def test_slices_of_an_expert_make_it_whole():
    """Two halves of the hidden features are the expert's: columns of A and B, rows of C."""
    (w_in, w_out), *halves = (
        weights(section(), (1,), seed=5, tensor_part=part) for part in ((0, 1), (0, 2), (1, 2))
    )
    gate_and_up = torch.cat([half.unflatten(2, (2, 4)) for half, _ in halves], dim=3)
    assert gate_and_up.flatten(2).equal(w_in)
    assert torch.cat([half for _, half in halves], dim=1).equal(w_out)
