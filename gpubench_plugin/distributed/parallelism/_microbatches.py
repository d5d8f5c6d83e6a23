"""Into how many microbatches the batch of a pipeline is cut."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpubench_plugin.errors import UsageProblem

if TYPE_CHECKING:
    from gpubench_plugin.config.sections import DistributedSection


def microbatches(section: DistributedSection, *, stages: int, ranks: int, samples: int) -> int:
    """The configured number, or the least that keeps all `stages` busy.

    `samples` is the batch that all `ranks` work on.

    Raises:
        UsageProblem: the configured number does not suit the batch or the schedule.
    """
    schedule = section.pipeline_schedule
    allowed = [n for n in range(1, samples + 1) if samples % n == 0 and _suits(schedule, n, ranks)]
    number = section.pipeline_microbatches
    if number is None:
        return next((n for n in allowed if n >= stages), allowed[-1])
    if number not in allowed:
        raise UsageProblem(
            f"distributed.pipeline_microbatches={number} does not suit {schedule} with a batch of "
            f"{samples} samples on {ranks} ranks; allowed: {', '.join(map(str, allowed))}"
        )
    return number


def _suits(schedule: str, number: int, ranks: int) -> bool:
    """Whether torch's schedule takes `number` microbatches on so many `ranks`."""
    if schedule == "1F1B":
        return number >= ranks
    if schedule == "Interleaved1F1B":  # in rounds of equally many
        return number % max(1, number // ranks) == 0
    return True
