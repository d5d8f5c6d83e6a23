"""Tests of opening a run that ended, to go on with it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.core.errors import ResultsError
from gpubench_plugin.core.records import LaunchSample, Metric
from gpubench_plugin.results.reader import RunToResume
from gpubench_plugin.results.recorder import Recorder
from gpubench_plugin.results.run_directory import RunDirectory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gpubench_plugin.core.records import Measurement

IDS = [f"test_it.py::test_{letter}[amp]" for letter in "abcd"]


def begun(results: Path) -> Recorder:
    """A run of four benchmarks of which none has been measured."""
    directory = RunDirectory.create(results, "resnet", "20260131T120000Z_run_0a1b2c")
    section = "  distributed:\n    world_size: 2\n"
    return Recorder.start(
        directory,
        command=["-k", "mlp"],
        environment={"schema_version": 1, "cpu": {}},
        configurations="".join(f"'{i}':\n{section}" for i in IDS),
        params={i: {"precision": "amp"} for i in IDS},
        code={},
    )


def contents(directory: RunDirectory) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in directory.path.rglob("*") if p.is_file()}


def test_run_is_what_its_files_tell(tmp_path: Path, measured: Callable[..., Measurement]) -> None:
    """The latest record of each benchmark is complete; a missing one is ``not_measured``."""
    before = begun(tmp_path)
    records: dict[str, Any] = {
        IDS[0]: measured(id=IDS[0], correctness={"loss": float("inf")}),
        IDS[1]: measured(id=IDS[1], launches=3),
        IDS[2]: measured(id=IDS[2], outcome="oom", reason="20 GiB", samples=None, metrics={}),
    }
    before.record(replace(records[IDS[1]], outcome="failed", samples=None, metrics={}))
    for record in records.values():
        before.record(record)
    before.close()

    run = RunToResume(before.directory)

    never = run.measurements[IDS[3]]
    run.journal.close()
    assert list(run.measurements) == IDS
    assert {i: run.measurements[i] for i in IDS[:3]} == records
    assert (never.name, never.params, never.world_size) == ("test_d[amp]", {"precision": "amp"}, 2)
    assert (never.outcome, never.reason) == ("not_measured", "the run ended before this benchmark")
    assert run.measured(IDS, launches=1) == {IDS[0], IDS[1]}
    assert run.measured(IDS[1:], launches=3) == {IDS[1]}
    assert run.measured(IDS, launches=4) == frozenset()
    assert run.facts.command == ("-k", "mlp")
    assert run.environment == {"schema_version": 1, "cpu": {}}
    assert run.facts.resumed == ()


def test_metric_that_is_not_finite_is_what_it_was(
    tmp_path: Path, measured: Callable[..., Measurement]
) -> None:
    """JSON has no infinity; read back from the journal it is none other."""
    before = begun(tmp_path)
    metric = Metric(name="a/b~c", value=float("-inf"), unit="s", better="lower")
    before.record(measured(id=IDS[0], metrics={"a/b~c": metric}))
    before.close()
    run = RunToResume(before.directory)
    run.journal.close()
    assert run.measurements[IDS[0]].metrics == {"a/b~c": metric}


def test_measurement_that_only_the_summary_has_is_taken(
    tmp_path: Path, measured: Callable[..., Measurement]
) -> None:
    """It is not measured again; the journal gets its numbers, without samples."""
    before = begun(tmp_path)
    lost = replace(measured(id=IDS[1]), launches=2)
    sample = LaunchSample(samples=None, metrics=lost.metrics, flags=())
    lost = replace(lost, per_launch=(sample, sample))
    failed = measured(id=IDS[2], outcome="failed", reason="x", samples=None, metrics={})
    before.record(measured(id=IDS[0]))
    before.record(replace(failed, id=IDS[1]))
    before.finish("interrupted", [measured(id=IDS[0]), lost, failed], None)

    run = RunToResume(before.directory)
    assert run.measured(IDS, launches=1) == {*IDS[:2]}
    resumed = Recorder.resume(run, command=[], carried_over=2)
    resumed.close()

    assert not before.directory.summary.exists()
    again = RunToResume(before.directory)
    again.journal.close()
    assert again.measurements[IDS[0]].samples is not None
    assert again.measurements[IDS[1]] == lost.without_samples()
    assert [e["id"] for e in again.lines("benchmark")] == [*IDS[:2], IDS[1]]


def test_opening_changes_nothing(tmp_path: Path) -> None:
    """A torn last line is left out and left alone: only who goes on mends it."""
    before = begun(tmp_path)
    before.close()
    with before.directory.journal.open("a") as lines:
        lines.write('{"schema_version": 1, "ev')
    found = contents(before.directory)
    RunToResume(before.directory).journal.close()
    assert contents(before.directory) == found


def test_run_that_is_being_written_is_refused(tmp_path: Path) -> None:
    """A run whose session lives cannot be opened a second time."""
    before = begun(tmp_path)
    with pytest.raises(ResultsError, match=r"metrics\.jsonl is being written by another process"):
        RunToResume(before.directory)
    before.close()
    RunToResume(before.directory).journal.close()


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("metrics.jsonl", '{"schema_version": 1, "event": "benchmark"}\n', "never started"),
        ("metrics.jsonl", '{"schema_version": 1, "event": "run_started"}\n', "KeyError"),
        ("config_resolved.yaml", "a: [", r"config_resolved\.yaml"),
        ("config_resolved.yaml", "", "must be a mapping"),
        ("config_resolved.yaml", "a: 1", "malformed"),
        ("system.json", "{", "is not JSON"),
        ("system.json", '{"schema_version": 7}', "schema_version 7; .* 1 only"),
        ("system.json", None, r"system\.json: no such file"),
    ],
)
def test_broken_run_is_refused(tmp_path: Path, name: str, text: str | None, message: str) -> None:
    """A file that is missing or broken is named, and the journal is let go."""
    before = begun(tmp_path)
    before.close()
    file = before.directory.path / name
    file.unlink()
    if text is not None:
        file.write_text(text)
    for _ in range(2):  # a second time, too: the first has closed the journal
        with pytest.raises(ResultsError, match=message):
            RunToResume(before.directory)


def test_resumed_run_is_one_run(tmp_path: Path, measured: Callable[..., Measurement]) -> None:
    """Who goes on writes into the same files, and says when and with what; the summary is new."""
    first = begun(tmp_path)
    first.record(measured(id=IDS[0]))
    ended = first.finish("interrupted", [measured(id=IDS[0])], {"benchmarks": [1]})
    with first.directory.journal.open("a") as lines:
        lines.write('{"schema_version": 1, "ev')
    kept = {p: p.read_bytes() for p in (first.directory.system, first.directory.config_resolved)}

    second = Recorder.resume(
        RunToResume(first.directory), command=["--resume=x", "--token=hunter2"], carried_over=1
    )
    assert not first.directory.summary.exists()
    second.record(measured(id=IDS[1]))
    record = second.finish("complete", [measured(id=IDS[0]), measured(id=IDS[1])], None)

    again = RunToResume(first.directory)
    again.journal.close()
    assert (record.started, record.command) == (ended.started, ended.command)
    assert (record.run_id, record.experiment) == (ended.run_id, "resnet")
    assert len(record.resumed) == 1
    assert again.facts.resumed == record.resumed
    assert again.measured(IDS, launches=1) == {IDS[0], IDS[1]}
    assert first.directory.summary.exists()
    assert {path: path.read_bytes() for path in kept} == kept
    journal = first.directory.journal.read_text()
    assert '"command": ["--resume=x", "--token=***"], "kept": 1}' in journal
