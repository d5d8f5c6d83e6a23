"""Records stay in the journal, whatever interrupts the writing; removed results are told of."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.support.projects import Project

pytestmark = [pytest.mark.slow, pytest.mark.own_process]

SIGNAL_IN_JOURNAL = """
import os, pathlib, signal

def stop(*_): raise KeyboardInterrupt
signal.signal(signal.SIGALRM, stop)  # as a plugin for timeouts does
seen, real_write, real_fsync = 0, os.write, os.fsync

def strike(call, descriptor, line):
    global seen
    name = os.readlink(f"/proc/self/fd/{descriptor}")
    if os.environ.get("CALL") != call or not name.endswith("metrics.jsonl"): return
    last = line or pathlib.Path(name).read_bytes().splitlines()[-1]
    seen += f'"event": "{os.environ["EVENT"]}"'.encode() in last
    if seen == 2:
        seen += 1
        if line: real_write(descriptor, line[:len(line) // 2])
        lines = pathlib.Path(name).read_bytes()
        pathlib.Path("journal").write_bytes(lines[:lines.rfind(b"\\n") + 1])
        os.kill(os.getpid(), int(os.environ["SIGNAL"]))

def write(descriptor, data):
    strike("write", descriptor, data)
    return real_write(descriptor, data)

def fsync(descriptor):
    real_fsync(descriptor)
    strike("fsync", descriptor, b"")

os.write, os.fsync = write, fsync
"""
TESTS = """
import os, time
import pytest

ran = 0

@pytest.mark.parametrize("n", range(4))
def test_k(gpubench, n):
    global ran
    ran += 1
    with open("ran", "a") as file: file.write(f"{n} ")
    if os.environ.get("EVENT") == "log": time.sleep(1.1)  # after which an event is synced
    gpubench.log(step=1, loss=1.0)
    gpubench(lambda: None)
"""


@pytest.mark.parametrize(
    ("number", "call", "event"),
    [
        pytest.param(signal.SIGINT, "fsync", "benchmark", marks=pytest.mark.exhaustive),
        pytest.param(signal.SIGALRM, "fsync", "benchmark", marks=pytest.mark.exhaustive),
        (signal.SIGALRM, "write", "benchmark"),
        (signal.SIGINT, "fsync", "log"),
    ],
)
def test_signal_while_the_journal_is_written_costs_no_record(
    project: Project, number: int, call: str, event: str
) -> None:
    """What the summary says to be measured is in the journal as a whole, and not measured again."""
    project.write("conftest.py", SIGNAL_IN_JOURNAL)
    project.write("test_it.py", TESTS)
    run = project.run(env={"SIGNAL": f"{number:d}", "CALL": call, "EVENT": event})
    assert (run.code, run.summary["status"]) == (2, "interrupted"), run.out + run.err
    lines = (project.path / "journal").read_text()
    assert (run.directory / "metrics.jsonl").read_text().startswith(lines)
    measured = {name for name, outcome in run.outcomes.items() if outcome == "measured"}
    records = {e["name"]: e["samples"] for e in run.journal if e["event"] == "benchmark"}
    assert {name for name, samples in records.items() if samples} == measured
    assert len(measured) == (2 if event == "benchmark" else 1)

    again = project.run(f"--resume={run.directory.name}")
    assert again.code == 0, again.out + again.err
    assert {*again.outcomes.values()} == {"measured"}
    ran = (project.path / "ran").read_text().split()
    assert len(ran) == (4 if event == "benchmark" else 5), ran


def test_results_removed_meanwhile_end_the_session(project: Project) -> None:
    """With that reason; nothing is said to be kept."""
    project.write(
        "test_it.py",
        """
        import shutil
        def test_a(gpubench):
            gpubench(lambda: None)
            shutil.rmtree("results")
        def test_b(gpubench): gpubench(lambda: None)
        """,
    )
    run = project.run("-p", "no:randomly")
    assert run.code == 1, run.out + run.err
    said = [line for line in run.out.splitlines() if line.startswith("cannot write results")]
    assert len(said) == 1
    assert "metrics.jsonl: No such file or directory" in said[0]
    assert not {"intact", "recorded"} & {*run.out.replace(";", " ").split()}
    assert "Traceback" not in run.out + run.err
    assert "1 measured, 1 not measured" in run.out
