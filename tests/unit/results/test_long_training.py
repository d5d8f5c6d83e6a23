"""What a run costs to readers that logged for long and was killed, so that it has no summary."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.cli.commands import runs
from gpubench_plugin.cli.main import main
from gpubench_plugin.core.errors import BrokenFile
from gpubench_plugin.results import journal
from gpubench_plugin.results.progress import MOST_LOSSES
from gpubench_plugin.results.reader import RunReader
from gpubench_plugin.system import json_files, stored
from tests.support.exhaustive import shown
from tests.support.runs_builder import MLP, RESNET, measurement, write_run

if TYPE_CHECKING:
    from pathlib import Path

    from gpubench_plugin.results.run_directory import RunDirectory

TIME = "2026-01-01T00:00:00.000000Z"
HEAD = '{"schema_version": 1, "event": '


def killed(results: Path, lines: Iterator[str]) -> RunDirectory:
    """A run that was killed in its second benchmark, whose events end the journal."""
    skipped = measurement(RESNET, outcome="not_measured")
    run = write_run(results, 0, [measurement(MLP), skipped], status=None)
    with run.journal.open("a") as file:
        file.writelines(lines)
    return run


def training(steps: int) -> Iterator[str]:
    """Lines of a training that logged each step."""
    for phase in ({"phase": "build"}, {"phase": "train", "steps": steps}):
        yield journal.line_of({"event": "phase", "benchmark": RESNET, **phase}, TIME)
    for step in range(steps):
        numbers = {"loss": 1 / (1 + step), "accuracy": 0.5, "lr": 0.001, "grad_norm": 1.2345}
        line = {"event": "log", "time": TIME, "benchmark": RESNET, "step": step, "metrics": numbers}
        yield f"{json.dumps({'schema_version': 1, **line})}\n"


def peak_bytes_of(command: str) -> int:
    """The most memory that a command takes, which succeeds."""
    tracemalloc.start()
    try:
        assert main([*command.split(), "--results-dir=results"]) == 0
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Labels of the lines that are parsed from now on."""
    labels: list[str] = []
    parse = json_files.parse

    def counted(data: bytes, label: str) -> Any:
        labels.extend([label] * (", line " in label))
        return parse(data, label)

    monkeypatch.setattr(json_files, "parse", counted)
    return labels


