"""A check that a file tuned for its own course of training lapses where the course is another."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpubench_plugin.config.case import comparable
from tests.support.resolving import resolved

TUNED = """
model: {name: mlp}
training: {optimizer: adamw}
data: {source: digits}
presets:
  tiny: {training: {batch_size: 4, learning_rate: 0.2, loss_drop: 0.5}}
"""


@pytest.mark.parametrize(
    "overrides",
    [
        ["training.learning_rate=0.002"],
        ["training.steps=3"],
        ["training.epochs=5"],
        ["training.batch_size=16"],
        ["training.optimizer=sgd"],
        ["training.scheduler=linear"],
        ["data.source=synthetic"],
        ["data.global_batch_size=8"],
        ["training.epochs=5", "training.learning_rate=2e-3"],
    ],
)
def test_override_of_the_course_ends_the_limit(tmp_path: Path, overrides: list[str]) -> None:
    """A loss_drop of a preset does not hold for another course; the reason names every key."""
    training = resolved(tmp_path, *overrides, file=TUNED).training
    assert training.loss_drop is None
    reason = str(training.loss_drop_ignored)
    assert "training.loss_drop=0.5 from configs/a.yaml preset tiny is ignored" in reason
    for override in overrides:
        assert f"{override.partition('=')[0]} (--{override})" in reason


@pytest.mark.parametrize(
    ("overrides", "limit"),
    [
        ((), 0.5),
        (("training.learning_rate=0.2",), 0.5),
        (("training.checkpoint=true", "training.accumulation_steps=4", "data.workers=2"), 0.5),
        (("training.steps=3", "training.loss_drop=0.4"), 0.4),
        (("training.loss_drop=null", "training.steps=3"), None),
    ],
)
def test_limit_holds_for_the_course_it_was_set_for(
    tmp_path: Path, overrides: tuple[str, ...], limit: float | None
) -> None:
    """The same value again, another key, or a loss_drop of one's own are no lapse."""
    training = resolved(tmp_path, *overrides, file=TUNED).training
    assert (training.loss_drop, training.loss_drop_ignored) == (limit, None)


def test_overlay_of_another_course_ends_the_limit_below_it(tmp_path: Path) -> None:
    """A later file that changes the batch size has to state a loss_drop of its own."""
    overlay = "presets: {tiny: {training: {batch_size: 2}}}"
    training = resolved(tmp_path, file=TUNED, overlays=[overlay]).training
    assert "training.batch_size (--config=" in str(training.loss_drop_ignored)
    overlay = "training: {loss_drop: 0.9}\n" + overlay
    assert resolved(tmp_path, file=TUNED, overlays=[overlay]).training.loss_drop == 0.9


def test_limit_is_no_part_of_comparability(tmp_path: Path) -> None:
    """It judges the untimed training: runs with another limit measure the same."""
    assert not any("loss_drop" in key for key in comparable(resolved(tmp_path, file=TUNED)))
