"""The distribution of more durations than are kept."""

from __future__ import annotations

import json
import math
import sys
from array import array
from collections.abc import Callable
from dataclasses import asdict, replace
from itertools import cycle
from typing import Any

import numpy as np
import pytest

from gpubench_plugin.config.sections import MeasureSection
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.core.records import Observation, Samples, Sketch, Work
from gpubench_plugin.environment import stored
from gpubench_plugin.measure.clocks.base import Block
from gpubench_plugin.measure.clocks.host import CpuClock
from gpubench_plugin.measure.loop import measure
from gpubench_plugin.measure.metrics._all import compute_all
from gpubench_plugin.measure.plan import Plan
from gpubench_plugin.measure.recording import Recording
from gpubench_plugin.measure.sketch import LEAST_RANK_ERROR, Sketcher, size_for
from gpubench_plugin.ranks.process_group import RankAgreement
from gpubench_plugin.ranks.rank_report import LIMIT_BYTES, RankReport
from gpubench_plugin.ranks.reduction import RankAggregate
from tests.support.fake_cuda import FakeHost

MS = 1_000_000
COUNT = 200_000
FRACTIONS = (0.001, 0.05, 0.25, 0.5, 0.9, 0.95, 0.99, 0.999)

Draw = Callable[[np.random.Generator, int], Any]
DISTRIBUTIONS: dict[str, Draw] = {
    "normal": lambda random, count: random.normal(1e-3, 2e-5, count),
    "skewed": lambda random, count: random.lognormal(-7, 0.5, count),
    "two levels": lambda random, count: np.where(random.random(count) < 0.93, 1e-3, 5e-3),
    "rising": lambda _, count: np.linspace(1e-3, 2e-3, count),
    "heavy tail": lambda random, count: 1e-3 * (1 + random.pareto(1.5, count)),
}


def sketched(values: Any, rank_error: float = 0.001) -> Sketch:
    sketcher = Sketcher(rank_error)
    for at in range(0, len(values), 16_384):
        sketcher.update(array("d", values[at : at + 16_384]))
    return sketcher.sketch


def rank_errors(sketch: Sketch, values: Any) -> list[float]:
    """How far the rank of each quantile is off; equal values share a range of ranks."""
    ordered = np.sort(values)
    errors = []
    for fraction, found in zip(FRACTIONS, sketch.quantiles(FRACTIONS), strict=True):
        low = np.searchsorted(ordered, found, side="left") / len(ordered)
        high = np.searchsorted(ordered, found, side="right") / len(ordered)
        errors.append(max(0.0, low - fraction, fraction - high))
    return errors


@pytest.mark.parametrize("rank_error", [0.01, 0.001])
@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_quantiles_keep_to_the_rank_error(name: str, rank_error: float) -> None:
    """Whatever the distribution; extremes and the total are exact."""
    values = DISTRIBUTIONS[name](np.random.default_rng(7), COUNT)
    sketch = sketched(values, rank_error)
    assert max(rank_errors(sketch, values)) <= rank_error
    assert (sketch.count, sketch.least, sketch.most) == (COUNT, values.min(), values.max())
    assert sketch.total == pytest.approx(math.fsum(values), rel=1e-15)
    assert sketch.mean == pytest.approx(values.mean())


def test_the_smallest_rank_error_can_be_kept() -> None:
    """The library has sketches large enough for all that the configuration allows."""
    from datasketches import kll_doubles_sketch

    error = kll_doubles_sketch.get_normalized_rank_error(size_for(LEAST_RANK_ERROR), False)
    assert 2 * error <= LEAST_RANK_ERROR
    assert size_for(0.1) < size_for(0.001) < size_for(LEAST_RANK_ERROR)
    bounds = MeasureSection.model_fields["sketch_rank_error"].metadata
    assert LEAST_RANK_ERROR in [getattr(bound, "ge", None) for bound in bounds]


def test_a_sketch_stays_small() -> None:
    """Ten times the values take hardly more room."""
    few, many = (sketched(np.linspace(1.0, 2.0, n)) for n in (COUNT, 10 * COUNT))
    assert len(many.kll) < 1.3 * len(few.kll) < 250_000


def test_sketches_of_parts_are_one_of_the_whole() -> None:
    """Of several launches, say; merging keeps to the rank error and to the size."""
    parts = [np.random.default_rng(seed).normal(1 + seed, 0.1, COUNT) for seed in range(6)]
    merged = Sketch.merged(sketched(part) for part in parts)
    whole = np.concatenate(parts)
    assert max(rank_errors(merged, whole)) <= merged.rank_error == 0.001
    assert (merged.count, merged.least, merged.most) == (len(whole), whole.min(), whole.max())
    assert merged.total == pytest.approx(math.fsum(whole))
    assert len(merged.kll) < 1.5 * len(sketched(parts[0]).kll)


def test_typical_values_are_distributed_as_all() -> None:
    """In ascending order, evenly by rank."""
    typical = sketched(np.linspace(0.0, 1.0, COUNT)).representative_values(100)
    assert typical == pytest.approx([(n + 0.5) / 100 for n in range(100)], abs=0.002)


def measured(*times_ns: int, **keys: Any) -> Samples:
    """A step timed 20 times a millisecond, on a host clock on paper."""
    host, times = FakeHost(), cycle(times_ns)
    return measure(
        lambda: host.spend(next(times)),
        clock=CpuClock(host.now),
        section=MeasureSection(**{"by": "time", "time_s": 0.5, **keys}),
        agreement=RankAgreement(),
    )


def observation(samples: Samples) -> Observation:
    return Observation(
        samples=samples,
        work=Work(samples=1),
        device="cpu",
        device_name="",
        precision="fp32",
        world_size=1,
    )


