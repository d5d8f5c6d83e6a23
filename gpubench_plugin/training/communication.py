"""How much of a training step the ranks spend on exchanging gradients, with nothing to hide it."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import TYPE_CHECKING, Final

from gpubench_plugin.environment import synchronize, timed_s

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

PAIRS: Final = 10
"""Steps of either kind that are timed."""


class ExposedCommunication:
    """Times steps with and without an exchange in turns, once everything else is measured.

    A step here begins on all ranks at once, after `meet`, and lasts until the device is done. It
    comes after the timed calls because weights that are not exchanged drift apart.
    """

    def __init__(
        self,
        *,
        exchanging: Callable[[], None],
        alone: Callable[[], None],
        meet: Callable[[], None],
        device: torch.device,
    ):
        self._exchanging = exchanging
        self._alone = alone
        self._meet = meet
        self._device = device

    def facts(self) -> Mapping[str, float]:
        """The medians ``step_exchanging_s`` and ``step_alone_s`` of this rank."""
        for step in (self._exchanging, self._alone):
            self._seconds(step)
        pairs = [
            (self._seconds(self._exchanging), self._seconds(self._alone)) for _ in range(PAIRS)
        ]
        exchanging, alone = zip(*pairs, strict=True)
        return {"step_exchanging_s": median(exchanging), "step_alone_s": median(alone)}

    def _seconds(self, step: Callable[[], None]) -> float:
        synchronize(self._device)
        self._meet()
        return timed_s(step, self._device)
