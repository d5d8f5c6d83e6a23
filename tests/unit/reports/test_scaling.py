"""Tests of the table of speed-ups."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gpubench_plugin.compare.scaling import Families
from gpubench_plugin.core.records import Measurement, Metric, Work
from gpubench_plugin.reports.markup import plain
from gpubench_plugin.reports.side_by_side import scaling_lines
from gpubench_plugin.reports.text import NOTHING, width


def benchmark(
    ranks: int, rate: float | None, name: str = "train", spread: float = 0.0, **fields: Any
) -> Measurement:
    """Measurement with 8 samples per call on all ranks together, or on each if `weak`."""
    amount = 8 * (ranks if fields.pop("weak", False) else 1)
    numbers = {"step_time_s": 0.01842}
    if rate is not None:
        numbers["samples_per_s"] = rate
    if rate is not None and spread:
        numbers |= {
            "samples_ci_low_per_s": rate * (1 - spread),
            "samples_ci_high_per_s": rate * (1 + spread),
        }
    metrics = {name: Metric(name=name, value=value, unit="") for name, value in numbers.items()}
    identity = f"test_{name}[amp-ranks{ranks}]" if ranks > 1 else f"test_{name}[amp]"
    params = {"precision": "amp", "world_size": str(ranks), **fields.pop("params", {})}
    attributes = {
        "id": f"test_it.py::{identity}",
        "name": identity,
        "outcome": "measured",
        **fields,
    }
    work = Work(samples=amount)
    return Measurement(**attributes, params=params, world_size=ranks, metrics=metrics, work=work)


def rendered(*measurements: Measurement, columns: int = 80) -> list[str]:
    return [plain(line) for line in scaling_lines(related(measurements), columns)]


def related(measurements: Iterable[Measurement]) -> list[Measurement]:
    """Lines as at the end of a session, for any order of measurements."""
    families, session = Families(), dict[str, Measurement]()
    for measurement in measurements:
        session |= families.add(measurement)
    return list(session.values())


def test_speed_up_and_efficiency_are_against_the_smallest_number_of_ranks() -> None:
    """Sorted by the number of ranks."""
    lines = rendered(
        benchmark(8, 720.0, weak=True),
        benchmark(2, 200.0, weak=True),
        benchmark(4, 404.0, weak=True),
        benchmark(1, 100.0, "other"),
        benchmark(2, 102.0, "other"),
    )
    assert lines == [
        "  ranks     step  samples/s  speed-up  efficiency",
        "train[amp] (weak scaling)",
        "      2  18.4 ms        200      1.00        100%",
        "      4  18.4 ms        404      2.02        101%",
        "      8  18.4 ms        720      3.60       90.0%",
        "other[amp] (strong scaling)",
        "      1  18.4 ms        100      1.00        100%",
        "      2  18.4 ms        102      1.02       51.0%",
    ]


def test_speed_up_and_efficiency_have_the_digits_that_their_intervals_allow() -> None:
    """The errors of both sides add up."""
    lines = rendered(benchmark(1, 100.0, spread=0.03), benchmark(2, 206.0, spread=0.04))
    assert lines[2].split()[-3:] == ["±3.0%", "1.00", "100%"]
    assert lines[3].split()[-4:] == ["2.06", "±5.0%", "103%", "±5.0%"]


def test_a_ratio_that_ranks_cannot_explain_is_not_told() -> None:
    """One rank on several threads may be 48 times as slow as two on one each, which is shown."""
    machines = ({"torch.threads": 2}, {"torch.threads": 1}, {"torch.threads": 1})
    rates = zip((1, 2, 4), (4.75, 230.0, 18.9), machines, strict=True)
    lines = rendered(*(benchmark(ranks, rate, machine=own) for ranks, rate, own in rates))
    assert lines[0].split() == ["ranks", "threads", "step", "samples/s", "speed-up", "efficiency"]
    assert [line.split()[1] for line in lines[2:]] == ["2", "1", "1"]
    assert [line.split()[-2:] for line in lines[2:]] == [
        ["1.00", "100%"],
        ["–", "–"],  # noqa: RUF001 # the dash of empty cells
        ["3.98", "99.5%"],
    ]


def test_a_side_in_doubt_has_no_speed_up() -> None:
    """An efficiency of 3470% came from a benchmark on one rank that was mostly descheduled."""
    spoilt = benchmark(1, 2.9, flags=("contended",))
    lines = rendered(spoilt, benchmark(2, 200.0), benchmark(4, 390.0))
    assert lines[0].split() == ["ranks", "step", "samples/s"]
    middle = benchmark(2, 2.9, flags=("drifting",))
    lines = rendered(benchmark(1, 100.0), middle, benchmark(4, 390.0))
    assert [line.split()[-2:] for line in lines[2:]] == [
        ["1.00", "100%"],
        ["–", "–"],  # noqa: RUF001 # the dash of empty cells
        ["3.90", "97.5%"],
    ]


def test_without_work_only_the_step_is_shown() -> None:
    """A speed-up requires a work count; none is derived from the step time."""
    assert rendered(benchmark(1, None), benchmark(2, None)) == [
        "  ranks     step",
        "train[amp]",
        "      1  18.4 ms",
        "      2  18.4 ms",
    ]


def test_only_what_differs_in_nothing_else_is_compared() -> None:
    """Other parameters, other benchmarks and unmeasured ones form no family."""
    assert (
        rendered(
            benchmark(1, 100.0),
            benchmark(2, 190.0, params={"precision": "fp32"}),
            benchmark(2, 190.0, "other"),
            benchmark(4, None, outcome="oom"),
        )
        == []
    )
    assert rendered() == []


def test_equal_names_are_told_apart() -> None:
    """The class is part of a name, and so is the file where two have the same."""

    def named(path: str) -> list[Measurement]:
        return [
            benchmark(n, 100.0 * n, id=f"{path}test_a{ranks}")
            for n, ranks in ((1, ""), (2, "[ranks2]"))
        ]

    def titles(*measurements: Measurement) -> list[str]:
        return [line.split()[0] for line in rendered(*measurements) if line[:1].isalpha()]

    classes = (*named("x.py::TestA::"), *named("x.py::TestB::"), *named("x.py::"))
    assert titles(*classes) == ["TestA::a", "TestB::a", "a"]
    assert titles(*named("x.py::"), *named("y.py::")) == ["x.py::test_a", "y.py::test_a"]


def test_no_line_is_wider_than_the_terminal() -> None:
    """Names and rows are cut."""
    long = "x" * 200
    measurements = [
        benchmark(1, 1e5, long),
        benchmark(2, 3e5, long),
        benchmark(1, None, "\x1b"),
        benchmark(2, None, "\x1b"),
    ]
    for columns in (40, 80):
        lines = [plain(line) for line in scaling_lines(related(measurements), columns)]
        assert max(map(width, lines)) <= columns
        assert all(line.isprintable() for line in lines)
    assert lines[-1].split() == ["2", "18.4", "ms", *(3 * NOTHING)]
