"""The phases of a step, and how experts are used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubench_plugin.measure.metrics._all import compute_all

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubench_plugin.core.records import Observation


def test_shares_are_of_the_sum_of_all_phases(observe: Callable[..., Observation]) -> None:
    """1 and 3 s are a quarter and three quarters; other facts are no phases."""
    seen = observe(facts={"phase_a_s": 1.0, "phase_b_s": 3.0, "data_wait_s": 9.0, "phase_c": 1.0})
    values = {n: m.value for n, m in compute_all(seen).items() if n.startswith("phase_")}
    assert values == {
        "phase_a_s": 1.0, "phase_a_share": 0.25, "phase_b_s": 3.0, "phase_b_share": 0.75
    }  # fmt: skip


def test_phases_that_took_no_time_have_no_share(observe: Callable[..., Observation]) -> None:
    """Nothing is divided by nothing."""
    assert "phase_a_share" not in compute_all(observe(facts={"phase_a_s": 0.0}))


def test_only_what_was_seen_of_experts_is_reported(observe: Callable[..., Observation]) -> None:
    """Without a capacity nothing is said of dropping."""
    names = compute_all(observe(facts={"expert_load": 1.5})).keys()
    assert "expert_load" in names
    assert names.isdisjoint({"dropped_fraction", "expert_capacity", "expert_cache_hit_fraction"})
