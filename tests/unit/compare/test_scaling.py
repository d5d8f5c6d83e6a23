"""Speed-up and efficiency as metrics of a measurement."""

from __future__ import annotations

from typing import Any

import pytest

from gpubench_plugin.compare.comparison import compare_threshold
from gpubench_plugin.compare.scaling import Families, families, kind_of
from gpubench_plugin.core.records import Measurement, Metric, Run, Work
from tests.support.made import result
from tests.support.messages import mentions


def measured(
    ranks: int, rate: float, *, amount: float = 8.0, spread: float = 0.0, **fields: Any
) -> Measurement:
    """A benchmark that does `amount` of work a call on all its ranks together."""
    numbers = {"samples_per_s": rate}
    if spread:
        numbers |= {
            "samples_ci_low_per_s": rate / (1 + spread),
            "samples_ci_high_per_s": rate * (1 + spread),
        }
    name = f"test_it[fp32-ranks{ranks}]" if ranks > 1 else "test_it[fp32]"
    given = {
        "id": f"test_it.py::{name}",
        "name": name,
        "params": {"precision": "fp32", "world_size": str(ranks)},
        "outcome": "measured",
        "world_size": ranks,
        "work": Work(samples=amount),
        "metrics": {name: Metric(name=name, value=v, unit="") for name, v in numbers.items()},
    }
    return Measurement(**{**given, **fields})


def known_of(*measurements: Measurement) -> dict[int, dict[str, float]]:
    """By number of ranks, the metrics of scaling after all have come."""
    session: dict[str, Measurement] = {}
    coming = Families()
    for measurement in measurements:
        session |= coming.add(measurement)
    return {
        one.world_size: {n: m.value for n, m in one.metrics.items() if n.startswith("scaling")}
        for one in session.values()
    }


def test_each_number_of_ranks_is_held_against_the_smallest() -> None:
    """Whatever their order: a smaller one that comes later takes the place of the first."""
    expected = {
        1: {"scaling_speed_up": 1.0, "scaling_efficiency": 1.0},
        2: {"scaling_speed_up": 1.5, "scaling_efficiency": 0.75},
        4: {"scaling_speed_up": 2.0, "scaling_efficiency": 0.5},
    }
    one, two, four = measured(1, 100.0), measured(2, 150.0), measured(4, 200.0)
    assert known_of(one, two, four) == expected
    assert known_of(four, two, one) == expected
    assert known_of(two, four)[4] == pytest.approx(
        {"scaling_speed_up": 4 / 3, "scaling_efficiency": 2 / 3}
    )


def test_both_sides_errors_make_the_interval() -> None:
    """As logarithms, in squares: 3% and 4% are 5%; what failed or is alone has no part."""
    found = known_of(measured(1, 100.0, spread=0.03), measured(2, 150.0, spread=0.04))[2]
    assert set(found) == {
        f"{name}{end}"
        for name in ("scaling_speed_up", "scaling_efficiency")
        for end in ("", "_ci_low", "_ci_high")
    }
    assert found["scaling_efficiency_ci_low"] == pytest.approx(0.75 / 1.05, rel=1e-3)
    assert found["scaling_speed_up_ci_high"] == pytest.approx(1.5 * 1.05, rel=1e-3)
    assert (
        "scaling_speed_up_ci_low"
        not in known_of(measured(1, 100.0, spread=0.03), measured(2, 150.0))[2]
    )
    failed = measured(2, 1.0, outcome="failed", metrics={})
    assert known_of(measured(1, 100.0), failed) == {1: {}, 2: {}}
    without = measured(2, 1.0, metrics={})
    assert known_of(measured(1, 100.0), without) == {1: {}, 2: {}}
    params = {"precision": "bf16", "world_size": "2"}
    assert known_of(measured(1, 100.0), measured(2, 1.0, params=params)) == {1: {}, 2: {}}


@pytest.mark.parametrize("doubt", ["contended", "dependent"])
def test_what_is_in_doubt_is_divided_by_nothing(doubt: str) -> None:
    """Nor does it divide; a note takes nothing away."""
    good, spoilt = measured(1, 100.0), measured(2, 150.0, flags=(doubt, "outliers"))
    assert known_of(good, spoilt)[2] == {}
    assert known_of(measured(1, 9.0, flags=(doubt,)), measured(2, 150.0)) == {1: {}, 2: {}}
    assert known_of(good, measured(2, 150.0, flags=("outliers",)))[2] != {}


@pytest.mark.parametrize(
    ("amounts", "kind"),
    [
        ((8, 8, 8), "strong"),
        ((8, 16, 32), "weak"),
        ((1000, 1999, 4001), "weak"),
        ((8, 8, 16), ""),
        ((8, 17, 32), ""),
    ],
)
def test_the_kind_of_scaling_is_read_from_the_work(amounts: tuple[int, ...], kind: str) -> None:
    """Whatever the configuration says of batches: a pipeline of ranks shares the samples, too."""
    configuration = {"distributed": {"scaling": "weak"}}
    (family,) = families(
        measured(ranks, 100.0, amount=amount, configuration=configuration)
        for ranks, amount in zip((1, 2, 4), amounts, strict=True)
    )
    assert kind_of(family) == kind


def test_a_limit_on_the_efficiency_is_judged_without_a_baseline() -> None:
    """And where a side was in doubt the reason says what is missing."""
    limits = {"scaling_efficiency": ">=0.8"}
    verdicts = {}
    for name, numbers in (("slow", {"scaling_efficiency": 0.75}), ("in_doubt", {})):
        head = result(name, step_time_s=1.0, limits=limits, **numbers)
        base = result(name, step_time_s=1.0)
        found = compare_threshold(
            [Run(label="a", results={name: base})], Run(label="b", results={name: head})
        )
        (verdicts[name],) = (v for v in found.verdicts if v.metric == "scaling_efficiency")
    assert verdicts["slow"].kind == "regressed"
    assert verdicts["in_doubt"].kind == "not_measured"
    assert mentions(verdicts["in_doubt"].reason, "fewer ranks in the same run", "doubtful flags")
