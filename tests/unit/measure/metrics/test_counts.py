from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.core import catalog
from gpubench_plugin.core.records import Metric

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubench_plugin.core.records import Observation, RankTimes, Samples


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
            "skipped-steps",
            {"skipped_steps": 0.0},
            [Metric(name="skipped_steps", value=0.0, unit="count", better="lower")],
        ),
        (
            "data-wait",
            {"data_wait_s": 1.5},
            [Metric(name="data_wait_fraction", value=0.25, unit="fraction", better="lower")],
        ),
        (
            "loss",
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
        ("skipped-steps", {}, []),
        ("data-wait", {}, []),
        ("loss", {}, []),
        ("rank-skew", {}, []),
        (
            "first-step",
            {},
            [Metric(name="first_step_s", value=3.0, unit="s", better="lower")],
        ),
        (
            "warmup",
            {},
            [
                Metric(name="warmup_s", value=1.0, unit="s"),
                Metric(name="warmup_iterations", value=3.0, unit="count"),
            ],
        ),
        ("rounds", {}, [Metric(name="rounds", value=10.0, unit="count")]),
    ],
)
def test_a_source_reads_its_facts(
    observe: Callable[..., Observation],
    source: str,
    facts: dict[str, float],
    expected: list[Metric],
) -> None:
    """What was seen becomes a metric; what was not seen becomes none."""
    assert computed(source, observe(facts=facts)) == expected


def test_a_first_step_that_compiled_nothing_has_no_compile_time(
    observe: Callable[..., Observation], sampled: Callable[..., Samples]
) -> None:
    """A first step as fast as the others found the compiled code there."""
    seen = observe(samples=sampled(first_step_s=0.5), facts={"compiled": 1.0})
    assert computed("compile-time", seen) == []


def test_only_whole_rounds_count(
    observe: Callable[..., Observation], sampled: Callable[..., Samples]
) -> None:
    """Ten durations are three rounds of three."""
    seen = observe(samples=sampled(durations_per_round=3))
    assert [metric.value for metric in computed("rounds", seen)] == [3.0]


def test_the_skew_is_from_the_fastest_to_the_slowest_rank(
    observe: Callable[..., Observation], timed: Callable[..., RankTimes]
) -> None:
    """Three ranks with medians of 2, 5 and 3 s are 3 s apart."""
    ranks = tuple(timed(rank, median_s=median) for rank, median in enumerate((2.0, 5.0, 3.0)))
    assert computed("rank-skew", observe(ranks=ranks, world_size=3)) == [
        Metric(name="rank_skew_s", value=3.0, unit="s", better="lower")
    ]
