"""What a rank tells, and that it stays small."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from gpubench_plugin.core.records import RankTimes, Samples, Work
from gpubench_plugin.ranks.reduction import RankReport
from gpubench_plugin.system import stored

SAMPLES = Samples(
    timer="cpu",
    durations_s=tuple(0.01 + 0.1**9 * (n * 7919 % 1000) for n in range(200)),
    block_s=(0.5, 1.6),
    block_calls=(50, 150),
    first_step_s=0.3,
    warmup_s=(0.02, 0.01),
    warmup_calls=2,
    flags=("unsteady",),
)


def report(samples: Samples = SAMPLES, *, host: str = "a host", **facts: float) -> RankReport:
    return RankReport.of(samples, Work(samples=32, flops=1e9), facts, rank=3, host=host)


def through_json(sent: RankReport) -> RankReport:
    """As rank zero receives it."""
    return stored.restore(RankReport, json.loads(json.dumps(stored.dump(sent))), "a report")


def test_the_usual_report_is_exact() -> None:
    """Of 200 rounds everything arrives, to the last bit, through JSON."""
    sent = report(peak_memory_bytes=1e9, loss_last=0.1)
    arrived = through_json(sent)
    assert sent == arrived
    assert arrived.samples == SAMPLES
    assert arrived.facts == {"peak_memory_bytes": 1e9, "loss_last": 0.1}


def test_the_quantiles_are_numpys() -> None:
    """Of all durations, interpolated linearly; the median is that of the rounds."""
    durations = (5.0, 1.0, 2.0, 8.0, 3.0, 4.0, 9.0) * 15
    times = report(replace(SAMPLES, durations_s=durations, durations_per_round=3)).times
    p5, p95, p99 = (pytest.approx(np.quantile(durations, q)) for q in (0.05, 0.95, 0.99))
    assert times == RankTimes(
        rank=3,
        host="a host",
        count=105,
        min_s=1.0,
        p5_s=p5,
        median_s=4.0,
        p95_s=p95,
        p99_s=p99,
        max_s=9.0,
        total_s=2.1,
    )


@pytest.mark.parametrize(
    ("count", "there"),
    [
        (19, (False, False, False)),
        (20, (True, True, False)),
        (99, (True, True, False)),
        (100, (True, True, True)),
    ],
)
def test_a_rank_tells_only_the_quantiles_beyond_which_it_has_a_duration(
    count: int, there: tuple[bool, ...]
) -> None:
    """Of a few durations the 99th percentile would be the longest one, under a grander name."""
    sent = report(replace(SAMPLES, durations_s=(0.25,) * count))
    arrived = through_json(sent).times
    told = (arrived.p5_s, arrived.p95_s, arrived.p99_s)
    assert told == tuple(0.25 if one else None for one in there)


def test_no_report_is_too_large() -> None:
    """Of a million durations about 100 KB are sent, and flagged; the counts stay."""
    million = replace(
        SAMPLES,
        durations_s=(math.pi / 100,) * 10**6,
        durations_per_round=100,
        block_s=(math.pi,) * 10**5,
        block_calls=(10,) * 10**5,
        warmup_s=(math.pi / 100,) * 10**5,
        warmup_calls=10**18,
    )
    sent = report(million)
    assert len(json.dumps(stored.dump(sent))) <= 110_000
    assert sent.samples.flags == ("unsteady", "condensed")
    assert (sent.times.count, sent.samples.timing.durations_per_round) == (10**6, 100)
    assert sent.samples.calls == million.calls
    assert through_json(sent) == sent
