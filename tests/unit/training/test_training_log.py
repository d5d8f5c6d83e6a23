"""History of an untimed training in the journal."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from gpubench_plugin.core.errors import CorrectnessError
from gpubench_plugin.ranks.agreement import RankAgreement
from gpubench_plugin.training.evaluation import Evaluation
from gpubench_plugin.training.model import build_model
from gpubench_plugin.training.training_log import TrainingClock, TrainingLog
from gpubench_plugin.workloads.base import Batch
from tests.support.presets import CPU, preset_of, trainer_of, workload_of
from tests.unit.training.conftest import Slope, Together

NAN = float("nan")
LOSS = torch.tensor(1.0)


class Ticking(TrainingClock):
    """A clock that shows a second more each time it is read."""

    def __init__(self) -> None:
        super().__init__()
        self._readings = iter(range(1, 1000))

    @property
    def seconds(self) -> float:
        return float(next(self._readings))


def log_of(events: list[Any], **changes: Any) -> TrainingLog:
    arguments: dict[str, Any] = {
        "log": events.append,
        "workload": Slope(),
        "agreement": RankAgreement(),
        "interval": 2,
        "state": dict,
        "samples_per_step": 8,
        "samples_per_batch": 8,
        "batches_per_epoch": None,
        "clock": Ticking(),
    }
    return TrainingLog(**{**arguments, **changes})


def test_every_n_steps_and_the_last_are_logged() -> None:
    """A line has the step's own loss, the state, whose tensors are read, and the rate since."""
    events: list[dict[str, Any]] = []
    state = {
        "learning_rate": 0.5,
        "skipped_steps": torch.tensor(3),
        "gradient_norm": torch.tensor(0.25),
    }
    training_log = log_of(events, state=lambda: state)
    for loss in (5.0, 4.0, 3.0):
        training_log.end_step(torch.tensor(loss))
    assert training_log.close() == [5.0, 4.0, 3.0]
    read = {"learning_rate": 0.5, "skipped_steps": 3, "gradient_norm": 0.25}
    line = {"event": "training_step", **read}
    assert events == [
        {**line, "step": 2, "loss": 4.0, "samples_per_s": 16.0},
        {**line, "step": 3, "loss": 3.0, "samples_per_s": 8.0},
    ]
    assert isinstance(events[0]["skipped_steps"], int)


def test_the_step_whose_loss_is_not_finite_is_named() -> None:
    """A NaN among the losses is an error naming its step."""
    training_log = log_of([], interval=3)
    training_log.end_step(torch.tensor(1.0))
    training_log.end_step(torch.tensor(NAN))
    with pytest.raises(CorrectnessError, match="the loss at step 2 is nan"):
        training_log.end_step(torch.tensor(1.0))


def test_losses_are_means_over_the_ranks() -> None:
    """The losses of all ranks count, and one that is not finite is found on every rank."""
    training_log = log_of([], interval=1, agreement=Together([3.0], [NAN]))
    training_log.end_step(torch.tensor(1.0))
    assert training_log.close() == [2.0]
    with pytest.raises(CorrectnessError, match="the loss at step 2 is nan"):
        training_log.end_step(torch.tensor(1.0))


