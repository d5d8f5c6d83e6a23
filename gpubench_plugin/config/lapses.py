"""What a file tuned for its own course of training, and what ends with that course.

A ``training.loss_drop`` in a file is what its batch size, rate and data bring about. Where a later
layer changes one of these the limit says nothing any more: it lapses, which goes on record. One
that an override states is the user's word for the course that runs, and holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin.config.layers import merge

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpubench_plugin.config.layers import Key, Layer, Merged
    from gpubench_plugin.config.sections import Configuration

LOSS_DROP: Final[Key] = ("training", "loss_drop")

_COURSE: Final[tuple[Key, ...]] = (
    ("training", "steps"),
    ("training", "epochs"),
    ("training", "batch_size"),
    ("training", "optimizer"),
    ("training", "learning_rate"),
    ("training", "momentum"),
    ("training", "weight_decay"),
    ("training", "scheduler"),
    ("training", "schedule_steps"),
    ("training", "gradient_clipping"),
    ("data", "source"),
    ("data", "path"),
    ("data", "global_batch_size"),
)
"""The keys on which it depends how far the loss falls. Accumulation repeats the one batch."""


def lapsed(
    configuration: Configuration[Any], files: Sequence[Sequence[Layer]], merged: Merged
) -> Configuration[Any]:
    """The `configuration` without a ``loss_drop`` that has lapsed, and with the reason for it.

    `files` are the layers of each file, in their order; `merged` are those of all.
    """
    before = _tuned(files, merged)
    if before is None:
        return configuration
    changed = [key for key in _COURSE if merged.get(key) != before.get(key)]
    if not changed:
        return configuration
    which = " and ".join(f"{'.'.join(key)} ({merged.source(key)})" for key in changed)
    reason = (
        f"training.loss_drop={before.get(LOSS_DROP)} of {before.source(LOSS_DROP)} lapses: "
        f"{which} overrides what it was set for"
    )
    training = configuration.training.without_loss_drop(reason)
    return configuration.model_copy(update={"training": training})


def _tuned(files: Sequence[Sequence[Layer]], merged: Merged) -> Merged | None:
    """What is said up to the end of the file that states the limit; None if no file has."""
    stated = merged.source(LOSS_DROP)
    if merged.get(LOSS_DROP) is None:
        return None
    for number in range(len(files), 0, -1):
        if any(layer.source == stated for layer in files[number - 1]):
            return merge([layer for file in files[:number] for layer in file])
    return None