@pytest.mark.parametrize("steps", shown(10_000, exhaustively=[1_000_000]))
@pytest.mark.parametrize(
    ("command", "most_lines"),
    [
        ("runs list", 10),
        ("runs show last", 6_000),
        ("compare last last", 20),
        ("db ingest", 10),
        ("watch --once", 2 * MOST_LOSSES),
    ],
)
def test_of_a_long_training_only_what_is_needed_is_read(
    command: str,
    most_lines: int,
    steps: int,
    tmp_path: Path,
    parsed: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Neither lines that are parsed nor memory grow with the steps, but for a line of each MiB."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runs, "_MOST_POINTS", 1_000)
    run = killed(tmp_path / "results", training(steps))
    assert peak_bytes_of(command) < 60e6
    assert capsys.readouterr().out
    chunks = 2 + run.journal.stat().st_size // journal._CHUNK_BYTES
    assert len(parsed) <= most_lines + 3 * chunks


def test_a_journal_is_validated_line_by_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is never in memory as a whole, and no line is written anew to be validated."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delattr(stored, "json")
    run = killed(tmp_path / "results", training(3_000))
    command = f"validate {run.journal}"
    peak_bytes_of(command)  # imports what it needs
    assert peak_bytes_of(command) < run.journal.stat().st_size


def test_curves_of_more_lines_than_a_table_is_worth_are_in_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The table says so; with one line less it has them."""
    monkeypatch.chdir(tmp_path)
    run = killed(tmp_path / "results", training(8))
    for most, is_shown in ((10, True), (9, False)):  # with two phases
        monkeypatch.setattr(runs, "_MOST_POINTS", most)
        assert main(["runs", "show", "last"]) == 0
        out, err = capsys.readouterr()
        assert ("grad_norm" in out, "--format=json has them" in err) == (is_shown, not is_shown)
    assert main(["runs", "show", run.run_id, "--format=json"]) == 0
    curves = json.loads(capsys.readouterr().out)["curves"]
    assert [len(curve["values"]) for curve in curves] == [8] * 4


LOG = f'{HEAD}"log", "benchmark": "b", "step": 1, "metrics": {{}}}}'


@pytest.mark.parametrize(
    ("line", "is_read"),
    [
        (LOG, False),
        (f'{{"schema_version": 1, "time": "{TIME}", "event": "log", "metrics": {{}}}}', False),
        (f'{HEAD}"log", "metrics": {{"\\"event\\": \\"phase\\"": 1, "phase": 1}}}}', False),
        (f'{HEAD}"log", "metrics": {{"event": "phase"}}}}', False),
        (f'{HEAD}"phases"}}', False),
        (f'{HEAD}"phase", "of": {{"event": "log"}}}}', True),
        ('{"of": {"event": "log"}, "event": "phase", "schema_version": 1}', True),
        ('{"schema_version":1,"event":"phase"}', True),
        (f' {HEAD}"phase"}} ', True),
        (f'{HEAD}"ph\\u0061se"}}', True),
        ('{"schema_version": 1, "\\u0065vent": "phase"}', True),
    ],
)
def test_an_event_is_known_by_its_name_alone(line: str, is_read: bool, tmp_path: Path) -> None:
    """Not by what its line contains; however a line is written, none that is needed is missed."""
    path = tmp_path / "metrics.jsonl"
    path.write_text(f"{line}\n{LOG}\n")
    events = [*journal.JournalTail(path, ["phase"])]
    assert [event["event"] for event in events] == ["phase"] * is_read + ["log"]
    assert [*journal.JournalTail(path)] == [json.loads(line), json.loads(LOG)]


@pytest.mark.parametrize("chunk_bytes", [150, 1 << 20])
def test_lines_are_counted_whether_read_or_not(
    chunk_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message names the line; blank lines, and a torn last one, end nothing early."""
    monkeypatch.setattr(journal.JournalTail.read, "__kwdefaults__", {"chunk_bytes": chunk_bytes})
    path = tmp_path / "metrics.jsonl"
    phase = f'{HEAD}"phase"}}'
    text = "\n".join([LOG, "", "", phase, *[LOG, LOG, ""] * 3, phase, LOG])
    path.write_text(f'{text}\n{LOG}\n{{"torn')
    events = [event["event"] for event in journal.JournalTail(path, ["phase"])]
    assert (events.count("phase"), events[-1]) == (2, "log")
    for broken in ("no JSON}", f"{LOG[:-9]}", LOG.replace(" 1,", " 2,")):
        path.write_text(f"{text}\n{broken}\n{LOG}\n")
        with pytest.raises(BrokenFile, match=r"metrics\.jsonl, line 16"):
            [*journal.JournalTail(path, ["phase"])]


@pytest.mark.parametrize(("points", "steps"), [(1, [5, 9]), (100, [*range(10)])])
def test_of_lines_that_are_alike_the_last_one_is_read(
    points: int, steps: list[int], tmp_path: Path
) -> None:
    """In each part, before and after a needed one: what is logged seldom is not lost."""
    path = tmp_path / "metrics.jsonl"
    names = {5: "accuracy"}
    logs = "".join(
        f'{HEAD}"log", "step": {n}, "metrics": {{"{names.get(n, "loss")}": -{n}.5e-0{n}}}}}\n'
        for n in range(10)
    )
    path.write_text(f'{logs}\n{HEAD}"phase"}}\n{logs}\n{{"torn')
    events = [*journal.JournalTail(path, ["phase"], points=points)]
    assert [event.get("step", event["event"]) for event in events] == [*steps, "phase", *steps]
    path.write_text(f'{logs}\n{HEAD}"phase"}}\n{logs}\n{{"broken\n')
    with pytest.raises(BrokenFile, match=r"metrics\.jsonl, line 24"):
        [*journal.JournalTail(path, ["phase"], points=points)]


def test_a_line_that_is_broken_inside_is_noticed_where_it_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What begins and ends like a point of a curve is none of a list's business."""
    monkeypatch.chdir(tmp_path)
    run = killed(tmp_path / "results", iter([f'{HEAD}"log", "st{LOG}\n', *training(2)]))
    assert RunReader(run).overview().state == "interrupted"
    with pytest.raises(BrokenFile, match=r"metrics\.jsonl, line 3"):
        RunReader(run).record(with_events=True)
    for command in (["validate"], ["watch", "--once"], ["runs", "show"]):
        assert main([*command, "last"]) == 4
        assert "metrics.jsonl, line 3" in "".join(capsys.readouterr())
