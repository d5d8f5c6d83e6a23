"""Tests of the journal."""

from __future__ import annotations

import itertools
import json
import math
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.core import records
from gpubench_plugin.core.errors import ResultsError
from gpubench_plugin.results import journal
from gpubench_plugin.results.journal import Journal

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

NOON = "2026-01-31T12:00:00.000000Z"
ROOT = Path(records.__file__).parents[2]


def at_noon(path: Path) -> Journal:
    return Journal(path, now=lambda: NOON)


def test_line_stands_for_itself(tmp_path: Path) -> None:
    """Every line carries the schema's version, the event and the time."""
    path = tmp_path / "metrics.jsonl"
    with at_noon(path) as lines:
        lines.append({"event": "session", "benchmarks": 2})
    assert [json.loads(line) for line in path.read_text().splitlines()] == [
        {"schema_version": 1, "event": "session", "time": NOON, "benchmarks": 2}
    ]


def test_line_is_on_the_disk_when_append_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole of it: a machine that fails afterwards has not lost it."""
    synced: list[bytes] = []
    path = tmp_path / "metrics.jsonl"
    with at_noon(path) as lines:
        monkeypatch.setattr(os, "fsync", lambda _: synced.append(path.read_bytes()))
        lines.append({"event": "session"})
        assert synced == [path.read_bytes()]
        lines.append({"event": "session"})
        assert synced[1:] == [path.read_bytes()]


def test_event_is_written_at_once_and_synced_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed process has lost none of its events, and does not wait for the disk for each."""
    path, syncs = tmp_path / "metrics.jsonl", list[int]()
    with at_noon(path) as lines:
        monkeypatch.setattr(os, "fsync", lambda _: syncs.append(len(journal.read(path))))
        lines.append({"event": "a"})
        for interval_s in (math.inf, 3600.0, 0.0, 3600.0, math.inf):
            lines.append({"event": "a", "time": "earlier"}, sync_interval_s=interval_s)
        assert len(journal.read(path)) == 6
    assert syncs == [1, 4]
    assert [event["time"] for event in journal.read(path)] == [NOON, *["earlier"] * 5]


def test_lines_of_several_threads_are_whole(tmp_path: Path) -> None:
    """Also where one of them was stopped within a write for good, as a signal handler may do."""
    with at_noon(tmp_path / "metrics.jsonl") as lines, ThreadPoolExecutor(4) as threads:
        events = ({"event": "a", "n": n} for n in range(99))
        list(threads.map(partial(lines.append, sync_interval_s=9), events))
        lines._lock.acquire()
        lines.append({"event": "a", "n": 99})
    assert sorted(event["n"] for event in journal.read(lines.path)) == [*range(100)]


def test_tail_reads_each_line_once_when_it_is_complete(tmp_path: Path) -> None:
    """A torn line, which a resumed session removes, is left; a broken one is named as by `read`."""
    path = tmp_path / "metrics.jsonl"
    with at_noon(path) as lines:
        lines.append({"event": "one"})
        tail = journal.JournalTail(path)
        assert [event["event"] for event in tail.read()] == ["one"]
    with path.open("a") as file:
        file.write('{"schema_version": 1, "event": "to')
    assert tail.read() == []
    with at_noon(path) as lines:
        lines.append({"event": "two", "text": "x" * (5 << 20)})
        lines.append({"event": "three"})
        assert [event["event"] for event in tail.read()] == ["two"]
        assert [event["event"] for event in tail.read()] == ["three"]
    with path.open("a") as file:
        file.write("\noops\n")
    for read in (tail.read, tail.read, lambda: journal.read(path)):
        with pytest.raises(ResultsError, match=r"metrics\.jsonl, line 5 is not JSON"):
            read()
    with pytest.raises(ResultsError, match="cannot read"):
        journal.JournalTail(tmp_path / "none").read()
    with pytest.raises(ResultsError, match="not a regular file"):
        journal.JournalTail(tmp_path).read()


def test_time_is_utc(tmp_path: Path) -> None:
    """The time of an event is UTC in ISO 8601."""
    with Journal(tmp_path / "metrics.jsonl") as lines:
        lines.append({"event": "session"})
    (event,) = journal.read(lines.path)
    assert event["time"].endswith("Z")
    assert len(event["time"]) == len(NOON)


def test_what_is_not_finite_is_null_and_named(tmp_path: Path) -> None:
    """A loss that is not a number is written as null, and the line says what it was."""
    with at_noon(tmp_path / "metrics.jsonl") as lines:
        lines.append({"event": "step", "loss": float("nan")})
    (event,) = journal.read(lines.path)
    assert (event["loss"], event["not_finite"]) == (None, {"/loss": "nan"})


def test_read_returns_events_in_order(tmp_path: Path) -> None:
    """Events come back in the order in which they were appended, over several openings."""
    for number in range(3):
        with at_noon(tmp_path / "metrics.jsonl") as lines:
            lines.append({"event": "step", "number": number})
    assert [event["number"] for event in journal.read(lines.path)] == [0, 1, 2]


