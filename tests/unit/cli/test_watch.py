"""``gpubench watch``, as a user types it, beside a journal that is being written."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.cli.commands import watch
from gpubench_plugin.cli.main import main
from gpubench_plugin.reports.live import live_lines
from gpubench_plugin.results.journal import Journal
from gpubench_plugin.results.progress import RunProgress
from tests.support.runs_builder import MLP, RESNET, measurement, run_id, write_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

TRAIN: list[dict[str, Any]] = [
    {"event": "phase", "phase": "build"},
    {"event": "phase", "phase": "train", "steps": 40, "time": "2026-01-31T12:00:00.000000Z"},
    *(
        {"event": "training_step", "step": n, "loss": 3.0 - n, "time": f"2026-01-31T12:00:0{n}Z"}
        for n in (1, 2)
    ),
]
"""A second for each step."""


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Journal]:
    """Journal of the newest run, which this process is writing: MLP is measured."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPUBENCH_REGISTRY", "none")
    write_run(tmp_path / "results", 0)
    directory = write_run(
        tmp_path / "results", 1, [measurement(), measurement(RESNET)], status=None
    )
    directory.journal.write_text("")
    with Journal(directory.journal) as journal:
        head = {"event": "run_started", "run_id": directory.run_id, "command": []}
        journal.append({**head, "params": {MLP: {}, RESNET: {}}})
        record = {"event": "benchmark", "id": MLP, "outcome": "measured"}
        journal.append({**record, "metrics": {"step_time_s": {"value": 0.001}}})
        yield journal


def log(journal: Journal, *events: dict[str, Any]) -> None:
    """Write `events` of the other benchmark."""
    for event in events:
        journal.append({**event, "benchmark": RESNET})


def test_state_is_printed_once(running: Journal, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the newest run: as lines, and as JSON for scripts."""
    log(running, *TRAIN)
    assert main(("watch", "--once")) == 0
    first, place, *rest = capsys.readouterr().out.splitlines()
    assert first == f"{run_id(1)}: running, 1 of 2 benchmarks done (1 measured)"
    assert place == f"[2/2] {RESNET}"
    assert rest[0] == "  phase    train, step 2 of at most 40, loss 1, 38 s left"
    assert rest[1].startswith("  loss     █▁ 1")
    assert main(("watch", run_id(1)[:12], "--once", "--format=json")) == 0
    state = json.loads(capsys.readouterr().out)
    assert (state["run_id"], state["state"], state["benchmarks"]) == (run_id(1), "running", 2)
    assert state["outcomes"] == {MLP: "measured"}
    assert (state["current"]["phase"], state["current"]["steps"]) == ("train", 40)
    running.close()
    assert main(("watch", "--once", "--format=json")) == 0
    state = json.loads(capsys.readouterr().out)
    assert (state["state"], state["current"]["remaining_s"]) == ("interrupted", None)


@pytest.fixture
def during(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets what happens between two looks at the journal."""

    def of(*actions: Callable[[], object]) -> None:
        remaining = iter(actions)
        monkeypatch.setattr(watch, "sleep", lambda _: next(remaining)())

    return of


def test_run_is_followed_until_nobody_writes_it(
    running: Journal, during: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    """Plain lines where stdout is no terminal: at each phase and end, with doubts."""
    record = {"event": "benchmark", "id": RESNET, "outcome": "failed", "metrics": {}}
    during(
        lambda: log(running, *TRAIN[:1]),
        lambda: log(running, *TRAIN[1:]),
        lambda: log(running, {"event": "training_step", "step": 3, "loss": 0.5}),
        lambda: running.append(record),
        lambda: log(running, {"event": "phase", "phase": "build"}),
        lambda: running.append(record),
        lambda: log(running, {"event": "phase", "phase": "build"}),
        lambda: running.append(
            {
                **record,
                "outcome": "measured",
                "metrics": {"step_time_s": {"value": 0.01457}},
                "flags": ["outliers", "contended"],
            }
        ),
        lambda: (running.append({"event": "run_finished", "status": "failed"}), running.close()),
    )
    assert main(("watch",)) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert out.splitlines() == [
        f"{run_id(1)}: running, 1 of 2 benchmarks done (1 measured)",
        f"[2/2] {RESNET}: build",
        f"[2/2] {RESNET}: train, step 2 of at most 40, loss 1, 38 s left",
        f"{RESNET}: failed",
        f"[2/2] {RESNET}: build",
        f"{RESNET}: failed",
        f"{RESNET}: measured, ≈ 15 ms (contended)",
        f"{run_id(1)}: failed, 2 of 2 benchmarks done (2 measured)",
    ]


@pytest.mark.parametrize("event", ["killed", "interrupted"])
def test_killed_run_is_told_from_one_that_was_interrupted(
    running: Journal, during: Callable[..., None], capsys: pytest.CaptureFixture[str], event: str
) -> None:
    """The lock of the journal is gone; by its end it was Ctrl-C. It says where that was."""

    def end() -> None:
        log(running, *TRAIN)
        if event == "interrupted":
            running.append({"event": "run_finished", "status": "interrupted"})
        running.close()

    during(end)
    assert main(("watch", run_id(1))) == 0
    *_, state, where = capsys.readouterr().out.splitlines()
    assert state == f"{run_id(1)}: interrupted, 1 of 2 benchmarks done (1 measured)"
    assert where == f"it was {event} in {RESNET}, phase train"


def test_interrupt_ends_it_and_bad_input_is_one_line(
    running: Journal,
    during: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """Ctrl-C as in every command; a run that is not there is named with those that are."""

    def interrupt() -> None:
        raise KeyboardInterrupt

    during(interrupt)
    assert main(("watch",)) == 130
    capsys.readouterr()
    for arguments, text in {
        ("20990101",): f"no run in {tmp_path}/results starts with '20990101'",
        ("--format=json",): "--format=json: for the state at one time; add --once",
        ("--results-dir=none",): f"last: {tmp_path}/none has 0 runs",
    }.items():
        assert main(("watch", *arguments)) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"gpubench: {text}")
        assert error.count("\n") == 1


def test_lines_fit_into_the_terminal_and_cannot_steer_it() -> None:
    """Names and numbers come from files: they are escaped and cut."""
    run = RunProgress(run_id="one", ids=("a",))
    log = {"event": "log", "step": 1, "metrics": {"loss": 1.0, "\x1b[2J": 2.0}}
    events = [*TRAIN, log, {"event": "progress", "rounds": 1, "step_s": 0.5, "samples_per_s": 2e4}]
    for event in events:
        run.add({"benchmark": "\x1b[2J" * 30, **event})
    lines = live_lines(run, "running", 40)
    assert len(lines) == 6
    assert max(map(len, lines)) <= 40
    assert "\x1b" not in "".join(lines)
    assert lines[3] == "  loss     █▁▁ 1"
    assert lines[5] == "  speed    500.0 ms per step, 20.0 ksam…"
