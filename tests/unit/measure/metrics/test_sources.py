"""Sources of metrics: what each makes of what was observed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.core import catalog
from gpubench_plugin.core.quality_flags import DOUBTFUL_FLAGS, MEANINGS
from gpubench_plugin.core.records import Metric
from gpubench_plugin.measure.metrics._all import compute_all
from tests.support.observations import observe, sampled, timed

if TYPE_CHECKING:
    from gpubench_plugin.core.records import Observation


def computed(source: str, seen: Observation) -> list[Metric]:
    return list(catalog.load("metrics", source)(seen))


@pytest.mark.parametrize(
    ("source", "facts", "expected"),
    [
        (
            "peak-memory",
            {"peak_memory_bytes": 17.0},
            [Metric(name="peak_memory_bytes", value=17.0, unit="bytes", better="lower")],
        ),
        (
            "training",
            {"skipped_steps": 0.0},
            [Metric(name="skipped_steps", value=0.0, unit="count", better="lower")],
        ),
        (
            "data-wait",
            {"data_wait_s": 1.5},
            [Metric(name="data_wait_fraction", value=0.25, unit="fraction", better="lower")],
        ),
        (
            "training",
            {"loss_first": 2.0, "loss_last": 0.5},
            [
                Metric(name="loss_first", value=2.0, unit="1"),
                Metric(name="loss_last", value=0.5, unit="1", better="lower"),
            ],
        ),
        (
            "compile-time",
            {"compiled": 1.0},
            [Metric(name="compile_time_s", value=2.45, unit="s", better="lower")],
        ),
        ("compile-time", {"compiled": 0.0}, []),
        ("compile-time", {}, []),
        ("peak-memory", {}, []),
        ("data-wait", {}, []),
        ("training", {}, []),
        ("rank-skew", {}, []),
        ("first-step", {}, [Metric(name="first_step_s", value=3.0, unit="s", better="lower")]),
        (
            "warmup",
            {},
            [
                Metric(name="warmup_s", value=1.0, unit="s"),
                Metric(name="warmup_iterations", value=3.0, unit="count"),
            ],
        ),
    ],
)
def test_a_source_reads_its_facts(
    source: str, facts: dict[str, float], expected: list[Metric]
) -> None:
    """What was seen becomes a metric; what was not seen becomes none."""
    assert computed(source, observe(facts=facts)) == expected


def test_a_first_step_that_compiled_nothing_has_no_compile_time() -> None:
    """A first step as fast as the others found the compiled code there."""
    seen = observe(samples=sampled(first_step_s=0.5), facts={"compiled": 1.0})
    assert computed("compile-time", seen) == []


def test_only_whole_rounds_count() -> None:
    """Ten durations are three rounds of three."""
    seen = observe(samples=sampled(durations_per_round=3))
    assert Metric(name="rounds", value=3.0, unit="count") in computed("step-time", seen)


def test_the_skew_is_from_the_fastest_to_the_slowest_rank() -> None:
    """Three ranks with medians of 2, 5 and 3 s are 3 s apart."""
    ranks = tuple(timed(rank, median_s=median) for rank, median in enumerate((2.0, 5.0, 3.0)))
    assert computed("rank-skew", observe(ranks=ranks, world_size=3)) == [
        Metric(name="rank_skew_s", value=3.0, unit="s", better="lower")
    ]


def test_shares_are_of_the_sum_of_all_phases() -> None:
    """1 and 3 s are a quarter and three quarters; other facts are no phases."""
    seen = observe(facts={"phase_a_s": 1.0, "phase_b_s": 3.0, "data_wait_s": 9.0, "phase_c": 1.0})
    values = {n: m.value for n, m in compute_all(seen).items() if n.startswith("phase_")}
    assert values == {
        "phase_a_s": 1.0, "phase_a_share": 0.25, "phase_b_s": 3.0, "phase_b_share": 0.75
    }  # fmt: skip


def test_phases_that_took_no_time_have_no_share() -> None:
    """Nothing is divided by nothing."""
    assert "phase_a_share" not in compute_all(observe(facts={"phase_a_s": 0.0}))


def test_only_what_was_seen_of_experts_is_reported() -> None:
    """Without a capacity nothing is said of dropping."""
    names = compute_all(observe(facts={"expert_load": 1.5})).keys()
    assert "expert_load" in names
    assert names.isdisjoint({"dropped_fraction", "expert_capacity", "expert_cache_hit_fraction"})


PIPELINE = {"one_process_s": 1.1, "ideal_speed_up": 1.6}


@pytest.mark.parametrize("flag", MEANINGS)
def test_a_pipeline_in_doubt_has_no_speed_up(flag: str) -> None:
    """Its median may be wrong, so what is divided by it is left out; a note leaves it there."""
    seen = observe(samples=sampled(flags=(flag,)), facts=PIPELINE, world_size=2)
    found = {metric.name: metric.value for metric in computed("pipeline", seen)}
    gained = {} if flag in DOUBTFUL_FLAGS else {"speed_up": 2.0, "pipeline_efficiency": 1.25}
    assert found == pytest.approx(PIPELINE | gained)


@pytest.mark.parametrize(("window_s", "joules"), [(60.0, 1300 / 800), (62.0, None)])
def test_energy_is_that_of_the_samples_unless_other_work_took_some(
    everything: Observation, window_s: float, joules: float | None
) -> None:
    """1300 J for 100 calls of 8 samples in 55 s; the rest of the window is at most a tenth."""
    facts = {**everything.facts, "energy_window_s": window_s}
    energy = computed("energy", replace(everything, facts=facts))
    found = {metric.name: metric.value for metric in energy}
    assert found == ({} if joules is None else {"energy_j_per_sample": pytest.approx(joules)})


@pytest.mark.parametrize(
    ("fact", "tokens", "name", "seconds"),
    [
        ("first_tokens", 1.0, "ttft_s", 0.55),
        ("output_tokens", 1.0, "tpot_s", 0.55),
        ("output_tokens", 5.0, "tpot_s", 0.11),
    ],
)
def test_latency_is_the_median_call_over_its_tokens(
    fact: str, tokens: float, name: str, seconds: float
) -> None:
    """Ten calls of 0.1 to 1.0 s have the median 0.55 s, shared by the tokens of a row."""
    (metric,) = computed("token-latency", observe(facts={fact: tokens}))
    assert metric == Metric(name=name, value=pytest.approx(seconds), unit="s", better="lower")


def test_what_generates_nothing_has_no_latency() -> None:
    """Without such a fact there is no metric."""
    assert computed("token-latency", observe()) == []
