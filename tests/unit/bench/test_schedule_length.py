"""How long a learning rate schedule is."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from gpubench_plugin.bench.refusals import schedule_refusal
from gpubench_plugin.bench.training_setup import scheduled
from gpubench_plugin.config.sections import Configuration, ModelSection, TrainingSection
from tests.support.presets import preset_of, trainer_of


@dataclass(frozen=True)
class Parts:
    """As much of a benchmark's setting as its schedule depends on."""

    configuration: Any
    source: Any = field(default_factory=lambda: SimpleNamespace(steps_per_epoch=23))


def length(**keys: Any) -> int:
    parts: Any = Parts(
        Configuration[ModelSection](model=ModelSection(), training=TrainingSection(**keys))
    )
    return int(scheduled(parts, parts.source).configuration.training.schedule_length)


@pytest.mark.parametrize(
    ("keys", "steps"),
    [
        ({"epochs": 3}, 69),
        ({"epochs": 3, "accumulation_steps": 2}, 35),
        ({"epochs": 3, "schedule_steps": 10}, 10),
        ({"epochs": 3, "resume": "a.json", "scheduler": "cosine", "schedule_steps": 10}, 10),
        ({"target_loss": 0.5, "max_steps": 77}, 77),
        ({"target_accuracy": 0.5, "max_steps": 77}, 77),
        ({"steps": 7}, 1000),
    ],
)
def test_the_schedule_follows_what_is_trained(keys: dict[str, Any], steps: int) -> None:
    """Epochs, or the way to a target; what the key says comes first."""
    assert length(**keys) == steps


def test_the_schedule_of_a_resumed_training_is_stated() -> None:
    """Its epochs are not the whole training; a constant rate does not ask for it."""
    training = TrainingSection(epochs=3, resume="a.json", scheduler="cosine")
    assert "schedule_steps=null beside training.resume" in schedule_refusal(training)
    assert length(epochs=3, resume="a.json") == 69


def test_the_rate_ends_with_the_epochs() -> None:
    """The last step of the epochs leaves a linear schedule at its end, and the record says so."""
    chosen = preset_of("mlp", "tiny", "training.epochs=1", "training.scheduler=linear")
    parts: Any = Parts(chosen)
    lines: list[Any] = []
    check = trainer_of(scheduled(parts, parts.source).configuration).prepare(lines.append)
    rates = [line["learning_rate"] for line in lines if line["event"] == "training_step"]
    assert rates == [pytest.approx(0.2 * (1 - step / 23)) for step in (5, 10, 15, 20, 23)]
    assert check.correctness["schedule_steps"] == 23