@pytest.mark.parametrize("cut", [1, 10, 40])
def test_torn_last_line_is_left_out(tmp_path: Path, cut: int) -> None:
    """What a crash left of the last line does not hide the lines before it."""
    path = tmp_path / "metrics.jsonl"
    with at_noon(path) as lines:
        lines.append({"event": "first"})
        whole = path.stat().st_size
        lines.append({"event": "second"})
    path.write_bytes(path.read_bytes()[: whole + cut])
    assert [event["event"] for event in journal.read(path)] == ["first"]


def test_appending_after_a_torn_line_mends_it(tmp_path: Path) -> None:
    """A journal opened again loses its torn line, so that the next one is whole."""
    path = tmp_path / "metrics.jsonl"
    with at_noon(path) as lines:
        lines.append({"event": "first"})
    with path.open("ab") as file:
        file.write(b'{"event": "tor')
    with at_noon(path) as lines:
        lines.append({"event": "second"})
    assert [event["event"] for event in journal.read(path)] == ["first", "second"]


def test_broken_line_in_the_middle_is_an_error(tmp_path: Path) -> None:
    """A broken line that is not the last is damage, and the error names it."""
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"schema_version": 1, "event": "a"}\n{"ev\n{"schema_version": 1}\n')
    with pytest.raises(ResultsError, match="line 2 is truncated"):
        journal.read(path)


def test_line_of_another_version_is_refused(tmp_path: Path) -> None:
    """With both versions."""
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"schema_version": 2, "event": "a"}\n')
    with pytest.raises(ResultsError, match=r"schema_version 2; .* 1 only"):
        journal.read(path)


def test_missing_journal_is_an_error(tmp_path: Path) -> None:
    """A journal that is not there is a clear error."""
    with pytest.raises(ResultsError, match=r"cannot read .*: No such file"):
        journal.read(tmp_path / "metrics.jsonl")


def test_partly_taken_line_is_cut_off(
    tmp_path: Path, files_end_at: Callable[[int], AbstractContextManager[None]]
) -> None:
    """A line of which the system takes only a part is removed, and appending works again later."""
    path = tmp_path / "metrics.jsonl"
    with at_noon(path) as lines:
        lines.append({"event": "first"})
        whole = path.read_bytes()
        with files_end_at(len(whole) + 10), pytest.raises(ResultsError, match="File too large"):
            lines.append({"event": "second"})
        assert path.read_bytes() == whole
        lines.append({"event": "third"})
    assert [event["event"] for event in journal.read(path)] == ["first", "third"]


@pytest.mark.slow
def test_full_disk_keeps_the_lines_before(small_disk: Path) -> None:
    """On a disk that fills up the error says so, and every line appended before is there."""
    appended = []

    def append_for_ever(lines: Journal) -> None:
        for number in itertools.count():
            lines.append({"event": "step", "number": number, "text": "x" * 1000})
            appended.append(number)

    with at_noon(small_disk / "metrics.jsonl") as lines:
        with pytest.raises(ResultsError, match=r"cannot write .*metrics\.jsonl: No space left"):
            append_for_ever(lines)
        assert lines.path.read_bytes().endswith(b"\n")
    assert [event["number"] for event in journal.read(lines.path)] == appended
    assert len(appended) > 10


@pytest.mark.slow
def test_kill_loses_no_appended_line(tmp_path: Path) -> None:
    """Killed without warning a process leaves all it appended, and the journal to others."""
    path = tmp_path / "metrics.jsonl"
    program = (
        "import sys, pathlib\n"
        "from gpubench_plugin.results.journal import Journal\n"
        "lines = Journal(pathlib.Path(sys.argv[1]))\n"
        "for number in range(10**9):\n"
        "    lines.append({'event': 'step', 'number': number})\n"
        "    print(number, flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        said = [int(writer.stdout.readline()) for _ in range(20)]
        with pytest.raises(ResultsError, match="is being written by another process"):
            Journal(path)
        writer.send_signal(signal.SIGKILL)
        said += [int(line) for line in writer.stdout.read().split()]
    numbers = [event["number"] for event in journal.read(path)]
    assert numbers[: len(said)] == said
    assert numbers == list(range(len(numbers)))
    Journal(path).close()


def test_numbers_that_are_not_finite_are_restored(tmp_path: Path) -> None:
    """A line read from the journal can be made what was appended, however deep a number stands."""
    event = {"event": "step", "a/b": {"~": [1.0, float("-inf")]}, "loss": float("inf")}
    with at_noon(tmp_path / "metrics.jsonl") as lines:
        lines.append(event)
    (read,) = journal.read(lines.path)
    restored = journal.restore_non_finite(read)
    assert {name: restored[name] for name in event} == event
