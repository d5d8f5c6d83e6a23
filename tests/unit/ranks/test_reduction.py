"""Results of several ranks brought together; here the ranks are threads around a real store."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any, cast

import pytest
from torch import distributed as dist

from gpubench_plugin.core.errors import (
    CorrectnessError,
    LostMessage,
    MeasurementError,
    Misuse,
    UsageProblem,
)
from gpubench_plugin.core.records import Observation, Samples, Work
from gpubench_plugin.ranks.control_plane import ControlPlane
from gpubench_plugin.ranks.reduction import Reduction
from gpubench_plugin.ranks.world import World
from tests.support.messages import mentions

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubench_plugin.ranks.process_group import ProcessGroup

SEEN = Observation(
    samples=Samples(
        timer="cpu",
        durations_s=(1.0, 2.0),
        block_s=(3.0,),
        block_calls=(2,),
        first_step_s=1.0,
        warmup_s=(),
        warmup_calls=0,
    ),
    work=Work(samples=8),
    device="cpu",
    device_name="a processor",
    precision="fp32",
    world_size=1,
    facts={"peak_memory_bytes": 1.0},
)


class Group:
    """As much of a process group as a reduction uses, without the group of torch."""

    def __init__(self, store: dist.HashStore, world: World):
        self.world = world
        self.control = ControlPlane(store, world, timeout=timedelta(seconds=60))


def on_ranks(
    size: int,
    part: Callable[[Reduction, int], Any],
    grace_s: float | None = None,
    *,
    hosts: int = 1,
) -> list[Any]:
    """What each rank returned or raised."""
    store = dist.HashStore()
    local = size // hosts
    worlds = [World(rank=r, local_rank=r % local, size=size, local_size=local) for r in range(size)]
    with ThreadPoolExecutor(size) as pool:
        futures = [
            pool.submit(
                part,
                Reduction(cast("ProcessGroup", Group(store, world)), "a test", grace_s=grace_s),
                world.rank,
            )
            for world in worlds
        ]
    return [future.exception() or future.result() for future in futures]


def test_rank_zero_sees_what_all_saw() -> None:
    """Maximum of the times, sum of the work, a row for each rank; the others see their own."""

    def part(reduction: Reduction, rank: int) -> Observation:
        samples = replace(SEEN.samples, durations_s=(1.0 + rank, 2.0 - rank / 2))
        (seen,) = reduction.merge_all([replace(SEEN, samples=samples)])
        reduction.raise_conclusion(None)
        return seen

    root, other = on_ranks(2, part)
    assert root.samples.durations_s == (2.0, 2.0)
    assert (root.work, root.world_size) == (Work(samples=16), 2)
    assert [(row.rank, row.median_s) for row in root.ranks] == [(0, 1.5), (1, 1.75)]
    assert (other.samples.durations_s, other.ranks, other.world_size) == ((2.0, 1.5), (), 1)


@pytest.mark.parametrize("hosts", [1, 2])
def test_facts_of_another_host_are_recorded_where_they_differ(
    monkeypatch: pytest.MonkeyPatch, hosts: int
) -> None:
    """Variables of ranks on the same host may differ, since a launcher binds them to cores."""
    monkeypatch.setattr(f"{Reduction.__module__}.host_machine", lambda: {"cpu.model": "A"})
    monkeypatch.setattr("socket.gethostname", lambda: "node")
    places = "environment_variables.OMP_PLACES"

    def part(reduction: Reduction, rank: int) -> Observation:
        own = replace(SEEN, machine={"torch.threads": 1, places: str(rank)}, device_name=f"{rank}")
        (seen,) = reduction.merge_all([own])
        reduction.raise_conclusion(None)
        return seen

    root, _ = on_ranks(2, part, hosts=hosts)
    of_host = {f"hosts.node.{places}": "1"} if hosts == 2 else {}
    own = {"torch.threads": 1, places: "0"}
    assert root.machine == {**own, "hosts.node.device": "1", **of_host}


def test_a_world_of_one_sends_nothing_and_leaves_nothing_out() -> None:
    """However many the durations are, the observation is the rank's own."""
    million = replace(SEEN, samples=replace(SEEN.samples, durations_s=(1.0,) * 10**6))
    group = Group(dist.HashStore(), World())
    alone = Reduction(cast("ProcessGroup", group), "a test")
    alone.raise_check_failures(None)
    assert alone.merge_all([million]) == [million]
    alone.raise_conclusion(None)
    with pytest.raises(KeyError):
        alone.raise_conclusion(KeyError())


