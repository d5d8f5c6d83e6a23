"""Writing a run down while it happens, and what each rank keeps of its own."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.core.errors import ResultsError
from gpubench_plugin.core.records import Samples
from gpubench_plugin.results.journal import JournalTail
from gpubench_plugin.results.recorder import Recorder, append
from gpubench_plugin.results.run_directory import RunDirectory
from gpubench_plugin.system import stored

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from gpubench_plugin.core.records import Measurement


def recorder(results: Path) -> Recorder:
    return Recorder.start(
        RunDirectory.create(results, "default", "20260131T120000Z_run_0a1b2c"),
        command=["benchmarks", "--data.token=hunter2"],
        environment={"hostname": "here"},
        configurations="{}\n",
        params={"a::b": {"precision": "amp"}},
        code={"a": "0123456789abcdef"},
    )


def test_finished_run_has_all_files(tmp_path: Path, measured: Callable[..., Measurement]) -> None:
    """An orderly end leaves every file, with the benchmark in each that has benchmarks."""
    run = recorder(tmp_path)
    run.event("a::b", {"event": "step", "loss": 0.5})
    run.record(measured())
    run.finish("complete", [measured()], {"benchmarks": []})
    folder = run.directory.path
    assert sorted(p.name for p in folder.iterdir()) == [
        *("benchmark.json", "config_resolved.yaml", "metrics.jsonl", "run.log"),
        *("summary.csv", "summary.json", "system.json"),
    ]
    events = [event["event"] for event in JournalTail(folder / "metrics.jsonl")]
    assert events == ["run_started", "step", "benchmark", "run_finished"]
    assert json.loads((folder / "summary.json").read_text())["status"] == "complete"
    assert "test_mlp_train[amp]: measured" in (folder / "run.log").read_text()
    assert "hunter2" not in "".join(p.read_text() for p in folder.iterdir())


def test_run_without_measurements_has_no_benchmark_json(tmp_path: Path) -> None:
    """Where nothing was measured there is nothing for pytest-benchmark to compare."""
    run = recorder(tmp_path)
    run.finish("interrupted", [], None)
    assert not run.directory.benchmark.exists()
    assert json.loads(run.directory.summary.read_text())["status"] == "interrupted"


@pytest.mark.slow
def test_disk_that_fills_up_keeps_the_earlier_benchmarks(
    small_disk: Path, fill_up: Callable[[Path], None], measured: Callable[..., Measurement]
) -> None:
    """On a full disk recording errs, and what was recorded before is still there."""
    run = recorder(small_disk)
    run.record(measured())
    fill_up(small_disk)
    many = [measured(reason="x" * 10_000)]
    with pytest.raises(ResultsError, match="No space left on device"):
        run.finish("complete", many, None)
    assert not run.directory.summary.exists()
    assert "benchmark" in [event["event"] for event in JournalTail(run.directory.journal)]


def test_summary_is_the_last_file(tmp_path: Path) -> None:
    """Its presence means an orderly end, so it is not there while another file is missing."""
    run = recorder(tmp_path)
    run.directory.table.mkdir()
    with pytest.raises(ResultsError):
        run.finish("complete", [], None)
    assert not run.directory.summary.exists()


def test_full_disk_that_takes_no_log_is_told_once(
    tmp_path: Path, files_end_at: Callable[[int], AbstractContextManager[None]]
) -> None:
    """What is left in the log's buffer is no error of its own."""
    run = recorder(tmp_path)
    size = run.directory.journal.stat().st_size
    with files_end_at(size):
        with suppress(OSError):
            run._log.stream.write("x" * (size + 1))
        with pytest.raises(ResultsError, match="File too large"):
            run.finish("complete", [], None)


SAMPLES = Samples(
    timer="cpu",
    durations_s=(0.1,) * 10_000,
    block_s=(1000.0,),
    block_calls=(10_000,),
    first_step_s=0.1,
    warmup_s=(),
    warmup_calls=0,
)


def test_every_call_of_a_rank_is_a_line(tmp_path: Path) -> None:
    """With all samples, or with what the rank did; what stood there before stays, if whole."""
    events = [{"event": "step", "duration_s": 0.5}]
    append(tmp_path / "ranks", 3, "a", events=events)
    with (tmp_path / "ranks" / "rank-3.jsonl").open("a") as file:
        file.write('{"benchmark": "tor')
    for name in ("a", "b"):
        append(tmp_path / "ranks", 3, name, samples=asdict(SAMPLES))
    lines = (tmp_path / "ranks" / "rank-3.jsonl").read_text().splitlines()
    first, *entries = [json.loads(line) for line in lines]
    assert (first["benchmark"], first["rank"], first["events"]) == ("a", 3, events)
    assert [(line["benchmark"], line["rank"]) for line in entries] == [("a", 3), ("b", 3)]
    assert stored.restore(Samples, entries[1]["samples"], "it") == SAMPLES


@pytest.mark.slow
def test_a_file_that_cannot_be_written_is_named(read_only_folder: Path) -> None:
    """The error says which, and why."""
    with pytest.raises(ResultsError, match=r"cannot write .*0\.jsonl: .*[Rr]ead-only|denied"):
        append(read_only_folder, 0, "a", samples=asdict(SAMPLES))
