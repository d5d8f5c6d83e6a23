"""What is kept of samples that are too many to be sent."""

from __future__ import annotations

from dataclasses import replace
from math import fsum
from statistics import median

from gpubench_plugin.core.records import RoundLayout, Samples
from gpubench_plugin.ranks.reduction import BLOCKS, DURATIONS, WARMUPS, condense

FEW = Samples(
    timer="cpu",
    durations_s=(0.2, 0.1) * (DURATIONS // 2),
    calls_per_duration=10,
    durations_per_round=2,
    block_s=(1.0,) * BLOCKS,
    block_calls=(80,) * BLOCKS,
    first_step_s=9.0,
    warmup_s=(0.5,) * WARMUPS,
    warmup_calls=WARMUPS,
    flags=("unsteady",),
)


def test_few_enough_are_kept_as_they_are() -> None:
    """Up to the limits nothing changes, and no flag is added."""
    assert condense(FEW) == FEW


def test_too_many_durations_become_the_medians_of_their_rounds() -> None:
    """Each median stands for all calls of its round; a last round that is not whole is left out."""
    durations_s = (0.1, 0.4, 0.2) * (DURATIONS // 2) + (9.0,)
    kept = condense(replace(FEW, durations_s=durations_s, durations_per_round=3))
    expected = replace(
        FEW,
        durations_s=(0.2,) * (DURATIONS // 2),
        calls_per_duration=30,
        durations_per_round=1,
        flags=("unsteady", "condensed"),
        reduced_from=RoundLayout(
            durations=len(durations_s), calls_per_duration=10, durations_per_round=3
        ),
    )
    assert expected == kept
    assert kept.rounds == DURATIONS // 2


def test_too_many_rounds_are_thinned_out_evenly() -> None:
    """Which are kept depends on the position alone: so it is the same for all ranks."""
    rounds = tuple(float(number) for number in range(4 * DURATIONS))
    kept = condense(replace(FEW, durations_s=rounds, durations_per_round=1))
    assert kept.durations_s == rounds[::4]
    other = condense(replace(FEW, durations_s=rounds[::-1], durations_per_round=1))
    assert other.durations_s == rounds[::-1][::4]
    assert kept.rounds == len(rounds)
    wide = condense(replace(FEW, durations_s=rounds, durations_per_round=len(rounds) + 1))
    assert wide.durations_s == kept.durations_s
    assert wide.timing.durations_per_round == len(rounds) + 1
    assert median(kept.durations_s) - median(rounds) < 4


def test_neighbouring_blocks_are_merged() -> None:
    """Seconds, calls and the time of the warm-up add up to what they were."""
    count = 3 * BLOCKS + 7
    samples = replace(
        FEW,
        block_s=tuple(0.1 * number for number in range(1, count + 1)),
        block_calls=tuple(range(1, count + 1)),
        warmup_s=(0.1,) * (2 * WARMUPS + 1),
    )
    kept = condense(samples)
    assert (len(kept.block_s), len(kept.block_calls), len(kept.warmup_s)) == (
        BLOCKS,
        BLOCKS,
        WARMUPS,
    )
    assert kept.calls == samples.calls
    assert abs(fsum(kept.block_s) / fsum(samples.block_s) - 1) < 1e-15
    assert abs(fsum(kept.warmup_s) / fsum(samples.warmup_s) - 1) < 1e-15
    ratio = [calls / seconds for calls, seconds in zip(kept.block_calls, kept.block_s, strict=True)]
    assert max(abs(each - 10) for each in ratio) < 1e-9
    assert kept.flags == ("unsteady", "condensed")


def test_a_sample_is_left_out() -> None:
    """The medians of rounds beside it are sent, and flagged, however few they are."""
    timed = RoundLayout(durations=3_000_000, calls_per_duration=5, durations_per_round=2)
    kept = condense(replace(FEW, reduced_from=timed, sample_s=(0.1, 0.2, 0.3)))
    assert kept == replace(FEW, reduced_from=timed, flags=("unsteady", "condensed"))
