"""Tests of the journal."""

from __future__ import annotations

import errno
import math
import os
import shutil
import threading
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


def test_lines_are_read_in_order_as_they_were_appended(tmp_path: Path) -> None:
    """Each carries version, event and time; what JSON has no number for is null and restored."""
    event = {"event": "step", "a/b": {"~": [1.0, float("-inf")]}, "loss": float("inf")}
    path = tmp_path / "metrics.jsonl"
    with at_noon(path) as lines:
        lines.append({"event": "session", "benchmarks": 2})
    with Journal(path) as lines:
        lines.append(event)
    first, second = [*journal.JournalTail(path)]
    assert first == {"schema_version": 1, "event": "session", "time": NOON, "benchmarks": 2}
    assert (second["time"][-1], len(second["time"])) == ("Z", len(NOON))
    assert (second["loss"], second["not_finite"]["/loss"]) == (None, "inf")
    restored = journal.restore_non_finite(second)
    assert {name: restored[name] for name in event} == event


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
        monkeypatch.setattr(os, "fsync", lambda _: syncs.append(len([*journal.JournalTail(path)])))
        lines.append({"event": "a"})
        for interval_s in (math.inf, 3600.0, 0.0, 3600.0, math.inf):
            lines.append({"event": "a", "time": "earlier"}, sync_interval_s=interval_s)
        assert len([*journal.JournalTail(path)]) == 6
    assert syncs == [1, 4]
    assert [event["time"] for event in journal.JournalTail(path)] == [NOON, *["earlier"] * 5]


@pytest.mark.slow
def test_lines_of_several_threads_are_whole(tmp_path: Path) -> None:
    """Also where one of them was stopped within a write for good, as a signal handler may do."""
    with at_noon(tmp_path / "metrics.jsonl") as lines, ThreadPoolExecutor(4) as threads:
        events = ({"event": "a", "n": n} for n in range(99))
        list(threads.map(partial(lines.append, sync_interval_s=9), events))
        lines._lock.acquire()
        lines.append({"event": "a", "n": 99})
    assert sorted(event["n"] for event in journal.JournalTail(lines.path)) == [*range(100)]


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
    for read in (tail.read, tail.read, lambda: [*journal.JournalTail(path)]):
        with pytest.raises(ResultsError, match=r"metrics\.jsonl, line 5 is not JSON"):
            read()
    with pytest.raises(ResultsError, match="not a regular file"):
        journal.JournalTail(tmp_path).read()


def test_torn_last_line_is_left_out_and_mended_by_the_next_one(tmp_path: Path) -> None:
    """What a crash left of a line hides no other."""
    path = tmp_path / "metrics.jsonl"
    with at_noon(path) as lines:
        lines.append({"event": "first"})
    with path.open("ab") as file:
        file.write(b'{"event": "tor')
    assert [event["event"] for event in journal.JournalTail(path)] == ["first"]
    with at_noon(path) as lines:
        lines.append({"event": "second"})
    assert [event["event"] for event in journal.JournalTail(path)] == ["first", "second"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"schema_version": 1, "event": "a"}\n{"ev\n{"schema_version": 1}\n', "line 2 is not"),
        ('{"schema_version": 2, "event": "a"}\n', r"line 1: schema_version 2; .* 1 only"),
        (None, r"cannot read .*: No such file"),
    ],
)
def test_broken_journal_is_refused_with_its_line(
    tmp_path: Path, text: str | None, message: str
) -> None:
    """One that is missing is an error, too."""
    path = tmp_path / "metrics.jsonl"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ResultsError, match=message):
        [*journal.JournalTail(path)]


