"""Tests of header and summary."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from gpubench_plugin.config.settings import AUTO_TABLE, OPTIONS, OptionValue, Settings, TableOptions
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.core.records import OUTCOMES, Measurement, Metric, RankTimes
from gpubench_plugin.reports.markup import plain
from gpubench_plugin.reports.terminal import header_lines, summary_lines
from gpubench_plugin.reports.text import width
from tests.support.messages import mentions

FILE = "benchmarks/training/test_resnet.py"
NUMBERS = {
    "step_time_s": 0.01842,
    "step_time_ci_low_s": 0.0183,
    "step_time_ci_high_s": 0.0185,
    "samples_per_s": 434.21,
    "samples_ci_low_per_s": 430.9,
    "samples_ci_high_per_s": 437.5,
    "tflops": 0.1234,
    "mfu": 0.4123,
    "peak_memory_bytes": 912.4 * 2**20,
}


def benchmark(name: str = "test_train[amp]", file: str = FILE, **fields: Any) -> Measurement:
    numbers = fields.pop("numbers", NUMBERS)
    if fields.setdefault("outcome", "measured") != "measured":
        numbers = {}
    metrics = {name: Metric(name=name, value=value, unit="") for name, value in numbers.items()}
    return Measurement(
        **{"id": f"{file}::{name}", "name": name, "params": {}, "world_size": 1, **fields},
        metrics=metrics,
    )


def rendered(
    *measurements: Measurement, columns: int = 200, options: TableOptions = AUTO_TABLE
) -> list[str]:
    return [plain(line) for line in summary_lines(measurements, columns, options=options)]


def header(columns: int) -> list[str]:
    return header_lines(
        device="cpu (AMD EPYC), no GPU",
        precision=["amp", "bf16"],
        world_sizes=(2,),
        preset="tiny",
        run_directory="/somewhere/results/default/20260131T120000Z_run_0a1b2c",
        width=columns,
    )


def test_header_is_wrapped_and_the_run_directory_stays_whole() -> None:
    """It says device, precision, world, preset and run directory, which is to be copied."""
    wide = [
        "gpubench: device cpu (AMD EPYC), no GPU; precision amp,bf16; world size 2; preset tiny",
        "results: /somewhere/results/default/20260131T120000Z_run_0a1b2c",
    ]
    assert header(200) == wide
    *narrow, last = header(40)
    assert all(len(line) <= 40 for line in narrow)
    assert [" ".join(line.strip() for line in narrow), last] == wide


def test_a_row_in_doubt_has_a_mark_in_the_place_of_its_interval() -> None:
    """A doubtful number has no ± and is not bold; doubts come before notes."""
    doubtful = benchmark("test_b", flags=("outliers", "contended", "drifting"))
    lines = summary_lines([benchmark("test_a"), doubtful], 200)
    assert plain(lines[0]).split()[-2:] == ["doubts", "notes"]
    assert plain(lines[3]).split("  ")[-2:] == ["contended, drifting", "outliers"]
    assert "≈ 18.4 ms" in plain(lines[3])
    assert "≈ 434 " in plain(lines[3])
    assert "±" not in plain(lines[3])
    bold = [text.strip() for text, markup in lines[2] if markup.get("bold")]
    assert bold == ["18.42 ms ±0.54%"]
    assert not any(markup.get("bold") for _, markup in lines[3])


@pytest.mark.parametrize(
    ("median", "low", "high", "cell"),
    [
        (8.419e-3, 6.2e-3, 10.6e-3, "8.4 ms ±26%"),
        (1.771e-3, 0.5e-3, 19.5e-3, "2 ms ±536%"),
        (583.7e-6, 1e-6, 8.14e-3, "600 µs ±697%"),
        (11.512e-6, 11.36e-6, 11.66e-6, "11.5 µs ±1.3%"),
        (18.4211e-3, 18.42e-3, 18.422e-3, "18.42 ms ±0.0054%"),
    ],
)
def test_a_step_has_the_digits_that_its_interval_allows(
    median: float, low: float, high: float, cell: str
) -> None:
    """There are at most four digits."""
    numbers = {"step_time_s": median, "step_time_ci_low_s": low, "step_time_ci_high_s": high}
    assert cell in rendered(benchmark(numbers=numbers))[2]


def test_a_rate_has_the_digits_that_its_own_interval_allows() -> None:
    """Its digits do not follow the step's interval."""
    wide = {"samples_per_s": 3104.0, "samples_ci_low_per_s": 1500.0, "samples_ci_high_per_s": 5e3}
    assert rendered(benchmark(numbers={**NUMBERS, **wide}))[2].count("3.1k ±56%") == 1


