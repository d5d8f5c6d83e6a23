"""Which later runs of a branch are samples."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.baselines.samples import later_runs
from gpubench_plugin.compare.matching import WINDOW
from gpubench_plugin.results.reader import StoredRun
from gpubench_plugin.results.registry.registry import Registry
from tests.support.runs_builder import MLP, measurement, run_id, write_run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gpubench_plugin.core.records import Measurement


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[Registry]:
    """As many runs as a window holds of another clock, then three of the usual one."""
    for number in range(WINDOW + 3):
        timer = "process_time" if number < WINDOW else "perf_counter"
        write_run(tmp_path, number, [measurement(timer=timer)])
    with Registry.of_directories(tmp_path) as registry:
        registry.ingest_all()
        yield registry


def later(registry: Registry, *head: Measurement, number: int = 99) -> list[str]:
    """The ids of the runs from the first one on that are found for such a head."""
    judged = StoredRun(write_run(registry.results_dir, number, head)).run()
    runs = later_runs(registry, run_id(0), [MLP], branch="main", head=judged, excluded=())
    return [run.run_id for run in runs]


def test_runs_of_another_clock_do_not_fill_the_window(registry: Registry) -> None:
    """The head's clock is looked for."""
    expected = [run_id(number) for number in range(WINDOW, WINDOW + 3)]
    assert later(registry, measurement(timer="perf_counter"), number=90) == expected
    assert len(later(registry, measurement(timer="process_time"), number=91)) == WINDOW
    assert later(registry, measurement(timer="cuda_events"), number=92) == []


def test_what_the_head_has_not_measured_is_found_of_any_clock(registry: Registry) -> None:
    """It has none to look for; that there were runs makes it a missing one."""
    assert len(later(registry, measurement(outcome="failed"), number=90)) == WINDOW + 3
