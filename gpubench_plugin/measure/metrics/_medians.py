"""The median step, which several metrics are about."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpubench_plugin.records import Samples


def rounds_s(samples: Samples) -> tuple[float, ...]:
    """The rounds in seconds per call; where the durations do not fill one, the durations."""
    return samples.rounds_s or samples.durations_s


def median_step_s(samples: Samples) -> float:
    """The median round, in seconds per call: what ``step_time_s`` is of one rank or of all."""
    import numpy as np

    return float(np.median(np.asarray(rounds_s(samples))))