@pytest.mark.parametrize("rounds", [1, 3])
def test_a_step_without_interval_says_on_how_many_samples_it_rests(rounds: int) -> None:
    """A number without an interval shows its number of rounds."""
    numbers = {"step_time_s": 0.68412, "rounds": rounds}
    (_, _, row, _) = rendered(benchmark(numbers=numbers))
    assert row.endswith(f" 684 ms n={rounds}")
    (_, _, line, _) = summary_lines([benchmark(numbers=numbers)], 200)
    assert not any(markup.get("bold") for _, markup in line)
    row = rendered(benchmark(numbers=numbers, flags=("contended",)))[2]
    assert f"≈ 684 ms n={rounds}  contended" in row


def test_few_rounds_are_shown_with_their_range() -> None:
    """It has the place of an interval, and says how many digits the median has."""
    ends = {"step_time_min_s": 5.9996, "step_time_max_s": 6.0003}
    row = rendered(benchmark(numbers={"step_time_s": 6.0, "rounds": 5, **ends}))[2]
    assert row.endswith(" 6.000 s [6.000 s, 6.000 s] n=5")
    wide = {"step_time_min_s": 5.1, "step_time_max_s": 7.9}
    row = rendered(benchmark(numbers={"step_time_s": 6.0, "rounds": 5, **wide}))[2]
    assert row.endswith(" 6.0 s [5.1 s, 7.9 s] n=5")


def test_many_rounds_without_interval_are_no_small_sample() -> None:
    """Dependent rounds may have no interval, however many there are."""
    numbers = {"step_time_s": 0.68412, "rounds": 1045}
    row = rendered(benchmark(numbers=numbers, flags=("dependent",)))[2]
    assert "≈ 684 ms  dependent" in row


@pytest.mark.parametrize("columns", [60, 80, 100, 132, 200])
def test_summary_fits(columns: int) -> None:
    """No line is wider than the terminal, whatever it contains."""
    measurements = [
        benchmark(f"test_{'very_' * size}long[{'x' * size}-{size}]", f"{'folder/' * size}test.py")
        for size in range(1, 30, 4)
    ]
    failed = benchmark("test_漢字漢字漢字漢字漢字", outcome="failed", reason="why " * 99)
    flagged = benchmark("test_flagged", flags=tuple(f"flag_{n}" for n in range(40)))
    lines = rendered(*measurements, failed, flagged, columns=columns)
    assert max(map(width, lines)) <= columns


def test_column_without_anything_is_left_out() -> None:
    """A column in which no benchmark has a value does not appear."""
    (titles, *_) = rendered(benchmark(numbers={"step_time_s": 1.5e-6}))
    assert titles.split() == ["benchmark", "step"]


@pytest.mark.parametrize(
    ("numbers", "title", "cell"),
    [
        ({"tokens_per_s": 12345.0}, "tokens/s", "12.3k"),
        ({"bytes_per_s": 2e9}, "GB/s", " 2.00"),
        ({"samples_per_s": 5.0, "tokens_per_s": 640.0}, "samples/s", "5.00"),
        ({"algbw_bytes_per_s": 2e10, "busbw_bytes_per_s": 1.5e10}, "GB/s busbw", " 15.0"),
    ],
)
def test_throughput(numbers: dict[str, float], title: str, cell: str) -> None:
    """Throughput is shown in the benchmark's own unit."""
    titles, _, row, _ = rendered(benchmark(numbers={"step_time_s": 1.0, **numbers}))
    assert title in titles
    assert row.endswith(cell)


