"""The lines on variants below the table."""

from __future__ import annotations

from typing import Any

import pytest

from gpubench_plugin.core.records import Measurement, Metric
from gpubench_plugin.reports.markup import plain
from gpubench_plugin.reports.side_by_side import variant_lines
from gpubench_plugin.reports.text import width
from tests.support.messages import mentions


def benchmark(*names: str, flags: tuple[str, ...] = (), **metrics: float) -> Measurement:
    """A measurement that compared variants of these `names`."""
    return Measurement(
        id="test_it.py::test_step",
        name="test_step",
        outcome="measured",
        params={},
        world_size=1,
        flags=flags,
        metrics={name: Metric(name=name, value=value, unit="1") for name, value in metrics.items()},
        correctness={"variants": [{"name": name, "flags": []} for name in names]},
    )


def rendered(measurement: Measurement, columns: int = 120) -> list[str]:
    return [plain(line) for line in variant_lines([measurement], columns)]


CLEAR = {"speed_up": 1.8234, "speed_up_ci_low": 1.7911, "speed_up_ci_high": 1.8612}


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({}, "compiled is 1.82x (1.79 .. 1.86)"),
        ({"flags": ("outliers",)}, "compiled is 1.82x (1.79 .. 1.86)"),
        ({"flags": ("drifting",)}, "≈ compiled is 2x"),
        (
            {"speed_up": 801808.3, "speed_up_ci_low": 7e5, "speed_up_ci_high": 9e5,
             "flags": ("drifting",)},
            "≈ compiled is > 1000x",
        ),
        (
            {"speed_up": 0.5512, "speed_up_ci_low": 0.5502, "speed_up_ci_high": 0.5531},
            "compiled is 0.5512x (0.5502 .. 0.5531)",
        ),
        (
            {"speed_up": 1.001, "speed_up_ci_low": 0.991, "speed_up_ci_high": 1.013},
            "no difference visible: compiled is 0.991 .. 1.01 times",
        ),
        (
            {"speed_up": 0.37, "speed_up_ci_low": 0.03, "speed_up_ci_high": 2.1,
             "flags": ("contended",)},
            "≈ no difference visible: compiled is 0.030 .. 2.1 times",
        ),
        (
            {"variant_eager_step_time_s": 1.9e-3, "variant_compiled_step_time_s": 1e-3},
            "compiled is 1.82x (1.79 .. 1.86)",
        ),
    ],
)  # fmt: skip
def test_a_speed_up_has_the_digits_of_its_interval(changes: dict[str, Any], line: str) -> None:
    """A difference that the interval does not show is none; one in doubt has no interval."""
    measurement = benchmark("eager", "compiled", **{**CLEAR, **changes})
    (found,) = rendered(measurement)
    assert found.removesuffix(" as fast as eager") == f"step: {line}"


def test_too_few_turns_are_said() -> None:
    """A value without an interval is marked as a doubtful one."""
    lines = rendered(benchmark("eager", "compiled", speed_up=1.8234))
    reason = "too few turns for an interval"
    assert lines == [f"step: ≈ compiled is 2x as fast as eager: {reason}"]


def test_turns_that_the_medians_contradict_are_no_conclusion() -> None:
    """Slow calls in one variant's turns can turn the ratio round: then the line claims neither."""
    measurement = benchmark("eager", "compiled")
    ratios = {"turns": 0.14, "medians": 3.853}
    measurement.correctness["variants"][1]["no_conclusion"] = ratios
    (line,) = rendered(measurement, columns=200)
    said = ("step: ≈ no conclusion: compiled is 0.14x ", "turns, 3.9x ", "medians", "; repeat")
    assert mentions(line, *said)


def test_each_of_several_variants_has_its_line() -> None:
    """All are compared with the first, and lines are broken where the terminal ends."""
    metrics = {
        f"speed_up_{name}{end}": value
        for name in ("fused", "compiled")
        for end, value in (("", 1.5), ("_ci_low", 1.4), ("_ci_high", 1.6))
    }
    lines = rendered(benchmark("eager", "fused", "compiled", **metrics), columns=40)
    assert lines == [
        "step: fused is 1.50x (1.40 .. 1.60) as",
        "  fast as eager",
        "step: compiled is 1.50x (1.40 .. 1.60)",
        "  as fast as eager",
    ]
    assert all(width(line) <= 40 for line in lines)


def test_other_benchmarks_have_no_line() -> None:
    """Neither one that failed, nor a pipeline, which has a speed-up of its own."""
    assert rendered(benchmark("eager", "compiled")) == []
    assert rendered(benchmark(**CLEAR)) == []
