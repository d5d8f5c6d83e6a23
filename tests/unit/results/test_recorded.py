"""Tests of reading what a run has recorded."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.core.errors import ResultsError
from gpubench_plugin.results.reader import StoredRun
from gpubench_plugin.results.recorder import Recorder
from gpubench_plugin.results.run_directory import RunDirectory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gpubench_plugin.core.records import Measurement

IDS = ("test_it.py::test_a", "test_it.py::test_b")


def begun(results: Path) -> Recorder:
    """A run of two benchmarks of which none has been measured."""
    return Recorder.start(
        RunDirectory.create(results, "resnet", "20260131T120000Z_run_0a1b2c"),
        command=["-k", "mlp"],
        environment={"cpu": {"model": "abacus"}},
        configurations="".join(f"'{i}':\n  distributed:\n    world_size: 1\n" for i in IDS),
        params={},
        code={},
    )


def test_a_run_that_was_killed_is_read_as_far_as_it_came(
    tmp_path: Path, measured: Callable[..., Measurement]
) -> None:
    """Its status is interrupted; what was measured is there, samples included, the rest is not."""
    recorder = begun(tmp_path)
    first = measured(id=IDS[0])
    recorder.record(first)
    recorder.close()

    record = StoredRun(recorder.directory).record()

    assert (record.run_id, record.experiment, record.status) == (
        "20260131T120000Z_run_0a1b2c",
        "resnet",
        "interrupted",
    )
    assert (record.command, dict(record.environment)) == (
        ("-k", "mlp"),
        {"cpu": {"model": "abacus"}},
    )
    assert record.benchmarks[0] == first
    assert (record.benchmarks[1].id, record.benchmarks[1].outcome) == (IDS[1], "not_measured")
    assert record.started <= record.finished


def test_a_broken_run_is_refused_by_its_folder(tmp_path: Path) -> None:
    """A file that is malformed is an error that names the run."""
    recorder = begun(tmp_path)
    recorder.close()
    recorder.directory.system.write_text("{")
    with pytest.raises(ResultsError, match="20260131T120000Z_run_0a1b2c"):
        StoredRun(recorder.directory).record()
