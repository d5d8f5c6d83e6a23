"""Every collective as it is measured, right and spoilt; each rank writes what it found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest import mock

from gpubench_plugin.core import catalog
from gpubench_plugin.training.timed_collective import TimedCollective, exchange
from tests.e2e.distributed.ranks import common

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from gpubench_plugin.ranks.process_group import ProcessGroup
    from gpubench_plugin.workloads.collectives.base import Collective

    Run = Callable[[Collective, Tensor, Tensor], None]

CALLS = 130
"""More than it takes to double a number beyond the range of fp32."""


def nothing_happens(run: Run) -> Run:
    return lambda collective, given, received: None


def rank_zero_gives_nothing(run: Run) -> Run:
    def spoilt(collective: Collective, given: Tensor, received: Tensor) -> None:
        if collective.rank == 0:
            given.zero_()
        run(collective, given, received)

    return spoilt


def parts_are_elsewhere(run: Run) -> Run:
    def spoilt(collective: Collective, given: Tensor, received: Tensor) -> None:
        run(collective, given, received)
        whole = received.numel() == collective.part
        received.copy_(received.roll(1 if whole else collective.part))

    return spoilt


def one_element_is_wrong(run: Run) -> Run:
    def spoilt(collective: Collective, given: Tensor, received: Tensor) -> None:
        run(collective, given, received)
        received[-1] += 1

    return spoilt


SPOILERS = (nothing_happens, rank_zero_gives_nothing, parts_are_elsewhere, one_element_is_wrong)


def measure(subject: TimedCollective) -> dict[str, Any]:
    """What a measurement does with its subject, in that order; facts and correctness."""
    check = subject.prepare(print)
    subject.step()
    subject.begin()
    for _ in range(CALLS):
        subject.step()
    return {**subject.finish(), **check.correctness}


def complaint(spoil: Callable[[Run], Run], kind: type[Collective], subject: TimedCollective) -> str:
    """What the check says of a collective whose runs are spoilt."""
    with mock.patch.object(kind, "run", spoil(kind.run)):
        return common.refusal(lambda: subject.prepare(print))


def idle_timed_calls(kind: type[Collective], subject: TimedCollective) -> str:
    """What is said after a right check when the timed calls do nothing."""
    subject.prepare(print)
    subject.begin()
    with mock.patch.object(kind, "run", nothing_happens(kind.run)):
        subject.step()
        return common.refusal(subject.finish)


def find(group: ProcessGroup) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in catalog.choices("collectives"):
        kind = catalog.load("collectives", name)

        def made(size: str, name: str = name, computed_in: str = "fp32") -> TimedCollective:
            return exchange(
                name,
                size,
                group=group,
                largest_bytes=None,
                computed_in=computed_in,
            )

        found[name] = {
            "measured": [measure(made(size)) for size in ("100B", "1KiB", "100KiB")],
            "measured_in_16_bits": [
                measure(made("1KiB", computed_in=dtype)) for dtype in ("bf16", "fp16")
            ],
            "spoilt": {s.__name__: complaint(s, kind, made("1KiB")) for s in SPOILERS},
            "idle": idle_timed_calls(kind, made("1KiB")),
        }
    return found


if __name__ == "__main__":
    common.write(find)
