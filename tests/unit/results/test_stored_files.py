"""Files in ``tests/support/data/stored``, written by an earlier commit: read, and written alike.

The run has one benchmark measured in two launches, with a metric of its own, one skipped, one
failed, and the verdicts of a baseline.
"""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from jsonschema import Draft202012Validator

from gpubench_plugin.baselines.model import to_text
from gpubench_plugin.baselines.store import Baselines
from gpubench_plugin.cli.ab.saved_state import SavedState
from gpubench_plugin.core import records
from gpubench_plugin.core.verdicts import Comparison, FactDifference
from gpubench_plugin.results import journal, verdicts
from gpubench_plugin.results.reader import RunReader
from gpubench_plugin.results.recorder import Recorder
from gpubench_plugin.results.run_directory import RunDirectory, change_tags, tags_of
from gpubench_plugin.results.sources import load_run
from gpubench_plugin.results.summary import write_summary

STORED: Final = Path(__file__).parents[2] / "support" / "data" / "stored"
SCHEMAS: Final = Path(records.__file__).parents[2] / "docs" / "schemas"
RUN: Final = RunDirectory(path=STORED / "kept" / "20261123T180949Z_run_03dd66")
MEASURED: Final = "test_small.py::test_measured"


def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def fields_of(path: Path) -> Any:
    return json.loads(text_of(path))


def holds(written: Any, kept: Any) -> bool:
    """Whether all keys and values that were `kept` are in what is `written`, beside new ones."""
    if isinstance(kept, dict):
        return all(key in written and holds(written[key], value) for key, value in kept.items())
    if isinstance(kept, list):
        return len(written) == len(kept) and all(map(holds, written, kept))
    return bool(written == kept)


def validated(name: str, fields: Any) -> None:
    Draft202012Validator(fields_of(SCHEMAS / f"{name}.schema.json")).validate(fields)


def test_the_journal_gives_the_summary_that_was_written(tmp_path: Path) -> None:
    """All keys and all values."""
    record = replace(RunReader(RUN).record(), finished=fields_of(RUN.summary)["finished"])
    write_summary(tmp_path / "summary.json", record)
    assert holds(fields_of(tmp_path / "summary.json"), fields_of(RUN.summary))
    validated("summary", fields_of(RUN.summary))


def test_every_line_of_the_journal_is_read_and_written_alike(tmp_path: Path) -> None:
    """A record's line has the keys of the record."""
    record = RunReader(RUN).record()
    events = [*journal.JournalTail(RUN.journal)]
    assert [e["event"] for e in events] == [
        *("run_started", "benchmark", "benchmark", "benchmark", "verdicts", "run_finished")
    ]
    folder = RunDirectory(path=tmp_path / "default" / RUN.run_id)
    folder.path.mkdir(parents=True)
    for name in ("config_resolved.yaml", "system.json"):  # as a started run has them
        shutil.copy(RUN.path / name, folder.path)
    now = iter(event["time"] for event in events[1:4])
    recorder = Recorder(
        folder,
        journal.Journal(folder.journal, now=lambda: next(now)),
        command=record.command,
        environment=record.environment,
        started=record.started,
    )
    for measurement in record.benchmarks:
        recorder.record(measurement)
    recorder.close()
    assert holds([*journal.JournalTail(folder.journal)], events[1:4])
    for event in events:
        validated("journal", event)


def test_journal_and_summary_and_file_of_pytest_benchmark_give_one_result() -> None:
    """The last does not hold what was not measured, nor the configuration."""
    names = ("metrics.jsonl", "summary.json", "benchmark.json")
    journaled, summarized, carried = (
        load_run(str(RUN.path / name), results_dir=STORED, cwd=STORED) for name in names
    )
    assert journaled.results == summarized.results
    result = summarized.results[MEASURED]
    assert result.metrics["answer"] == records.Metric(
        name="answer", value=42.0, unit="count", better="higher"
    )
    assert len(result.launches) == 2
    assert result.settings == {"measure.by": "steps", "measure.steps": 8, "measure.warmup_s": 0.001}
    assert result.work == {"samples": 1.0, "tokens": 8.0}
    assert carried.results == {MEASURED: replace(result, configuration={})}
    assert [r.outcome for r in summarized.results.values()] == ["measured", "skipped", "failed"]


def test_verdicts_are_read_and_written_alike(tmp_path: Path) -> None:
    """So are the ends of intervals that are not bounded."""
    path = STORED / "verdicts.json"
    document = verdicts.read(path)
    first, whole, last = (
        document.for_benchmark(f"test_a.py::test_{name}")[0] for name in ("a", "b", "c")
    )
    assert first.interval == (-math.inf, 0.25)
    assert first.parts[1].interval == (-math.inf, math.inf)
    assert last.interval == (0.125, math.inf)
    heads = [
        Comparison(
            base=document.base_label,
            head=head,
            verdicts=(first, whole, last),
            environment_differences=tuple(
                FactDifference(key=row.key, base=row.base, head=row.head)
                for row in document.environment_differences[:2]
            ),
            notes=notes,
        )
        for head, notes in (("run one", document.notes[:2]), ("run two", document.notes[2:]))
    ]
    assert json.loads(verdicts.to_text(heads)) == fields_of(path)
    run = RunDirectory(path=tmp_path)
    shutil.copy(path, run.verdicts)
    assert RunReader(run).regressed == ("test_a.py::test_a",) * 2
    assert verdicts.read(RUN.verdicts).for_benchmark(MEASURED)[0].runs_needed == 9
    validated("verdicts", fields_of(path))


def test_a_baseline_with_levels_accepted_is_read_and_written_alike() -> None:
    """With its pins, and with the level that was accepted since."""
    baseline = Baselines(STORED).get("main")
    assert baseline is not None
    assert baseline.runs == ("20261123T180906Z_run_bb0af0", "20261123T180917Z_run_b82d50")
    assert [a.reason for a in baseline.acceptances.values()] == ["meant still"]
    assert [change.action for change in baseline.changes] == ["set", "accept", "set", "accept"]
    validated("baseline", fields_of(STORED / "baselines" / "main.json"))
    assert to_text(baseline) == text_of(STORED / "baselines" / "main.json")


def test_tags_are_read_and_written_alike(tmp_path: Path) -> None:
    """A file that is written again is the same."""
    assert tags_of(RUN) == ("release",)
    directory = RunDirectory(path=tmp_path)
    change_tags(directory, add=["release"])
    assert text_of(tmp_path / "tags.json") == text_of(RUN.path / "tags.json")


def test_a_comparison_is_read_and_written_alike(tmp_path: Path) -> None:
    """With its launches and looks."""
    state = SavedState.read(STORED / "ab")
    assert state.repeats() == 1
    assert state.request.time_s == 90.0
    replace(state, folder=tmp_path).write()
    assert text_of(tmp_path / "state.json") == text_of(STORED / "ab" / "state.json")
