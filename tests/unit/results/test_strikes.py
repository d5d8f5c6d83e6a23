"""Errors and signals at the writes of results: nothing that had ended is lost."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.results.reader import RunToResume
from gpubench_plugin.results.recorder import append
from gpubench_plugin.results.run_directory import runs_in
from tests.support.exhaustive import shown
from tests.support.kill_points import Scenario
from tests.support.runs_builder import run_id
from tests.support.scenarios import SCENARIOS, Session
from tests.support.strikes import Struck

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gpubench_plugin.core.records import Measurement
    from gpubench_plugin.results.recorder import Recorder
    from tests.support.kill_points import Ended

pytestmark = pytest.mark.slow


class Interrupted(Session):
    """A session that is interrupted ends its run, whose benchmarks a later one does not repeat."""

    @staticmethod
    def _measure(recorder: Recorder, missing: Sequence[Measurement], ended: Ended) -> None:
        done: list[Measurement] = []
        try:
            for one in missing:
                done.append(one)
                recorder.record(one)
                ended(one.id)
        except KeyboardInterrupt:
            recorder.finish("interrupted", done, None)
            for one in done:
                ended(one.id)
        else:
            recorder.finish("complete", Session.measurements, None)
            ended("run")

    def require(self, folder: Path, ended: Sequence[str]) -> None:
        for run in runs_in(folder):
            if run.run_id == run_id(1):
                again = RunToResume(run)
                again.journal.close()
                assert again.measured(again.measurements, launches=1) >= {*ended} - {"run"}


class Ranks(Scenario):
    """A rank writes its own samples of two benchmarks, beside those of an earlier one."""

    def prepare(self, folder: Path) -> None:
        append(folder, 0, "before")

    def act(self, folder: Path, ended: Ended) -> None:
        for name in ("first", "second"):
            append(folder, 0, name, samples="x" * 100)
            ended(name)

    def again(self, folder: Path) -> None:
        append(folder, 0, "again")

    def verify(self, folder: Path, ended: Sequence[str]) -> None:
        lines = (folder / "rank-0.jsonl").read_text().splitlines()
        assert {json.loads(line)["benchmark"] for line in lines} >= {"before", *ended, "again"}


LOST = (4, 46, 57, 176, 231, 303)
"""Seeds at which something once was: one for each way."""


@pytest.mark.parametrize("seeds", shown(LOST, exhaustively=[range(500)]))
def test_nothing_that_had_ended_is_lost_by_a_strike(seeds: Sequence[int], in_memory: Path) -> None:
    """The journal keeps its whole lines, files are old or new, and all can be done again."""
    scenarios = Struck([kind() for kind in (Interrupted, Ranks, *SCENARIOS)], in_memory)
    for seed in seeds:
        scenarios.survive(seed)
