"""Fit of the batch size: the most samples whose training step fits into memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from gpubench_plugin.core.errors import DoesNotFit
from gpubench_plugin.core.events import BatchTrialEvent
from gpubench_plugin.core.records import Check
from gpubench_plugin.measure.protocols import Log

LARGEST: Final = 2**16
"""Largest batch that is tried. A model of which so many samples fit is bound by other things than
memory, and larger batches would only take longer to try."""

RESERVE_BYTES: Final = 128 * 2**20
"""Kept free on the device by every trial, for what a measurement takes beside its steps: probes,
workspaces of libraries, fragments of the allocator."""

Bound = Literal["memory", "data", "largest"]


@dataclass(frozen=True, kw_only=True)
class BatchFit:
    """The most `samples` that fit, what they are `bound_by`, and all trials in order.

    The `reason` of a trial is the error of the failed allocation. `memory`: one sample more was
    tried and does not fit. `data`: an epoch has no more samples.
    `largest`: no more are tried.
    """

    samples: int
    bound_by: Bound
    trials: tuple[BatchTrialEvent, ...]

    def prepare(self, log: Log) -> Check:
        """Log every trial, and record the fit under ``batch_fit``."""
        for trial in self.trials:
            log(trial.line())
        trials = [{"samples": trial.samples, "fits": trial.fits} for trial in self.trials]
        fit = {"samples": self.samples, "bound_by": self.bound_by, "trials": trials}
        return Check(correctness={"batch_fit": fit})


def fit_batch(
    attempt: Callable[[int], str | None], *, smallest: int = 1, epoch: int | None = None
) -> BatchFit:
    """Double the batch from `smallest` until it does not fit, then bisect.

    No batch is larger than an `epoch` of samples, None for endless data, or than :data:`LARGEST`.
    `attempt` tries a number of samples, and returns why they do not fit, None if they do.

    Raises:
        DoesNotFit: not even the smallest batch does.
    """
    trials: list[BatchTrialEvent] = []

    def fits(samples: int) -> bool:
        reason = attempt(samples)
        trials.append(BatchTrialEvent(samples=samples, fits=reason is None, reason=reason or ""))
        return reason is None

    most = LARGEST if epoch is None else min(epoch, LARGEST)
    smallest = min(smallest, most)
    if not fits(smallest):
        raise DoesNotFit(
            f"training.batch_size=auto: batch size {smallest} did not fit: {trials[-1].reason}"
        )
    fitting, too_many = smallest, most + 1
    while fitting < too_many - 1:
        is_doubling = too_many > most
        samples = min(2 * fitting, most) if is_doubling else (fitting + too_many) // 2
        fitting, too_many = (samples, too_many) if fits(samples) else (fitting, samples)
    bound: Bound = "memory" if too_many <= most else "data" if most == epoch else "largest"
    return BatchFit(samples=fitting, bound_by=bound, trials=tuple(trials))