TIMES_NS = (*[50_000] * 17, *[90_000] * 5, *[400_000] * 2)


def test_many_durations_change_no_number_but_the_percentiles() -> None:
    """Median, interval, extremes, mean, rates and rounds are those of all durations."""
    exact, few = measured(*TIMES_NS), measured(*TIMES_NS, keep_durations=1000)
    assert exact.sketch is None
    assert few.sketch is not None
    assert few.flags == (*exact.flags, "sketched")
    assert (few.timing, few.rounds_s) == (exact.timing, exact.rounds_s)
    assert (few.block_s, few.block_calls) == (exact.block_s, exact.block_calls)
    assert few.sketch.count == len(exact.durations_s) > 4000
    of_all, of_sketch = compute_all(observation(exact)), compute_all(observation(few))
    assert of_all.keys() == of_sketch.keys()
    for name, metric in of_all.items():
        assert of_sketch[name].value == pytest.approx(metric.value), name


@pytest.fixture
def without_library(monkeypatch: pytest.MonkeyPatch) -> None:
    """Datasketches is not installed."""
    monkeypatch.setitem(sys.modules, "datasketches", None)


@pytest.mark.usefixtures("without_library")
def test_without_the_library_only_percentiles_lack() -> None:
    """All else is that of all durations, also in what a rank sends; the flag says it."""
    exact, few = measured(*TIMES_NS), measured(*TIMES_NS, keep_durations=1000)
    assert (exact.flags, few.flags) == (("outliers",), ("sketched",))  # of rounds there are none
    assert few.sketch is not None
    assert (few.sketch.count, few.sketch.kll) == (len(exact.durations_s), "")
    assert stored.restore(Samples, json.loads(json.dumps(stored.dump(few))), "it") == few
    of_all, of_few = compute_all(observation(exact)), compute_all(observation(few))
    assert of_all.keys() - of_few.keys() == {"step_time_p95_s", "step_time_p99_s"}
    for name, metric in of_few.items():
        assert metric.value == pytest.approx(of_all[name].value), name
    times = RankReport.of(few, Work(), {}, rank=0, host="a host").times
    assert (times.p5_s, times.p95_s, times.p99_s) == (None, None, None)
    assert (times.min_s, times.max_s) == (few.sketch.least, few.sketch.most)


def test_reading_a_sketch_takes_the_library(request: pytest.FixtureRequest) -> None:
    """One that was recorded where it was installed; the message says what to install."""
    sketch = sketched([1.0, 2.0])
    request.getfixturevalue("without_library")
    with pytest.raises(UsageProblem, match=r"pip install 'pytest-gpubench\[sketch\]'"):
        sketch.quantiles([0.5])


def test_as_many_as_may_be_kept_are_not_sketched() -> None:
    """The limit is on what is more."""
    count = len(measured(50_000).durations_s)
    assert measured(50_000, keep_durations=count).sketch is None
    assert measured(50_000, keep_durations=count - 1).sketch is not None


def test_samples_with_a_sketch_are_json() -> None:
    """All the way, and equal afterwards."""
    samples = measured(*TIMES_NS, keep_durations=1000)
    assert stored.restore(Samples, json.loads(json.dumps(stored.dump(samples))), "it") == samples


def test_what_is_recorded_stops_growing() -> None:
    """Beyond the limit only rounds are added, however many durations each has."""
    width = 1000
    plan = Plan(calls_per_duration=1, durations_per_round=width, rounds_per_block=10)
    recording = Recording(plan, MeasureSection(keep_durations=50_000))
    times = np.random.default_rng(1).normal(1e-6, 1e-8, 10 * width)
    most = 0
    for _ in range(100):
        recording.add(Block(durations_s=array("d", times), length_s=0.01, calls=10 * width))
        most = max(most, len(recording.durations_s))
    assert most <= 50_000
    assert (recording.durations, recording.rounds) == (1_000_000, 1000)
    sketch = recording.sketch
    assert sketch is not None
    assert sketch.count == 1_000_000
    assert len(recording.durations_s) == 0
    assert sketch.quantiles([0.99])[0] == pytest.approx(np.quantile(times, 0.99), rel=1e-3)


def test_rounds_of_one_duration_are_all_kept() -> None:
    """Each lasts a millisecond: the median needs them, and they are few."""
    samples = measured(2 * MS, keep_durations=10)
    assert samples.sketch is None
    assert len(samples.durations_s) > 200


def test_ranks_with_sketches_become_one_in_bounds() -> None:
    """Each rank's row is exact or its sketch's; what is sent is small, and flagged."""
    aggregate = RankAggregate()
    for rank in range(3):
        times_ns = [time + 1000 * rank for time in TIMES_NS]
        samples = measured(*times_ns, by="steps", steps=20_000, keep_durations=1000)
        samples = replace(samples, warmup_s=(), warmup_calls=1)  # each warmed up alone
        report = RankReport.of(samples, Work(), {}, rank=rank, host="a host")
        sent = json.dumps(report.to_json())
        assert len(sent) <= LIMIT_BYTES
        assert RankReport.from_json(json.loads(sent)) == report
        times, sketch = report.times, samples.sketch
        assert sketch is not None
        assert (times.count, times.min_s, times.max_s) == (20_000, sketch.least, sketch.most)
        assert times.p99_s == sketch.quantiles([0.99])[0]
        aggregate.add(report)
    joined = aggregate.samples  # of which each round is the slowest rank's
    assert {"sketched", "condensed"} <= set(joined.flags)
    assert (joined.sketch, joined.rounds, joined.rounds_s) == (None, 1000, samples.rounds_s)


def test_a_sketch_is_plain_values() -> None:
    """Numbers and one text of base64."""
    fields = asdict(sketched([1.0, 2.0]))
    assert set(map(type, fields.values())) == {int, float, str}
