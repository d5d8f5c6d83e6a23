"""Tests of header and summary."""

from __future__ import annotations

import io
from typing import Any

import pytest

from gpubench_plugin.records import OUTCOMES, Measurement, Metric, RankTimes
from gpubench_plugin.reports import ASCII, header_lines, plain, summary_lines, width

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


def benchmark(name: str = "test_train[amp-ws1]", file: str = FILE, **fields: Any) -> Measurement:
    numbers = fields.pop("numbers", NUMBERS)
    if fields.setdefault("outcome", "measured") != "measured":
        numbers = {}
    metrics = {name: Metric(name=name, value=value, unit="") for name, value in numbers.items()}
    return Measurement(
        **{"id": f"{file}::{name}", "name": name, "params": {}, "world_size": 1, **fields},
        metrics=metrics,
    )


def rendered(*measurements: Measurement, columns: int = 200) -> list[str]:
    return [plain(line) for line in summary_lines(measurements, columns)]


def header(columns: int) -> list[str]:
    return header_lines(
        device="cpu (AMD EPYC), no GPU",
        precision=["amp", "bf16"],
        world_sizes=(2,),
        preset="tiny",
        run_directory="/somewhere/results/default/20260131T120000Z_run_0a1b2c",
        width=columns,
    )


def test_header_on_a_wide_terminal() -> None:
    """The header says device, precision, world, preset and run directory."""
    assert header(200) == [
        "gpubench: device cpu (AMD EPYC), no GPU; precision amp,bf16; world size 2; preset tiny",
        "results: /somewhere/results/default/20260131T120000Z_run_0a1b2c",
    ]


def test_header_on_a_narrow_terminal() -> None:
    """A long header is wrapped, and the run directory stays whole, to be copied."""
    lines = header(40)
    assert all(len(line) <= 40 for line in lines[:-1])
    assert " ".join(line.strip() for line in lines[:-1]) == header(200)[0]
    assert lines[-1] == header(200)[-1]


def test_summary_on_a_wide_terminal() -> None:
    """At 200 columns every column is shown, under the names of the files."""
    outlying = benchmark("test_b[fp32]", flags=("outliers",))
    assert rendered(benchmark("test_a"), outlying) == [
        "benchmark  outcome              step     samples/s  TFLOP/s    MFU     memory  notes",
        FILE,
        "  a        measured  18.42 ms ±0.54%  434.2 ±0.76%    0.123  41.2%  912.4 MiB",
        "  b[fp32]  measured  18.42 ms ±0.54%  434.2 ±0.76%    0.123  41.2%  912.4 MiB  outliers",
        "2 measured",
    ]


def test_a_row_in_doubt_has_a_mark_in_the_place_of_its_interval() -> None:
    """A doubtful number has no ± and is not bold; doubts come before notes."""
    doubtful = benchmark("test_b", flags=("outliers", "contended", "drifting"))
    lines = summary_lines([benchmark("test_a"), doubtful], 200)
    assert plain(lines[0]).split()[-2:] == ["doubts", "notes"]
    assert plain(lines[3]).split("  ")[-2:] == ["contended, drifting", "outliers"]
    assert "≈ 18.42 ms" in plain(lines[3])
    assert "≈ 434.2 " in plain(lines[3])
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
    (_, _, row, _) = rendered(benchmark(numbers=numbers, flags=("not_converged",)))
    assert f"≈ 684 ms n={rounds}  not_converged" in row


def test_many_rounds_without_interval_are_no_small_sample() -> None:
    """Dependent rounds may have no interval, however many there are."""
    numbers = {"step_time_s": 0.68412, "rounds": 1045}
    (_, _, row, _) = rendered(benchmark(numbers=numbers, flags=("dependent",)))
    assert "≈ 684 ms  dependent" in row


def test_summary_on_a_narrow_terminal() -> None:
    """At 80 columns outcome and flags move, and long names lose their middle."""
    names = [f"test_resnet{size}_train[channels_last-amp-ws1]" for size in (18, 50)]
    lines = rendered(
        benchmark(names[0], flags=("outliers", "unsteady")),
        benchmark(names[1], outcome="oom", reason="out of memory"),
        columns=80,
    )
    assert lines == [
        "benchmark                             step  samples/s  TFLOP/s    MFU     memory",
        FILE,
        "  resnet18_…nels_last-amp-ws1]  ≈ 18.42 ms    ≈ 434.2    0.123  41.2%  912.4 MiB",
        "  resnet50_…nels_last-amp-ws1]         oom          –        –      –          –",  # noqa: RUF001 # the dash of empty cells
        "resnet18_…nels_last-amp-ws1]: doubtful: unsteady",
        "resnet18_…nels_last-amp-ws1]: outliers",
        "resnet50_…nels_last-amp-ws1]: out of memory",
        "1 measured, 1 oom",
    ]


