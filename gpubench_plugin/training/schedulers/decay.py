"""Schedules that keep the configured learning rate, or end at zero."""

from __future__ import annotations

from math import cos, pi

from gpubench_plugin.training.schedulers.base import Schedule


@Schedule
def constant(progress: float) -> None:
    """The learning rate as configured, at every step."""


@Schedule
def cosine(progress: float) -> float:
    """Half a cosine from the configured learning rate to zero: slow at both ends.

    Source: https://arxiv.org/abs/1608.03983.
    """
    return (1 + cos(pi * progress)) / 2


@Schedule
def linear(progress: float) -> float:
    """A straight line from the configured learning rate to zero."""
    return 1 - progress
