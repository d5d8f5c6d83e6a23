"""Journal of how far a measurement is, written between its timed blocks."""

from __future__ import annotations

import math
from time import monotonic
from typing import TYPE_CHECKING, Final

from gpubench_plugin.core.events import PhaseEvent, ProgressEvent

if TYPE_CHECKING:
    from gpubench_plugin.core.records import Work
    from gpubench_plugin.measure.progress import Progress
    from gpubench_plugin.measure.protocols import Log

INTERVAL_S: Final = 1.0
"""Of events: they are for eyes, and none costs more than 0.1 ms between two blocks."""
_RATES: Final = ("samples", "tokens")


class ProgressLog:
    """Logs the begin of a measurement, and its progress at most once a second.

    `work` is that of a call on this rank; of `world_size` ranks each is taken to do as much.
    """

    def __init__(self, log: Log, work: Work, world_size: int):
        self._log = log
        self._amounts = {
            name: amount * world_size
            for name, amount in work.known_amounts.items()
            if name in _RATES
        }
        self._due_s = 0.0

    def begin(self) -> None:
        """The timed calls begin now."""
        self._log(PhaseEvent(phase="measure").line())
        self._due_s = monotonic() + INTERVAL_S

    def block_ended(self, progress: Progress) -> None:
        """Log the `progress` after a block, if it is time."""
        now_s = monotonic()
        if now_s < self._due_s:
            return
        self._due_s = now_s + INTERVAL_S
        step_s, half_width = progress.step_s, progress.half_width
        event = ProgressEvent(
            rounds=progress.rounds,
            calls=progress.calls,
            half_width=half_width if half_width < math.inf else None,
            step_s=step_s,
            elapsed_s=progress.elapsed_s,
            remaining_s=progress.remaining_s,
            **{f"{name}_per_s": amount / step_s for name, amount in self._amounts.items()},
        )
        self._log(event.line())
