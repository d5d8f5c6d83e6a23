"""Constant learning rate, and decay to zero."""

from __future__ import annotations

from math import cos, pi

from gpubench_plugin.training.schedulers.base import LearningRateSchedule


@LearningRateSchedule
def constant(progress: float) -> None:
    """Keep the configured learning rate."""


@LearningRateSchedule
def cosine(progress: float) -> float:
    """Half a cosine from the configured learning rate to zero: slow at both ends.

    Source: https://arxiv.org/abs/1608.03983.
    """
    return (1 + cos(pi * progress)) / 2


@LearningRateSchedule
def linear(progress: float) -> float:
    """Linear decay from the configured learning rate to zero."""
    return 1 - progress
