"""Charts as data: their numbers are those of the records."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from gpubench_plugin.core.records import Measurement, Metric, RankTimes, Samples, Work
from gpubench_plugin.core.verdicts import Verdict
from gpubench_plugin.reports.explanation import Explanation, LookVerdicts, PlotPoint
from gpubench_plugin.reports.html.chart import Chart, Series
from gpubench_plugin.reports.html.charts import (
    MOST_POSITIONS,
    curve_charts,
    history_chart,
    matrix_tables,
    points_charts,
    ranks_chart,
    rounds_chart,
    scaling_charts,
)
from gpubench_plugin.reports.html.page import History, KnownRun
from gpubench_plugin.results.progress import curves_of


def measured(
    rounds: Sequence[float] = (), ranks: int = 1, rate: float = 100.0, **fields: object
) -> Measurement:
    suffix = f"-ranks{ranks}" * (ranks > 1)
    numbers = {"step_time_s": 1e-5, "step_time_ci_low_s": 0.9e-5, "step_time_ci_high_s": 1.2e-5}
    numbers |= {"samples_per_s": rate}
    samples = Samples(
        timer="perf_counter",
        durations_s=tuple(rounds),
        block_s=(),
        block_calls=(),
        first_step_s=None,
        warmup_s=(),
        warmup_calls=0,
    )
    known = {
        "id": f"test_it.py::test_a[amp{suffix}]",
        "name": "test_a",
        "outcome": "measured",
        "params": {"precision": "amp", "world_size": str(ranks)},
        "samples": samples,
        "work": Work(samples=8),
        "metrics": {name: Metric(name=name, value=v, unit="s") for name, v in numbers.items()},
        **fields,
    }
    return Measurement(**known, world_size=ranks)  # type: ignore[arg-type] # the fields vary


def series(chart: Chart | None, label: str) -> Series:
    assert chart is not None
    exact = [one for one in chart.series if one.label == label]
    (found,) = exact or [one for one in chart.series if one.label.startswith(label)]
    return found


def test_rounds_are_those_of_the_samples_beside_their_median_and_its_interval() -> None:
    """One that is not finite is none."""
    chart = rounds_chart(measured([1e-5, math.nan, 3e-5]))
    assert series(chart, "round").values == (1e-5, None, 3e-5)
    assert series(chart, "median").values == (1e-5,) * 3
    band = series(chart, "95% interval")
    assert (band.style, band.low, band.high) == ("band", (0.9e-5,) * 3, (1.2e-5,) * 3)
    assert rounds_chart(measured()) is None
    assert rounds_chart(replace(measured(), samples=None)) is None


def test_many_rounds_are_chosen_evenly_and_the_title_says_how_many() -> None:
    """The first and the last one are among them."""
    chart = rounds_chart(measured([1e-6 * n for n in range(1, 2001)], flags=("drifting",)))
    assert chart is not None
    assert "500 of 2000" in chart.title
    assert (len(chart.positions), chart.positions[0], chart.positions[-1]) == (500, 1, 2000)
    doubtful = series(chart, "round, in doubt: drifting")
    assert doubtful.role == "doubt"
    assert all(v == 1e-6 * at for at, v in zip(chart.positions, doubtful.values, strict=True))


def test_ranks_have_their_host_where_there_are_several() -> None:
    """A quantile that too few durations have is none."""
    ranks = [
        RankTimes(
            rank=rank,
            host=host,
            count=9,
            min_s=0.1,
            p5_s=None if rank else 0.2,
            median_s=0.3 + rank,
            p95_s=0.4,
            p99_s=None,
            max_s=9,
            total_s=9,
        )
        for rank, host in enumerate(("here", "there"))
    ]
    chart = ranks_chart(replace(measured(), ranks=tuple(ranks)))
    assert chart is not None
    assert chart.names == ("0 (here)", "1 (there)")
    (shown,) = chart.series
    assert (shown.low, shown.values, shown.high) == ((0.2, None), (0.3, 1.3), (0.4, 0.4))
    same_host = tuple(replace(rank, host="here") for rank in ranks)
    one_host = ranks_chart(replace(measured(), ranks=same_host))
    assert one_host is not None
    assert one_host.names == ()
    assert ranks_chart(replace(measured(), ranks=same_host[:1])) is None


def test_curves_of_both_sides_share_their_steps() -> None:
    """A step that one side lacks is a gap, and a loss that is lost has a mark."""

    def steps(**losses: float) -> list[dict[str, object]]:
        common = {"benchmark": "test_a", "event": "training_step", "learning_rate": 0.1}
        return [{**common, "step": int(name[1:]), "loss": v} for name, v in losses.items()]

    evaluated = {"benchmark": "test_a", "event": "evaluation", "step": 9, "test_accuracy": 0.5}
    sides = {"base": steps(s5=2.5, s9=1.25), "head": [*steps(s4=3.0, s9=math.nan), evaluated]}
    loss, accuracy = curve_charts({side: curves_of(own) for side, own in sides.items()})  # type: ignore[misc] # the keys are sides
    assert (loss.title, loss.positions) == ("loss", (4, 5, 9))
    assert series(loss, "base").values == (None, 2.5, 1.25)
    assert series(loss, "head").values == (3.0, None, None)
    assert loss.marks == ((9, "head: not finite"),)
    assert (accuracy.unit, series(accuracy, "head").values) == ("fraction", (0.5,))


POINTS = (
    PlotPoint(label="004-head", role="head", values={"t": 4.0}, pair=1),
    PlotPoint(label="005-base", role="base", values={"t": 5.0}, pair=1, flags=("contended",)),
    PlotPoint(label="006-base", role="base", values={"t": 6.0}, pair=2),
    PlotPoint(label="007-head", role="head", values={"t": 7.0}, pair=2, flags=("outliers",)),
)
VERDICT = Verdict(id="test_a", metric="t", kind="inconclusive")


def test_launches_of_a_pair_are_beside_each_other_and_pairs_are_not_joined() -> None:
    """In the order in which they were measured; doubtful ones are apart, a look is a mark."""
    looks = (LookVerdicts(pairs=1, verdicts=(VERDICT,)), LookVerdicts(pairs=2, verdicts=()))
    explanation = Explanation(
        benchmark="test_a", subject="", noun="launch", points=POINTS, units={"t": "s"}, looks=looks
    )
    (chart,) = points_charts(explanation)
    assert chart.positions == (0.85, 1.15, 1.5, 1.85, 2.15, 2.5)
    assert chart.names == ("004-head", "005-base", "", "006-base", "007-head", "")
    assert series(chart, "pair").values == (4.0, 5.0, None, 6.0, 7.0, None)
    assert series(chart, "head").values == (4.0, None, None, None, 7.0, None)
    assert series(chart, "base, in doubt").values == (None, 5.0, None, None, None, None)
    assert series(chart, "base, in doubt").role == "base_doubt"
    texts = [(1.5, "look after 1 pair: inconclusive"), (2.5, "look after 2 pairs: inconclusive")]
    assert [*chart.marks] == texts


def test_points_without_pairs_are_in_time_order() -> None:
    """A metric of none of them has no chart."""
    points = tuple(replace(point, pair=0, role="earlier run") for point in POINTS)
    explanation = Explanation(
        benchmark="test_a", subject="", noun="run", points=points, units={"t": "s", "other": "s"}
    )
    (chart,) = points_charts(explanation)
    assert (chart.positions, chart.noun) == ((1, 2, 3, 4), "run")
    assert series(chart, "earlier run, in doubt").values == (None, 5.0, None, None)


def test_doubts_of_a_history_are_apart_and_levels_are_marks() -> None:
    """Runs are named by commit, or by id without one."""
    history = History(
        metric="t",
        unit="s",
        runs=(0, 2, 3),
        values=(1.0, 9.0, 2.0),
        doubts={1: "contended"},
        levels=((2, "+100%"),),
        band=(0.5, 1.5),
    )
    runs = [KnownRun(run_id=f"run{n}", started="", commit="c" * n) for n in range(4)]
    chart = history_chart(history, runs)
    assert (chart.names, chart.marks) == (("run0", "cc", "ccc"), ((3, "+100%"),))
    assert series(chart, "measured").values == (1.0, None, 2.0)
    assert series(chart, "measured, in doubt: contended").values == (None, 9.0, None)
    assert series(chart, "interval of the baseline").low == (0.5,) * 3


def test_a_long_history_ends_with_the_latest_run() -> None:
    """The title says how many there were; levels before them are left out."""
    count = MOST_POSITIONS + 10
    values = tuple(map(float, range(count)))
    history = History(
        metric="t", unit="s", runs=tuple(range(count)), values=values, levels=((3, "a"), (20, "b"))
    )
    runs = [KnownRun(run_id=str(n), started="") for n in range(count)]
    chart = history_chart(history, runs)
    assert "500 of 510" in chart.title
    assert (chart.names[-1], chart.marks) == (str(count - 1), ((21, "b"),))
    assert series(chart, "measured").values == values[-MOST_POSITIONS:]


def test_scaling_is_beside_the_ideal_line() -> None:
    """A number in doubt is apart."""
    (chart,) = scaling_charts(
        [
            measured(ranks=4, rate=190.0, flags=("contended",)),
            measured(),
            measured(ranks=2, rate=180.0),
        ]
    )
    assert chart.title == "a[amp] (strong scaling): samples_per_s"
    assert chart.positions == (1, 2, 4)
    assert series(chart, "ideal").values == (100.0, 200.0, 400.0)
    assert series(chart, "measured").values == (100.0, 180.0, None)
    assert series(chart, "measured, in doubt: contended").values == (None, None, 190.0)


def test_without_a_rate_the_step_time_scales_and_nothing_is_ideal() -> None:
    """What the ranks share is not known."""
    several = [measured(ranks=ranks) for ranks in (1, 2)]
    timed = [
        replace(m, metrics={n: v for n, v in m.metrics.items() if n != "samples_per_s"})
        for m in several
    ]
    (chart,) = scaling_charts(timed)
    assert series(chart, "measured").values == (1e-5, 1e-5)
    assert series(chart, "measured").low == (0.9e-5, 0.9e-5)
    assert [one.label for one in chart.series] == ["measured"]
    assert [*scaling_charts(timed[:1])] == []


def test_precisions_by_devices_are_a_table_with_ratios() -> None:
    """The ratio is to the first value."""
    cells = [
        measured(id=f"test_it.py::test_a[{device}-amp]", params={"torch_device": device})
        for device in ("cpu", "cuda")
    ]
    (table,) = matrix_tables(cells)
    assert table.title.startswith("by device: step time")
    assert table.columns == ("benchmark", "cpu", "cuda")
    assert table.rows == (("a[amp]", "10 µs ±15% (1.00x)", "10 µs ±15% (1.00x)"),)