def test_a_paused_clock_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is evaluated on the way is no second of training."""
    now = [0.0]
    monkeypatch.setattr("gpubench_plugin.training.training_log.perf_counter", lambda: now[0])
    clock = TrainingClock()
    now[0] = 2.0
    with clock.paused():
        now[0] = 10.0
    now[0] = 11.0
    assert clock.seconds == 3.0


MLP = "training.loss_drop=null", "training.epochs=2", "training.evaluate=true"


@pytest.mark.parametrize("accumulation", [1, 2])
def test_epochs_are_those_of_a_loop_by_hand(accumulation: int) -> None:
    """Loss, accuracy and steps equal those of a loop that trains the same model on the same data.

    With two batches a step an epoch of 23 batches ends within a step, whose second batch belongs
    to the next one.
    """
    configuration = preset_of("mlp", "tiny", *MLP, f"training.accumulation_steps={accumulation}")
    trainer = trainer_of(configuration)
    evaluation = Evaluation(loss=0.5, accuracy=0.75)
    trainer.evaluate = lambda: evaluation
    lines: list[Any] = []
    trainer.prepare(lines.append)
    events = [line for line in lines if line["event"] == "epoch"]

    by_hand = trainer_of(configuration)  # its data start anew
    workload = workload_of(configuration)
    precision = by_hand.precision
    model = build_model(workload, seed=0, device=CPU, precision=precision).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    means, shares, steps = [], [], []
    for number in range(1, 47):
        batch = next(by_hand.data)
        logits = model(batch.inputs)
        loss = cross_entropy(logits, batch.targets)
        (loss / accumulation).backward()
        means.append(loss.item())
        shares.append((logits.argmax(1) == batch.targets).double().mean().item())
        if number % accumulation == 0:
            optimizer.step()
            optimizer.zero_grad()
        steps.append(-(-number // accumulation))
    for epoch, event in enumerate(events):
        part = slice(23 * epoch, 23 * (epoch + 1))
        assert event["loss"] == pytest.approx(sum(means[part]) / 23, rel=1e-5)
        assert event["accuracy"] == pytest.approx(sum(shares[part]) / 23, rel=1e-6)
        assert event["step"] == steps[part][-1]
        assert event["samples_per_s"] == pytest.approx(event["samples"] / event["duration_s"])
    assert [(event["epoch"], event["samples"]) for event in events] == [(1, 1472), (2, 1472)]
    assert [(event["test_loss"], event["test_accuracy"]) for event in events] == [(0.5, 0.75)] * 2
    assert trainer._loss_of == trainer.workload.loss  # the timed steps record nothing


def losses_of(training_log: TrainingLog, *losses: float) -> None:
    values = iter(losses)
    loss_of = training_log.losses(lambda module, batch: torch.tensor(next(values)))
    for _ in losses:
        loss_of(torch.nn.Identity(), Batch(torch.ones(1), torch.ones(1)))


def test_one_step_may_complete_several_epochs() -> None:
    """Each has its own loss, and its part of the time; the last one has what was evaluated."""
    events: list[dict[str, Any]] = []
    training_log = log_of(events, batches_per_epoch=2, interval=9)
    losses_of(training_log, 1.0, 2.0, 3.0, 4.0, 9.0)
    assert training_log.end_step(LOSS)
    training_log.write(Evaluation(loss=0.5, accuracy=None))
    assert [(e["epoch"], e["step"], e["loss"], e.get("test_loss")) for e in events] == [
        (1, 1, 1.5, None),
        (2, 1, 3.5, 0.5),
    ]
    assert [(e["duration_s"], e["samples_per_s"]) for e in events] == [(0.5, 32.0)] * 2
    assert not any("accuracy" in event for event in events)
    assert not training_log.end_step(LOSS)


def test_epochs_are_numbered_on_from_a_checkpoint() -> None:
    """A training resumed within an epoch reports the rest of it, then whole ones."""
    events: list[dict[str, Any]] = []
    training_log = log_of(events, interval=9, batches_per_epoch=3, batches_before=4, steps_before=2)
    losses_of(training_log, 1.0, 2.0, 3.0, 4.0, 5.0)
    training_log.end_step(LOSS)
    training_log.write()
    assert [(e["epoch"], e["samples"], e["loss"]) for e in events] == [(2, 16, 1.5), (3, 24, 4.0)]
    assert {e["step"] for e in events} == {3}


def test_epochs_are_those_of_all_ranks() -> None:
    """The mean is over the ranks, and every line follows from the batches of all."""
    events: list[dict[str, Any]] = []
    training_log = log_of(events, interval=9, batches_per_epoch=2, agreement=Together([5.0, 0.0]))
    losses_of(training_log, 1.0, 2.0)
    training_log.end_step(LOSS)
    training_log.write()
    assert [event["loss"] for event in events] == [3.25]