def test_what_is_wrong_at_rank_zero_fails_every_rank() -> None:
    """Ranks that ran different calls have no result, and all are told why."""

    def part(reduction: Reduction, rank: int) -> None:
        samples = replace(SEEN.samples, block_calls=(2 + rank,))
        failure: Exception | None = None
        try:
            reduction.merge_all([replace(SEEN, samples=samples)])
        except MeasurementError as error:
            failure = error
        reduction.raise_conclusion(failure)

    for error in on_ranks(3, part):
        assert isinstance(error, MeasurementError)
        assert mentions(error, "calls per block: rank 0 has (2,), rank 1 has (3,)")


def test_every_rank_raises_its_own_failure_and_the_others_are_told() -> None:
    """An out-of-memory error stays what it is where it happened."""
    failures = {1: MemoryError("of 4 GiB"), 2: pytest.fail.Exception("a nan")}

    def part(reduction: Reduction, rank: int) -> None:
        reduction.raise_check_failures(failures.get(rank))

    first, *failed, last = on_ranks(4, part)
    assert failed == [failures[1], failures[2]]
    for told in (first, last):
        assert isinstance(told, CorrectnessError)
        assert mentions(told, "another rank: rank 1: of 4 GiB; rank 2: a nan")


def test_ranks_are_misconfigured_if_the_others_are() -> None:
    """A failure of another kind, or of the test's code, makes the others fail."""

    def part(other: Exception | None, reduction: Reduction, rank: int) -> None:
        reduction.raise_check_failures(
            {1: UsageProblem("data.path: no such file"), 2: other}.get(rank)
        )

    told = {type(other): on_ranks(3, partial(part, other))[0] for other in (None, Misuse("twice"))}
    assert type(told[type(None)]) is UsageProblem
    assert str(told[type(None)]) == "rank 1: data.path: no such file"
    assert isinstance(told[Misuse], CorrectnessError)


def test_the_own_failure_is_raised_though_nobody_can_be_told() -> None:
    """Where another rank is elsewhere, what went wrong here is not lost."""

    def part(reduction: Reduction, rank: int) -> None:
        if rank == 0:
            reduction.raise_check_failures(MemoryError("of 4 GiB"))
        else:
            reduction.raise_conclusion(None)

    root, _ = on_ranks(2, part)
    assert isinstance(root, MemoryError)


@pytest.mark.parametrize(
    ("failed", "error", "grace_s"),
    [
        (0, MemoryError("of 4 GiB"), 0.05),
        (1, MemoryError("of 4 GiB"), 0.05),
        (1, LostMessage("of rank 0"), 60.0),  # the other may never answer
    ],
)
def test_a_rank_that_failed_does_not_wait_for_one_that_waits_for_it(
    failed: int, error: Exception, grace_s: float
) -> None:
    """The other is in a collective of its check: the failure is raised, not awaited with it."""
    ended = Event()

    def part(reduction: Reduction, rank: int) -> bool:
        if rank != failed:
            return ended.wait(20)
        try:
            reduction.raise_check_failures(error)
        finally:
            ended.set()
        return False

    found = on_ranks(2, part, grace_s=grace_s)
    assert found[failed] is error
    assert found[1 - failed] is True


def test_of_many_failures_all_hear_the_first() -> None:
    """What every rank has to read does not grow with the number of ranks."""

    def part(reduction: Reduction, rank: int) -> None:
        reduction.raise_check_failures(ValueError("x" * 10_000) if rank else None)

    root, *_ = on_ranks(7, part)
    assert str(root).endswith("; and 2 more")
    assert len(str(root)) < 4 * 2000 + 100