def test_partly_taken_line_is_cut_off(
    tmp_path: Path, files_end_at: Callable[[int], AbstractContextManager[None]]
) -> None:
    """A line of which the system takes only a part is none, and appending works again later."""
    path = tmp_path / "metrics.jsonl"
    with at_noon(path) as lines:
        lines.append({"event": "first"})
        whole = path.read_bytes()
        with files_end_at(len(whole) + 10), pytest.raises(ResultsError, match="File too large"):
            lines.append({"event": "second"})
        assert [event["event"] for event in journal.JournalTail(path)] == ["first"]
        lines.append({"event": "third"})
    assert [event["event"] for event in journal.JournalTail(path)] == ["first", "third"]


@pytest.mark.parametrize("raised", [OSError(errno.ENOSPC, "No space left"), KeyboardInterrupt()])
def test_whole_line_stays_whatever_its_sync_comes_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, raised: BaseException
) -> None:
    """An error or a signal is told, and takes nothing back."""

    def fails(_: int) -> None:
        raise raised

    path = tmp_path / "metrics.jsonl"
    with at_noon(path) as lines:
        monkeypatch.setattr(os, "fsync", fails)
        with pytest.raises((ResultsError, KeyboardInterrupt), match=r"No space left|^$"):
            lines.append({"event": "first"})
        assert [event["event"] for event in journal.JournalTail(path)] == ["first"]
        monkeypatch.undo()
        lines.append({"event": "second"})
    assert [event["event"] for event in journal.JournalTail(path)] == ["first", "second"]


def test_thread_whose_sync_is_slow_and_fails_takes_no_other_line_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does it make another one wait."""
    path, syncs, is_written = tmp_path / "metrics.jsonl", threading.Event(), threading.Event()
    main, fsync = threading.current_thread(), os.fsync

    def slow(descriptor: int) -> None:
        if threading.current_thread() is main:
            return fsync(descriptor)
        syncs.set()
        assert is_written.wait(9)
        raise OSError(errno.ENOSPC, "No space left")

    with at_noon(path) as lines, ThreadPoolExecutor(1) as thread:
        monkeypatch.setattr(os, "fsync", slow)
        logged = thread.submit(lines.append, {"event": "log"})
        assert syncs.wait(9)
        monkeypatch.setattr(journal, "_PATIENCE_S", 0)
        assert not lines._lock.locked()
        lines.append({"event": "benchmark"})
        is_written.set()
        with pytest.raises(ResultsError, match="No space left"):
            logged.result()
    assert [event["event"] for event in journal.JournalTail(path)] == ["log", "benchmark"]


def test_tail_of_a_file_that_shrank_starts_again(tmp_path: Path) -> None:
    """It was replaced, by a restored copy for example; no line is begun in its middle."""
    path = tmp_path / "metrics.jsonl"
    with at_noon(path) as lines:
        for event in ("one", "two", "three"):
            lines.append({"event": event})
    tail = journal.JournalTail(path)
    assert len(tail.read()) == 3
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:2]))
    assert [event["event"] for event in tail.read()] == ["one", "two"]
    assert tail.read() == []


@pytest.mark.parametrize(
    ("removed", "reason"),
    [
        ("file", "No such file or directory"),
        ("folder", "No such file or directory"),
        ("moved", "No such file or directory"),
        ("replaced", "another file has taken its place"),
        ("occupied", "Not a directory"),
    ],
)
def test_journal_that_was_removed_is_told(tmp_path: Path, removed: str, reason: str) -> None:
    """Nothing is said to be there."""
    path = tmp_path / "run" / "metrics.jsonl"
    path.parent.mkdir()
    with at_noon(path) as lines:
        lines.append({"event": "first"})
        if removed == "moved":
            path.parent.rename(tmp_path / "elsewhere")
        elif removed == "replaced":
            (copy := tmp_path / "copy").write_bytes(path.read_bytes())
            copy.replace(path)
        elif removed == "file":
            path.unlink()
        else:
            shutil.rmtree(path.parent)
        if removed == "occupied":
            path.parent.write_text("in its place")
        with pytest.raises(ResultsError) as raised:
            lines.append({"event": "second"})
    assert str(raised.value) == f"cannot write {path}: {reason}"
