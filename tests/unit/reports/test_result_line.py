"""Tests of a result behind its outcome in a verbose session."""

from __future__ import annotations

import pytest

from gpubench_plugin.core.records import Measurement, Metric, Result
from gpubench_plugin.reports.columns import result_line
from tests.support.screens import in_ascii


def numbers(step: float, half_width: float | None, rounds: int = 100) -> dict[str, Metric]:
    values = {"step_time_s": step, "rounds": float(rounds)}
    if half_width is not None:
        values |= {
            "step_time_ci_low_s": step * (1 - half_width),
            "step_time_ci_high_s": step * (1 + half_width),
        }
    return {name: Metric(name=name, value=value, unit="s") for name, value in values.items()}


def measured(
    step: float = 374.7e-6,
    half_width: float | None = 0.009,
    flags: tuple[str, ...] = (),
    rounds: int = 100,
) -> Measurement:
    return Measurement(
        id="t.py::test_a",
        name="test_a",
        params={},
        world_size=1,
        outcome="measured",
        flags=flags,
        metrics=numbers(step, half_width, rounds),
    )


def earlier(step: float, flags: tuple[str, ...] = ()) -> Result:
    return Result(id="t.py::test_a", outcome="measured", flags=flags, metrics=numbers(step, 0.01))


@pytest.mark.parametrize(
    ("result", "before", "line"),
    [
        (measured(), None, "374.7 µs ±0.90% ✓"),
        (measured(), earlier(363.4e-6), "374.7 µs ±0.90%  +3.1% ✓"),
        (measured(), earlier(500e-6), "374.7 µs ±0.90%  -25% ✓"),
        (measured(), earlier(374.71e-6), "374.7 µs ±0.90%  0.00% ✓"),
        (measured(), earlier(373e-6), "374.7 µs ±0.90%  +0.46% ✓"),
        (measured(), earlier(363.4e-6, ("contended",)), "374.7 µs ±0.90%  ≈+3% ✓"),
        (measured(flags=("outliers",)), None, "374.7 µs ±0.90% ✓"),
        (measured(flags=("contended",)), earlier(363.4e-6), "≈ 375 µs"),
        (measured(half_width=None, rounds=1), earlier(374.7e-6), "375 µs n=1  0.00% ?"),
    ],
)
def test_a_result_has_its_change_and_a_mark(
    result: Measurement, before: Result | None, line: str
) -> None:
    """A number in doubt has no change; one without doubts and with an interval is trusted."""
    assert result_line(result, before) == line


def test_a_result_in_ascii() -> None:
    """The signs are spelt."""
    line = in_ascii(result_line(measured(), earlier(363.4e-6, ("contended",))))
    assert line == "374.7 us+-0.90%  ~+3% +"


def test_no_step_time_no_words() -> None:
    """A test that has measured nothing keeps its word alone."""
    nothing = Measurement(id="t.py::a", name="a", params={}, world_size=1, outcome="measured")
    assert result_line(nothing, None) == ""