def test_throughput_of_different_kinds() -> None:
    """Where benchmarks count different things, each cell has its unit."""
    titles, _, first, second, _ = rendered(
        benchmark(numbers={"samples_per_s": 5.0}), benchmark(numbers={"tokens_per_s": 6.0})
    )
    assert "throughput" in titles
    assert first.endswith("5.00 samples/s")
    assert second.endswith("6.00 tokens/s")


def test_benchmarks_stand_under_their_files() -> None:
    """Every file is named once, in the order in which the files came."""
    lines = rendered(
        benchmark("test_a", "b/test_one.py"),
        benchmark("test_b", "a/test_two.py"),
        benchmark("test_c", "b/test_one.py"),
    )
    heads = [line.split()[0] for line in lines[1:-1]]
    assert heads == ["b/test_one.py", "a", "c", "a/test_two.py", "b"]


def test_reasons_stand_below_the_table() -> None:
    """Each is said once, whole, on its own lines; what was not measured has no row but a number."""
    lines = rendered(
        *(benchmark(f"test_{x}", outcome="unsupported", reason="no GPU") for x in "abcd"),
        benchmark("test_e", outcome="failed", reason=f"{FILE}::test_e: ValueError: boom\nand more"),
        benchmark("test_f", outcome="failed", reason="long " * 20),
        columns=80,
    )
    assert [line.split()[0] for line in lines[2:4]] == ["e", "f"]
    assert lines[4:] == [
        "e: ValueError: boom and more",
        f"f: {'long ' * 14}long",
        "  long long long long long",
        "4 unsupported: no GPU (a, b, c and 1 more)",
        "nothing was measured: 2 failed, 4 unsupported",
    ]


def test_a_slow_rank_is_named() -> None:
    """From 5% above the fastest, with its host if there are several."""

    def ranks(*medians: float, hosts: str = "aaa") -> tuple[RankTimes, ...]:
        times = dict.fromkeys(("min_s", "p5_s", "p95_s", "p99_s", "max_s", "total_s"), 1.0)
        return tuple(
            RankTimes(rank=rank, host=hosts[rank], count=1, median_s=median, **times)
            for rank, median in enumerate(medians)
        )

    lines = rendered(
        benchmark("test_a", ranks=ranks(1.0, 1.12, 1.01)),
        benchmark("test_b", ranks=ranks(1.0, 1.5, hosts="ab")),
        benchmark("test_c", ranks=ranks(1.0, 1.04)),
        benchmark("test_d"),
    )
    assert lines[-3:] == [
        "a: slowest rank 1: +12% over the fastest",
        "b: slowest rank 1 on b: +50% over the fastest",
        "4 measured",
    ]


def own(**values: float) -> dict[str, float]:
    """The usual numbers and metrics that tests have added."""
    return {**NUMBERS, **values}


def test_metrics_of_tests_are_columns_where_there_is_room() -> None:
    """On a narrow terminal they stand below the table; the built-in ones are not among them."""
    pair = (
        benchmark("test_a", numbers=own(accuracy=0.93, entropy_of_the_routing=1.25, ttft_s=1.0)),
        benchmark("test_b", numbers=own(accuracy=0.91)),
    )
    wide, narrow = rendered(*pair), rendered(*pair, columns=80)
    assert wide[0].split()[-2:] == ["accuracy", "entropy_of_the_routing"]
    assert wide[2].split()[-2:] == ["0.9300", "1.250"]
    assert "accuracy" in narrow[0]
    assert narrow[4:] == ["a: entropy_of_the_routing 1.250", "2 measured"]


def options(table: str = "auto", sort: str = "", group_by: str = "file") -> TableOptions:
    texts = {"table_columns": table, "table_sort": sort, "table_group_by": group_by}
    values = {n: OPTIONS[n].parse(OptionValue(n, text, Path())) for n, text in texts.items()}
    return Settings(**values).table


