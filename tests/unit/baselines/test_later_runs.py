"""Which later runs of a branch are samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.baselines.model import Baseline
from gpubench_plugin.baselines.samples import KnownRuns, SampleCollector
from gpubench_plugin.compare.matching import WINDOW
from gpubench_plugin.results.reader import RunReader
from tests.support.runs_builder import MLP, measurement, run_id, write_run

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from gpubench_plugin.core.records import Measurement


@pytest.mark.slow
@pytest.mark.parametrize(
    ("head", "expected"),
    [
        (measurement(timer="perf_counter"), range(WINDOW, WINDOW + 3)),
        (measurement(timer="process_time"), range(WINDOW)),
        (measurement(timer="cuda_events"), ()),
        (measurement(outcome="failed"), range(WINDOW + 3)),
    ],
)
def test_runs_of_another_clock_do_not_fill_the_window(
    tmp_path: Path, head: Measurement, expected: Iterable[int]
) -> None:
    """The head's clock is looked for; what it has not measured is found of any clock."""
    for number in range(WINDOW + 3):
        timer = "process_time" if number < WINDOW else "perf_counter"
        write_run(tmp_path, number, [measurement(timer=timer)])
    judged = RunReader(write_run(tmp_path, 90, [head])).run()
    with KnownRuns("none", tmp_path, tmp_path) as known:
        collector = SampleCollector(Baseline(name="main"), known, [MLP], judged)
        runs = collector.later_runs(run_id(0), [MLP], "main")
    assert [run.run_id for run in runs] == [run_id(number) for number in expected]
