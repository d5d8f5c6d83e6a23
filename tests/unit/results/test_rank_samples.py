"""Tests of what each rank keeps of its own."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.core.errors import ResultsError
from gpubench_plugin.core.records import Samples
from gpubench_plugin.environment import stored
from gpubench_plugin.results import recorder

if TYPE_CHECKING:
    from pathlib import Path

SAMPLES = Samples(
    timer="cpu",
    durations_s=(0.1,) * 10_000,
    block_s=(1000.0,),
    block_calls=(10_000,),
    first_step_s=0.1,
    warmup_s=(),
    warmup_calls=0,
)


def test_every_benchmark_is_a_line_with_all_samples(tmp_path: Path) -> None:
    """Nothing is left out, and what stood there before stays."""
    for name in ("a", "b"):
        recorder.append(tmp_path / "ranks", 3, name, SAMPLES)
    lines = (tmp_path / "ranks" / "rank-3.jsonl").read_text().splitlines()
    entries = [json.loads(line) for line in lines]
    assert [line["benchmark"] for line in entries] == ["a", "b"]
    assert [line["rank"] for line in entries] == [3, 3]
    assert stored.restore(Samples, entries[1]["samples"], "it") == SAMPLES
    assert set(entries[0]["samples"]) == set(asdict(SAMPLES))


def test_events_of_a_call_stand_beside_the_samples(tmp_path: Path) -> None:
    """What a rank did is a line of its own, and may come before what it timed."""
    events = [{"event": "step", "duration_s": 0.5}]
    recorder.append_events(tmp_path, 1, "a", events)
    recorder.append(tmp_path, 1, "a", SAMPLES)
    lines = (tmp_path / "rank-1.jsonl").read_text().splitlines()
    entries = [json.loads(line) for line in lines]
    assert [sorted(line) for line in entries] == [
        ["benchmark", "events", "rank", "time"],
        ["benchmark", "rank", "samples", "time"],
    ]
    assert entries[0]["events"] == events


@pytest.mark.slow
def test_a_file_that_cannot_be_written_is_named(read_only_folder: Path) -> None:
    """The error says which, and why."""
    with pytest.raises(ResultsError, match=r"cannot write .*0\.jsonl: .*[Rr]ead-only|denied"):
        recorder.append(read_only_folder, 0, "a", SAMPLES)