def test_columns_are_chosen_by_name() -> None:
    """Any metric is a column; one that does not fit stands below."""
    rows = [benchmark("test_a"), benchmark("test_b", outcome="failed", reason="why")]
    lines = rendered(*rows, options=options("memory,step_time_ci_low_s,outcome"))
    assert lines[:4] == [
        "benchmark     memory  step_time_ci_low_s  outcome",
        FILE,
        "  a        912.4 MiB             0.01830  measured",
        "  b           failed                   –  failed",  # noqa: RUF001 # the dash of empty cells
    ]
    assert rendered(*rows, options=options("none")) == ["1 measured, 1 failed"]


def test_columns_without_a_value_are_told() -> None:
    """If no other one is chosen the usual table is shown; notes and doubts may be empty."""
    lines = rendered(benchmark("test_a"), options=options("step,speed_up,doubts"))
    assert lines[0].split() == ["benchmark", "step"]
    assert lines[3] == "--table: no benchmark has 'speed_up'"
    lines = rendered(benchmark("test_a"), options=options("nope,doubts", sort="power_w"))
    assert lines[0].split()[:2] == ["benchmark", "step"]
    assert [line.partition(":")[0] for line in lines[3:5]] == ["--table", "--table-sort"]


def test_metrics_with_the_name_of_a_column_stand_below() -> None:
    """Own metrics cannot hide the columns, nor be hidden by them."""
    own = {"memory": 3.0, "\x1b[2J": -0.0, "huge": 1e300, "tiny": 1.5e-9}
    lines = rendered(benchmark("test_a", numbers={**NUMBERS, **own}), columns=200)
    assert "memory" in lines[0]
    assert lines[0].split()[-3:] == ["\\x1b[2J", "huge", "tiny"]
    assert lines[2].split()[-3:] == ["0", "1.000e+300", "1.500e-09"]
    assert lines[3] == "a: memory 3.000"


def test_rows_are_sorted() -> None:
    """By a column or a metric, the smallest first unless with a minus; what has none is last."""
    rows = [
        benchmark(f"test_{name}", numbers={"step_time_s": value, "depth": -value})
        for name, value in (("a", 2.0), ("b", 3.0), ("c", 1.0))
    ]
    rows.append(benchmark("test_d", outcome="oom"))

    def order(key: str) -> str:
        lines = rendered(*rows, options=options(sort=key))
        return "".join(line.split()[0] for line in lines[2:6])

    assert [order(key) for key in ("", "step", "-step", "depth", "-name")] == [
        "abcd",
        "cabd",
        "bacd",
        "bacd",
        "dcba",
    ]


def test_rows_are_grouped_and_compared_within_groups() -> None:
    """Relative to the fastest of the group that is not in doubt."""
    rows = [
        benchmark(f"test_{name}[{size}]", params={"size": str(size)}, numbers=numbers, flags=flags)
        for size in (1, 2)
        for name, numbers, flags in (
            ("a", {"step_time_s": 2.0 * size}, ()),
            ("b", {"step_time_s": 3.0 * size}, ()),
            ("c", {"step_time_s": 1.0 * size}, ("contended",)),
        )
    ]
    by_size = rendered(*rows, options=options(group_by="size"))
    assert [line.split()[0] for line in by_size[1:9]] == [
        *("size=1", "a[1]", "b[1]", "c[1]"),
        *("size=2", "a[2]", "b[2]", "c[2]"),
    ]
    relative = re.compile(r"(?:≈ )?[\d.]+x")
    assert relative.findall("\n".join(by_size)) == [
        f"{cell}x" for cell in ("1.00", "1.50", "≈ 0.5") * 2
    ]
    by_function = "\n".join(rendered(*rows, options=options(group_by="function")))
    assert [cell[:-1] for cell in relative.findall(by_function)] == ["1.00", "2.00"] * 2
    assert "fastest" in by_size[0]
    assert "fastest" not in rendered(*rows)[0]