def test_what_all_share_is_left_out_of_the_names() -> None:
    """Precision and world size are in the names only where they differ."""
    params = {"precision": "amp", "world_size": "1"}
    alike = [
        benchmark("test_a[amp-ws1]", params=params),
        benchmark("test_b[nhwc-amp-ws1]", params=params),
        benchmark("test_c[x-amp-ws1-cpu]", params=params),
    ]
    fp32 = benchmark("test_a[fp32-ws1]", params={**params, "precision": "fp32"})
    assert [line.split()[0] for line in rendered(*alike)[2:-1]] == ["a", "b[nhwc]", "c[x-cpu]"]
    assert [line.split()[0] for line in rendered(alike[0], fp32)[2:-1]] == [
        "a[amp-ws1]",
        "a[fp32-ws1]",
    ]


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


def test_long_names_stay_apart() -> None:
    """Shortened rows can be told apart."""
    names = [f"test_{'x' * 60}{n}{'y' * 60}" for n in range(5)]
    lines = rendered(*(benchmark(name) for name in names), columns=80)
    assert len({line[:34] for line in lines[2:7]}) == 5


def test_column_without_anything_is_left_out() -> None:
    """A column in which no benchmark has a value does not appear."""
    (titles, *_) = rendered(benchmark(numbers={"step_time_s": 1.5e-6}))
    assert titles.split() == ["benchmark", "outcome", "step"]


@pytest.mark.parametrize(
    ("numbers", "title", "cell"),
    [
        ({"tokens_per_s": 12345.0}, "tokens/s", "12.3k"),
        ({"bytes_per_s": 2.0**31}, "throughput", "2.00 GiB/s"),
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
    """Every benchmark that was not measured has its reason, on one line."""
    lines = rendered(
        benchmark("test_a", outcome="unsupported", reason="bf16 is not there"),
        benchmark("test_b", outcome="failed", reason="ValueError: boom\nand more"),
        benchmark("test_c"),
    )
    assert lines[-3:] == [
        "a: bf16 is not there",
        "b: ValueError: boom and more",
        "1 measured, 1 failed, 1 unsupported",
    ]


def test_a_slow_rank_is_named() -> None:
    """From 5 % above the fastest, with its host if there are several."""

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


def test_nothing_measured_is_said() -> None:
    """If nothing was measured, the last line says so, and no number is shown."""
    lines = rendered(benchmark(outcome="skipped", reason="no GPU"), benchmark(outcome="oom"))
    assert lines[0].split() == ["benchmark", "outcome"]
    assert lines[-1] == "nothing was measured: 1 skipped, 1 oom"


def test_empty_session_is_said() -> None:
    """Without benchmarks the summary is one line."""
    assert rendered() == ["nothing was measured"]


def test_names_cannot_steer_the_terminal() -> None:
    """Control characters in names, files and reasons are escaped."""
    odd = benchmark("test_\x1b[2J", "a\rb.py", outcome="failed", reason="\x1b]0;title\x07")
    text = "\n".join(rendered(odd))
    assert not {"\x1b", "\r", "\x07"} & set(text)
    assert "\\x1b[2J" in text


def test_ascii_terminal() -> None:
    """An ASCII terminal gets ASCII only."""
    measurements = [
        benchmark(f"test_{'x' * 99}", numbers={**NUMBERS, "step_time_s": 2e-6}),
        benchmark(outcome="skipped"),
    ]
    lines = [plain(line) for line in summary_lines(measurements, 80, ASCII)]
    assert all(line.isascii() for line in lines)
    assert "2 us +-" in "\n".join(lines)


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
    assert counts[-1] == (f"1 {outcome}", {expected: True})


def test_lines_are_written_by_pytests_writer() -> None:
    """The terminal writer of pytest takes every span with its markup."""
    from _pytest._io import TerminalWriter

    stream = io.StringIO()
    writer = TerminalWriter(stream)
    writer.hasmarkup = True
    lines = summary_lines([benchmark(), benchmark(outcome="failed")], 200)
    for line in lines:
        for text, markup in line:
            writer.write(text, **markup)
        writer.line()
    assert "\x1b[31m" in stream.getvalue()
    assert stream.getvalue().count("\n") == len(lines)
