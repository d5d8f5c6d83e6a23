"""Tests of the table of speed-ups."""

from __future__ import annotations

from typing import Any

from gpubench_plugin.records import Measurement, Metric
from gpubench_plugin.reports import ASCII, plain, scaling_lines, width


def benchmark(ranks: int, rate: float | None, name: str = "train", **fields: Any) -> Measurement:
    numbers = {"step_time_s": 0.01842} | ({} if rate is None else {"samples_per_s": rate})
    metrics = {name: Metric(name=name, value=value, unit="") for name, value in numbers.items()}
    identity = f"test_{name}[amp-ws{ranks}]"
    params = {"precision": "amp", "world_size": str(ranks), **fields.pop("params", {})}
    given = {"id": f"test_it.py::{identity}", "name": identity, "outcome": "measured", **fields}
    return Measurement(**given, params=params, world_size=ranks, metrics=metrics)


def shown(*measurements: Measurement, columns: int = 80) -> list[str]:
    return [plain(line) for line in scaling_lines(measurements, columns)]


def test_speed_up_and_efficiency_are_against_the_smallest_number_of_ranks() -> None:
    """In order of the number of ranks, however they came; more than 100 % is flagged."""
    weak = {"configuration": {"distributed": {"scaling": "weak"}}}
    strong = {"configuration": {"distributed": {"scaling": "strong"}}}
    lines = shown(
        benchmark(8, 720.0, **weak),
        benchmark(2, 200.0, **weak),
        benchmark(4, 404.0, **weak),
        benchmark(1, 100.0, "other", **strong),
        benchmark(2, 102.0, "other", **strong),
    )
    assert lines == [
        "  ranks     step  samples/s  speed-up  efficiency",
        "train[amp] (weak scaling)",
        "      2  18.4 ms        200      1.00        100%",
        "      4  18.4 ms        404      2.02        101%  superlinear",
        "      8  18.4 ms        720      3.60       90.0%",
        "other[amp] (strong scaling)",
        "      1  18.4 ms        100      1.00        100%",
        "      2  18.4 ms        102      1.02       51.0%",
    ]


def test_what_rounds_to_all_of_it_is_not_flagged() -> None:
    """A flag beside 100 % would be a riddle."""
    *_, last = shown(benchmark(1, 100.0), benchmark(2, 200.4))
    assert last.endswith("2.00        100%")


def test_without_work_only_the_step_is_shown() -> None:
    """A speed-up needs something that is done; none is made up of the step's time."""
    assert shown(benchmark(1, None), benchmark(2, None)) == [
        "  ranks     step",
        "train[amp]",
        "      1  18.4 ms",
        "      2  18.4 ms",
    ]


def test_only_what_differs_in_nothing_else_is_compared() -> None:
    """Other parameters, other benchmarks, and what was not measured make no pair."""
    assert (
        shown(
            benchmark(1, 100.0),
            benchmark(2, 190.0, params={"precision": "fp32"}),
            benchmark(2, 190.0, "other"),
            benchmark(4, None, outcome="oom"),
        )
        == []
    )
    assert shown() == []


def test_equal_names_are_told_apart() -> None:
    """The class is part of a name, and so is the file where two have the same."""

    def named(path: str) -> list[Measurement]:
        return [benchmark(n, 100.0 * n, id=f"{path}test_a[ws{n}]") for n in (1, 2)]

    lines = shown(*named("x.py::TestA::"), *named("x.py::TestB::"), *named("x.py::"))
    assert [line for line in lines if line[:1].isalpha()] == ["TestA::test_a", "TestB::test_a", "a"]
    lines = shown(*named("x.py::"), *named("y.py::"))
    assert [line for line in lines if line[:1].isalpha()] == ["x.py::test_a", "y.py::test_a"]


def test_no_line_is_wider_than_the_terminal() -> None:
    """Names and rows are cut; and a terminal of ASCII gets nothing else."""
    long = "x" * 200
    measurements = [
        benchmark(1, 1e5, long),
        benchmark(2, 3e5, long),
        benchmark(1, None, "\x1b"),
        benchmark(2, None, "\x1b"),
    ]
    for columns in (40, 80):
        lines = [plain(line) for line in scaling_lines(measurements, columns, ASCII)]
        assert max(map(width, lines)) <= columns
        assert all(line.isascii() and line.isprintable() for line in lines)
    assert lines[-1].split() == ["2", "18.4", "ms", "-", "-", "-"]