def test_tests_group_themselves_across_files() -> None:
    """Compared within their group; those without one stay below their file, compared with none."""
    times = {"a": ("sums", FILE, 2.0), "b": ("", FILE, 4.0), "c": ("sums", "test_it.py", 1.0)}
    rows = [
        benchmark(f"test_{name}", file, group=group, numbers={"step_time_s": time})
        for name, (group, file, time) in times.items()
    ]
    rows.append(benchmark("test_d", numbers={"step_time_s": 8.0}))
    lines = [line.split() for line in rendered(*rows)[1:7]]
    assert [line[0] for line in lines] == ["sums", "a", "c", FILE, "b", "d"]
    assert [line[-1] for line in lines if line[0] in "abcd"] == ["2.00x", "1.00x", "–", "–"]  # noqa: RUF001 # the dash of empty cells
    assert "sums" not in "".join(rendered(*rows, options=options(group_by="function")))


def test_an_option_that_fits_no_benchmark_is_told() -> None:
    """With the nearest name; the table is printed all the same."""
    lines = rendered(
        benchmark("test_a", params={"precision": "fp32"}),
        options=options("step,memry", sort="stp", group_by="precison"),
    )
    assert lines[0].split() == ["benchmark", "step"]
    table, sort, group = lines[3:6]
    assert mentions(table, "--table: ", "'memry' (did you mean 'memory'?)")
    assert mentions(sort, "--table-sort: ", "'stp' (did you mean 'step'?)")
    assert mentions(group, "--table-group-by: ", "'precison' (did you mean 'precision'?)")
    assert mentions(rendered(benchmark("test_a"), options=options(sort="-"))[3], "sort", "'-'")


def test_an_empty_name_of_a_column_is_refused() -> None:
    """The message names the option."""
    with pytest.raises(UsageProblem, match="table_columns=step,,memory: an empty name in the list"):
        options("step,,memory")


def test_a_doubt_is_explained_once() -> None:
    """With the names of the benchmarks, but where the rows show which."""
    rows = [benchmark(f"test_{x}", flags=("contended",)) for x in "abcd"]
    text = "≈ contended: other processes used the CPU; close them or repeat"
    assert rendered(*rows)[-2] == text
    assert rendered(*rows, columns=80)[-2] == text
    assert rendered(*rows[:2], options=options("memory"))[-2] == f"{text} (a, b)"
    rows.append(benchmark("test_e", flags=("unsteady",)))
    assert rendered(*rows, columns=55)[-5:-3] == [
        "≈ contended: other processes used the CPU; close them",
        "  or repeat (a, b, c and 1 more)",
    ]


def test_nothing_measured_is_said() -> None:
    """If nothing was measured, the last line says so, and no number is shown."""
    lines = rendered(benchmark("test_a", outcome="skipped"), benchmark("test_b", outcome="oom"))
    assert lines[0].split() == ["benchmark", "outcome"]
    assert lines[-1] == "nothing was measured: 1 skipped, 1 oom"
    assert rendered() == ["nothing was measured"]


def test_names_cannot_steer_the_terminal() -> None:
    """Control characters in names, files and reasons are escaped."""
    odd = benchmark("test_\x1b[2J", "a\rb.py", outcome="failed", reason="\x1b]0;title\x07")
    text = "\n".join(rendered(odd))
    assert not {"\x1b", "\r", "\x07"} & set(text)
    assert "\\x1b[2J" in text


def test_numbers_that_are_none_are_shown() -> None:
    """A metric of NaN is printed as nan."""
    assert "nan" in rendered(benchmark(numbers={**NUMBERS, "mfu": float("nan")}))[2]


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_outcomes_have_colours(outcome: str) -> None:
    """Measured is green, not measured yellow, failed red."""
    *_, counts = summary_lines([benchmark(outcome=outcome)], 200)
    expected = {
        "measured": "green",
        "skipped": "yellow",
        "unsupported": "yellow",
        "not_measured": "yellow",
    }.get(outcome, "red")
    assert counts[-1] == (f"1 {outcome.replace('_', ' ')}", {expected: True})
