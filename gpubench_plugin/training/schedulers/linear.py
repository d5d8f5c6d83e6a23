"""A straight line from the configured learning rate to zero."""

from __future__ import annotations

from gpubench_plugin.training.schedulers.base import Schedule


class Linear(Schedule):
    """Falls by the same amount at every step."""

    def share(self, progress: float) -> float:
        """What is left."""
        return 1 - progress
