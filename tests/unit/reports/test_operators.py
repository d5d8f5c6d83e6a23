"""Operators of profiled benchmarks on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.reports.markup import plain
from gpubench_plugin.reports.remarks import operator_lines
from tests.support.messages import mentions

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubench_plugin.core.records import Measurement

ROW = {"calls": 2.5, "total_s": 2e-3}


def test_profiled_benchmarks_have_a_table_that_fits(measured: Callable[..., Measurement]) -> None:
    """The ten operators with the most time, their names escaped and cut to the terminal."""
    names = ["aten::mm", "evil\x1b[2J" + "x" * 200, *(f"aten::{n}" for n in range(15))]
    operators = {
        "time_of": "device",
        "steps": 3,
        "operators": [
            {"name": name, "self_s": 1.5e-5 / 3**n, **ROW} for n, name in enumerate(names)
        ],
    }
    profiled = measured(id="test_it.py::test_a[fp32]", correctness={"operators": operators})
    title, heading, first, *rest = map(plain, operator_lines([measured(), profiled], 80))
    assert title == "a[fp32]: 10 of 17 operators by own device time, per step"
    assert heading.split() == ["operator", "calls", "self", "total", "share"]
    assert first.split() == ["aten::mm", "2.5", "15.00", "µs", "2.000", "ms", "67%"]
    assert len(rest) == 9
    correctness = {"operators": operators, "variants": [{"name": "eager"}, {"name": "compiled"}]}
    title, *_ = map(plain, operator_lines([measured(id="test_b", correctness=correctness)], 80))
    assert mentions(title, "b: 10 of 17 operators", "per call of each variant")
    assert all(len(line) <= 80 and "\x1b" not in line for line in (first, *rest))


def test_a_step_without_operators_has_a_line(measured: Callable[..., Measurement]) -> None:
    """It says how to see its Python functions instead."""
    idle = [{"name": "aten::empty", "self_s": 0.0, **ROW}]
    for operators in ([], idle):
        one = measured(id="test_it.py::test_a", correctness={"operators": {"operators": operators}})
        (line,) = map(plain, operator_lines([one], 100))
        assert line == "a: no torch operators; --profiling.with_stack=true shows Python functions"


@pytest.mark.parametrize("width", [40, 200])
def test_nothing_is_said_without_profiles(measured: Callable[..., Measurement], width: int) -> None:
    """A session without ``--profile`` has no such tables."""
    assert operator_lines([measured()], width) == []
