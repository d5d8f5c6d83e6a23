"""Rounds that are fixed beforehand."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from gpubench_plugin.config import rounds_file
from gpubench_plugin.config.rounds_file import FixedRounds
from gpubench_plugin.config.sections import MeasureSection
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.core.records import Samples
from gpubench_plugin.measure.clocks.base import Task
from gpubench_plugin.measure.clocks.host import CpuClock
from gpubench_plugin.measure.loop import Variant, measure
from gpubench_plugin.ranks.agreement import RankAgreement
from gpubench_plugin.ranks.reduction import condense
from tests.support.fake_cuda import FakeHost
from tests.support.messages import mentions
from tests.unit.measure.test_agreement import Board, Threads

MS = 1_000_000
ENTRY = {"rounds": 40, "durations_per_round": 4, "calls_per_duration": 2}
ROUNDS = FixedRounds(**ENTRY)


def measured(
    *times_ns: int,
    rounds: FixedRounds | None = ROUNDS,
    agreement: RankAgreement | None = None,
    setup: bool = False,
    rounds_file: str | None = "rounds.json",
    **keys: Any,
) -> Samples:
    """The samples of a step that takes these times in turn on a host clock on paper."""
    host, times = FakeHost(), cycle(times_ns)
    return measure(
        [
            Variant(
                task=Task(
                    step=lambda: host.spend(next(times)), setup=(lambda: None) if setup else None
                ),
                clock=CpuClock(host.now),
            )
        ],
        section=MeasureSection(rounds_file=rounds_file, **keys),
        agreement=agreement or RankAgreement(),
        fixed_rounds=rounds,
    )[0]


@pytest.mark.parametrize("by", ["ci", "steps", "time"])
@pytest.mark.parametrize("times_ns", [(2 * MS,), (130,), (2 * MS, 9 * MS), (700 * MS,)])
def test_exactly_the_frozen_rounds_are_timed(times_ns: tuple[int, ...], by: str) -> None:
    """Neither a narrow interval nor a limit of time or rounds changes plan and number."""
    samples = measured(*times_ns, by=by, max_rounds=20, max_time_s=0.01, time_s=0.01, steps=7)
    assert FixedRounds.of(samples) == ROUNDS
    assert (len(samples.durations_s), samples.calls) == (160, 320)
    assert "cut_short" not in samples.flags


@pytest.mark.parametrize(("by", "most_s"), [("ci", 10.0), ("time", 5.0)])
def test_rounds_of_a_baseline_end_with_the_limit_of_time(by: str, most_s: float) -> None:
    """A step that is slower by far ends ten times later than it may without a baseline."""
    keys = {"max_time_s": 1.0, "time_s": 0.5, "by": by, "rounds_file": None}
    samples = measured(100 * MS, rounds=FixedRounds(**{**ENTRY, "rounds": 1000}), **keys)
    assert sum(samples.block_s) == pytest.approx(most_s, abs=1.0)
    assert "cut_short" in samples.flags
    in_time = measured(MS, **keys)
    assert FixedRounds.of(in_time) == ROUNDS
    assert "cut_short" not in in_time.flags


@pytest.mark.slow
def test_what_was_measured_can_be_frozen() -> None:
    """The rounds of one measurement make the next one take as many, whatever noise it has."""
    first = measured(130, 150, rounds=None)
    again = measured(130, 150, 400, rounds=FixedRounds.of(first))
    assert FixedRounds.of(again) == FixedRounds.of(first)
    assert len(again.durations_s) == len(first.durations_s)


@pytest.mark.slow
def test_reduced_samples_know_their_rounds() -> None:
    """Condensed or sampled durations are frozen as they were timed, not as they are kept."""
    many = measured(130, rounds=FixedRounds(rounds=5000, **_sizes(3, 2)))
    assert len(condense(many).durations_s) == 4096
    assert FixedRounds.of(condense(many)) == FixedRounds(rounds=5000, **_sizes(3, 2))
    sampled = measured(130, rounds=FixedRounds(rounds=50, **_sizes(3, 2)), keep_durations=10)
    assert "sampled" in sampled.flags
    assert FixedRounds.of(sampled) == FixedRounds(rounds=50, **_sizes(3, 2))


def test_durations_that_fill_no_round_are_frozen_as_one() -> None:
    """A measurement too short for a round still gives a plan that can be run."""
    short = replace(measured(130), durations_s=(0.1, 0.2), durations_per_round=5)
    assert FixedRounds.of(short) == FixedRounds(rounds=1, **_sizes(2, 2))


def _sizes(durations: int, calls: int) -> dict[str, int]:
    return {"durations_per_round": durations, "calls_per_duration": calls}


@pytest.mark.parametrize("others", [None, FixedRounds(rounds=7, **_sizes(1, 1))])
def test_rank_zeros_rounds_are_every_ranks(others: FixedRounds | None) -> None:
    """A rank whose file is missing or stale still runs what rank zero runs."""
    board = Board(2)

    def rank(number: int) -> Samples:
        agreement = Threads(board, number)
        return measured(2 * MS, rounds=others if number else ROUNDS, agreement=agreement)

    with ThreadPoolExecutor(2) as threads:
        both = list(threads.map(rank, range(2)))
    assert [FixedRounds.of(samples) for samples in both] == [ROUNDS, ROUNDS]


def test_rounds_of_another_kind_of_step_are_refused() -> None:
    """Calls with a setup between them cannot be grouped, and a clock has a longest block."""
    with pytest.raises(UsageProblem, match=r"rounds\.json: calls_per_duration=2, but setup or"):
        measured(MS, setup=True)
    huge = FixedRounds(rounds=1, **_sizes(1001, 1000))
    with pytest.raises(UsageProblem, match="1001000 calls per round; the clock perf_counter_ns"):
        measured(MS, rounds=huge)


def test_a_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    """What is written under a node id is found under it."""
    path = tmp_path / "rounds.json"
    path.write_text(rounds_file.to_text({"test_a.py::test_b[fp32]": ROUNDS}))
    assert rounds_file.read(path, "key") == {"test_a.py::test_b[fp32]": ROUNDS}


GOOD: dict[str, Any] = {"schema_version": 1, "benchmarks": {"a": ENTRY}}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"schema_version": 1, "benchm', "is not JSON"),
        ('{"schema_version": 1}', "violates the schema at benchmarks: missing key"),
        (json.dumps({**GOOD, "schema_version": 2}), "schema_version 2; this"),
        ('{"schema_version": 1, "benchmark": {}}', "benchmarks: missing key"),
        (json.dumps({**GOOD, "benchmarks": {"a": 3}}), "at benchmarks.a: Input should be an obj"),
        (
            json.dumps({**GOOD, "benchmarks": {"a": {**ENTRY, "rounds": 0}}}),
            "benchmarks.a.rounds: .. equal to 1, not 0",
        ),
    ],
)
def test_a_bad_file_is_refused_with_its_name_and_the_key(
    tmp_path: Path, text: str, said: str
) -> None:
    """Truncated, foreign and impossible files end with one message and no traceback."""
    path = tmp_path / "rounds.json"
    path.write_text(text)
    with pytest.raises(UsageProblem) as caught:
        rounds_file.read(path, "measure.rounds_file")
    assert str(caught.value).startswith(f"measure.rounds_file: {path}")
    assert mentions(caught.value, *said.split(" .. "))
    assert len(str(caught.value)) < 400
