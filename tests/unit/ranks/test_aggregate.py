"""The reports of several ranks as one."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.core.errors import MeasurementError
from gpubench_plugin.core.records import Observation, Samples, Work
from gpubench_plugin.ranks.reduction import RankAggregate, RankReport
from tests.support.messages import mentions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FAST = Samples(
    timer="cpu",
    durations_s=(1.0, 5.0, 2.0, 2.0),
    durations_per_round=2,
    block_s=(6.5, 4.5),
    block_calls=(2, 2),
    first_step_s=9.0,
    warmup_s=(3.0, 1.0),
    warmup_calls=2,
    flags=("unsteady",),
)
SLOW = replace(
    FAST,
    durations_s=(2.0, 4.0, 3.0, 1.0),
    block_s=(6.0, 5.0),
    first_step_s=10.0,
    warmup_s=(2.0, 2.0),
    flags=("throttled", "unsteady"),
)


def report(
    rank: int,
    samples: Samples = FAST,
    work: Work | None = None,
    facts: Mapping[str, float] | None = None,
) -> RankReport:
    return RankReport.of(samples, work or Work(), facts or {}, rank=rank, host="here")


def aggregate(reports: Iterable[RankReport]) -> Observation:
    result = RankAggregate()
    for each in reports:
        result.add(each)
    own = Observation(
        samples=FAST,
        work=Work(),
        device="cpu",
        device_name="a processor",
        precision="fp32",
        world_size=1,
        facts={},
    )
    return result.merged(own)


def test_every_time_is_the_slowest_ranks() -> None:
    """Each duration, block and warm-up sample is the maximum of its own; flags are united."""
    expected = replace(
        FAST,
        durations_s=(2.0, 5.0, 3.0, 2.0),
        block_s=(6.5, 5.0),
        first_step_s=10.0,
        warmup_s=(3.0, 2.0),
        flags=("unsteady", "throttled"),
    )
    assert expected == aggregate([report(0, FAST), report(1, SLOW)]).samples


def test_flags_and_rows_are_in_the_order_of_ranks() -> None:
    """Those of rank zero first."""
    told = aggregate([report(0), report(1, SLOW), report(2, replace(FAST, flags=("late",)))])
    assert told.samples.flags == ("unsteady", "throttled", "late")
    assert [row.rank for row in told.ranks] == [0, 1, 2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"durations_s": (1.0,) * 6}, "number of durations: rank 0 has 4, rank 2 has 6"),
        ({"block_s": (1.0,), "block_calls": (4,)}, "number of blocks: rank 0 has 2, rank 2 has 1"),
        ({"block_calls": (2, 3)}, r"calls per block: rank 0 has \(2, 2\), rank 2 has \(2, 3\)"),
        ({"warmup_s": ()}, "number of warm-up durations: rank 0 has 2, rank 2 has 0"),
        ({"warmup_calls": 7}, "calls of the warm-up: rank 0 has 2, rank 2 has 7"),
        ({"calls_per_duration": 10}, "calls per duration: rank 0 has 1, rank 2 has 10"),
        ({"durations_per_round": 1}, "durations per round: rank 0 has 2, rank 2 has 1"),
        ({"timer": "cuda"}, "the timer: rank 0 has 'cpu', rank 2 has 'cuda'"),
    ],
)
def test_ranks_that_ran_different_calls_are_refused(change: dict[str, Any], message: str) -> None:
    """Times of different calls have no common maximum: the rank and the difference are named."""
    with pytest.raises(MeasurementError, match=message):
        aggregate([report(0), report(1, SLOW), report(2, replace(SLOW, **change))])


def test_condensed_ranks_that_ran_different_calls_are_refused() -> None:
    """What is compared was counted before anything was left out."""
    long = [replace(FAST, durations_s=(1.0,) * count) for count in (100_000, 100_002)]
    with pytest.raises(MeasurementError) as told:
        aggregate(report(rank, samples) for rank, samples in enumerate(long))
    assert mentions(told.value, "durations", "rank 0 has 100000, rank 1 has 100002")


def test_work_is_summed_where_every_rank_knows_it() -> None:
    """Samples of all ranks add up; tokens that one rank does not know are left out."""
    told = aggregate(
        [report(0, work=Work(samples=8, tokens=64)), report(1, work=Work(samples=4, bytes=1))]
    )
    assert told.work == Work(samples=12)


def test_facts_are_the_worst_ranks_and_losses_the_mean() -> None:
    """Memory is the most any rank held; the global batch's loss is the mean of the ranks'.

    So is a phase: where one rank works for 9 s and the other waits for it, 10 s pass and not 18.
    """
    works = {"phase_experts_s": 9.0, "phase_combine_s": 1.0}
    waits = {"phase_experts_s": 1.0, "phase_combine_s": 9.0}
    told = aggregate(
        [
            report(0, facts={"peak_memory_bytes": 3.0, "loss_last": 1.0, "alone": 1.0, **waits}),
            report(1, facts={"peak_memory_bytes": 5.0, "loss_last": 2.0, **works}),
        ]
    )
    assert told.facts == {
        "peak_memory_bytes": 5.0,
        "loss_last": 1.5,
        "phase_experts_s": 5.0,
        "phase_combine_s": 5.0,
    }


def on_host(rank: int, host: str, *, threads: int = 2, **facts: str) -> RankReport:
    """The report of the first rank of a host; `facts` are its processor's."""
    own = report(rank)
    machine: Any = {
        "rank": {"torch.threads": threads},
        "host": {f"cpu.{k}": facts[k] for k in facts},
    }
    return replace(own, times=replace(own.times, host=host), machine=machine)


def test_hosts_count_where_they_differ_from_rank_zeros() -> None:
    """By more than their names; ranks that are not the first of their host have its threads."""
    first, equal = on_host(0, "a", model="A"), on_host(2, "b", model="A")
    second = replace(report(1), machine={"rank": {"torch.threads": 2}})
    assert aggregate([first, second, equal]).machine == {}
    reports = [first, second, on_host(2, "b", model="B", boost="no"), on_host(3, "c")]
    slow = replace(report(4), machine={"rank": {"torch.threads": 1}})
    assert aggregate([*reports, slow]).machine == {
        "hosts.b.cpu.boost": "no",
        "hosts.b.cpu.model": "B",
        "hosts.c.cpu.model": "none",
        "hosts.here.torch.threads": 1,
    }


def test_energy_is_the_ranks_sum_and_clocks_are_the_slowest_ones() -> None:
    """Two GPUs draw what both draw, and the slower one decides; of the rest the worst rank's."""
    first = {"energy_j": 800.0, "power_w": 400.0, "sm_clock_mhz": 1980.0, "temperature_c": 60.0}
    second = {"energy_j": 600.0, "power_w": 300.0, "sm_clock_mhz": 1755.0, "temperature_c": 71.0}
    assert aggregate([report(0, facts=first), report(1, facts=second)]).facts == {
        "energy_j": 1400.0,
        "power_w": 400.0,
        "sm_clock_mhz": 1755.0,
        "temperature_c": 71.0,
    }


@pytest.mark.slow
def test_the_rank_zero_that_only_aggregates_needs_no_torch() -> None:
    """Neither torch nor numpy is imported with the code that brings the ranks together."""
    code = (
        "import sys, gpubench_plugin.ranks.reduction\n"
        "import gpubench_plugin.ranks.control_plane\n"
        "print(sorted({'torch', 'numpy'} & set(sys.modules)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
