"""What the events of a journal say of a run that is not over."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from gpubench_plugin.results.progress import RunProgress

NAME = "bench/test_it.py::test_train[amp]"
OTHER = "bench/test_it.py::test_other"


def at(second: float) -> str:
    """A time of the journal."""
    return f"2026-01-31T12:00:{second:09.6f}Z"


def live(*events: dict[str, Any], benchmark: str = NAME) -> RunProgress:
    """The run after its start and those `events` of a benchmark."""
    run = RunProgress(run_id="one")
    run.add({"event": "run_started", "params": {NAME: {}, OTHER: {}}})
    for event in events:
        run.add({"time": at(0), "benchmark": benchmark, **event})
    return run


def phase(name: str, **fields: Any) -> dict[str, Any]:
    """The begin of a phase."""
    return {"event": "phase", "phase": name, **fields}


def step(number: int, loss: float | None, second: float = 0) -> dict[str, Any]:
    """A logged step."""
    return {"event": "training_step", "step": number, "loss": loss, "time": at(second)}


def test_training_tells_step_loss_speed_and_time_left() -> None:
    """The speed is that since its first logged step, which may have been before the phase began.

    A loss that was not finite is left out.
    """
    run = live(phase("build"), phase("train", steps=100), step(10, 2.0, 5))
    current = run.current
    assert current is not None
    assert (current.step, current.step_s, current.remaining_s) == (10, None, None)
    run.add({**step(30, None, 7), "benchmark": NAME})
    assert (current.phase, current.step, current.steps, current.loss) == ("train", 30, 100, 2.0)
    assert (current.step_s, current.remaining_s) == (pytest.approx(0.1), pytest.approx(7.0))
    assert current.losses == [2.0]

    run.add({**phase("warm-up"), "benchmark": NAME})
    assert (current.phase, current.step, current.remaining_s) == ("warm-up", None, None)
    progress = {"event": "progress", "rounds": 9, "half_width": 0.01, "step_s": 0.5}
    run.add({**progress, "remaining_s": 4.0, "benchmark": NAME})
    assert (current.rounds, current.half_width, current.step_s) == (9, 0.01, 0.5)
    assert current.remaining_s == 4.0


def test_loop_of_a_test_tells_step_and_speed() -> None:
    """By what it logs in the phase in which it runs; between the rounds that are measured nothing.

    A second loop counts its steps anew.
    """
    points = [{"event": "log", "step": n, "metrics": {"loss": 1.0}, "time": at(n)} for n in (5, 9)]
    run = live(phase("build"), *points, {**points[0], "step": 0})
    assert run.current is not None
    assert (run.current.step, run.current.step_s) == (0, 1.0)
    measured = phase("measure"), {"event": "progress", "rounds": 2, "step_s": 0.5}, points[1]
    for event in measured:
        run.add({"benchmark": NAME, **event})
    assert (run.current.step, run.current.step_s, run.current.rounds) == (None, 0.5, 2)


def test_losses_of_a_long_training_take_bounded_memory() -> None:
    """They are thinned evenly, and begin with the first."""
    run = live(phase("build"), phase("train"), *(step(n, float(n)) for n in range(1, 20_001)))
    assert run.current is not None
    losses = run.current.losses
    assert 512 <= len(losses) <= 1024
    assert losses[0] == 1.0
    assert {round(b - a) for a, b in pairwise(losses)} == {32}


def test_last_number_of_each_name_is_kept() -> None:
    """Those of epochs, evaluations and a user's own; a user's loss is a loss."""
    run = live(
        phase("build"),
        {"event": "epoch", "epoch": 1, "accuracy": 0.5, "loss": 1.0},
        {"event": "log", "step": 4, "metrics": {"loss": 0.7, "perplexity": 3.0, "bad": None}},
        {"event": "evaluation", "step": 4, "test_loss": 0.8, "test_accuracy": None},
        {"event": "something new"},
    )
    assert run.current is not None
    numbers = {"epoch": 1, "accuracy": 0.5, "perplexity": 3.0, "test_loss": 0.8}
    assert (run.current.numbers, run.current.loss, run.current.step) == (numbers, 0.7, 4)


def test_journal_that_is_read_again_is_no_other_run() -> None:
    """What a longer one had said is forgotten with it."""
    run = RunProgress(run_id="r")
    record = {"event": "benchmark", "outcome": "measured"}
    start = {"event": "run_started", "params": {"a": {}, "b": {}}}
    for line in (start, {**record, "id": "a"}, {**record, "id": "b"}, start, {**record, "id": "a"}):
        run.add(line)
    assert run.outcomes == {"a": "measured"}


def test_another_try_begins_anew_and_a_resumed_run_keeps_what_was_measured() -> None:
    """What failed runs again; what a thread tells of a benchmark that is over is ignored."""
    run = live(phase("start"), phase("build", launch=1), step(9, 1.0), phase("build", launch=2))
    assert run.current is not None
    assert (run.current.launch, run.current.step, run.current.losses) == (2, None, [])

    metrics = {"step_time_s": {"value": 0.25}}
    run.add({"event": "benchmark", "id": NAME, "outcome": "measured", "metrics": metrics})
    run.add({**step(10, 1.0), "benchmark": NAME})
    run.add({"event": "benchmark", "id": OTHER, "outcome": "failed", "metrics": {}})
    assert (run.current, run.total, run.status) == (None, 2, None)
    assert run.outcomes == {NAME: "measured", OTHER: "failed"}
    assert run.step_times_s == {NAME: 0.25}

    run.add({**phase("build"), "benchmark": OTHER})
    assert run.outcomes == {NAME: "measured"}, "it runs again"
    run.add({"event": "benchmark", "id": OTHER, "outcome": "failed", "metrics": {}})

    run.add({"event": "run_finished", "status": "failed"})
    assert run.status == "failed"
    run.add({"event": "run_resumed", "kept": 1})
    assert (run.status, run.outcomes) == (None, {NAME: "measured"})
