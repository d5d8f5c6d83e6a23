"""Half a cosine from the configured learning rate to zero (https://arxiv.org/abs/1608.03983)."""

from __future__ import annotations

from math import cos, pi

from gpubench_plugin.training.schedulers.base import Schedule


class Cosine(Schedule):
    """Slow at both ends."""

    def share(self, progress: float) -> float:
        """(1 + cos π·progress) / 2."""
        return (1 + cos(pi * progress)) / 2
