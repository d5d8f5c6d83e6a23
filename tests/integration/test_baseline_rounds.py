"""The rounds of a baseline: a session that is compared with it takes as many."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

from gpubench_plugin.baselines.store import Baselines
from gpubench_plugin.config.rounds_file import FixedRounds
from gpubench_plugin.core.records import Samples
from gpubench_plugin.results.reader import RunReader
from gpubench_plugin.results.run_directory import RunDirectory
from gpubench_plugin.system import stored
from tests.support.messages import mentions
from tests.support.projects import InlineProject

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

SUITE = """
import time

import pytest

pytestmark = pytest.mark.gpubench_set(
    "measure.warmup_s=0.001",
    "measure.min_time_s=0.001",
    "measure.max_time_s=2",
    "measure.ci_half_width=0.5",
)

def test_known(gpubench):
    gpubench(lambda: time.sleep(0.001))

def test_with_a_setup_by_now(gpubench):
    gpubench(lambda: None, setup=lambda: None)

def test_new(gpubench):
    gpubench(lambda: time.sleep(0.001))
"""
STEPS = '@pytest.mark.gpubench_set("measure.by=steps", "measure.steps=37")'
KNOWN, CHANGED = "test_it.py::test_known", "test_it.py::test_with_a_setup_by_now"


def copied(run: Path, run_id: str) -> Path:
    """Another run with the same numbers."""
    copy = shutil.copytree(run, run.parent / run_id)
    file = copy / "summary.json"
    file.write_text(file.read_text().replace(run.name, run_id))
    return copy


def line_of(name: str, *, rounds: int) -> str:
    """A line of a journal: the benchmark once more, in so many rounds."""
    samples = Samples(
        timer="perf_counter_ns",
        durations_s=(0.001,) * rounds,
        block_s=(0.001 * rounds,),
        block_calls=(rounds,),
        first_step_s=None,
        warmup_s=(),
        warmup_calls=0,
    )
    return json.dumps({"event": "benchmark", "id": name, "samples": stored.dump(samples)}) + "\n"


def test_a_session_takes_the_rounds_of_its_baseline_unless_it_is_told_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of three pinned runs the middle one's; the header says of how many benchmarks that is so.

    A kind of step that cannot be timed so keeps its rule.
    """
    project = InlineProject(tmp_path)
    before = SUITE.partition("def test_new")[0].replace("None, setup=lambda: None", "None")
    project.write("test_it.py", before.replace("def test_known", f"{STEPS}\ndef test_known"))
    pinned = project.run(quick=False).directory
    rounds = RunReader(RunDirectory(path=pinned)).rounds()
    assert rounds[KNOWN] == FixedRounds(rounds=37, durations_per_round=1, calls_per_duration=1)
    assert rounds[CHANGED].calls_per_duration > 1
    pins = [pinned.name, *(copied(pinned, f"20990101T00000{n}Z_run_00000{n}").name for n in "12")]
    with (pinned.parent / pins[-1] / "metrics.jsonl").open("a") as journal:
        journal.write(line_of(KNOWN, rounds=5))
    Baselines(tmp_path / "results").set("main", pins, branch=None)
    project.write("test_it.py", SUITE)
    before = {*(tmp_path / "results").glob("*/*")}

    frozen = project.run("--baseline=main", "--gate", quick=False)
    (first,) = {*frozen.directories} - before
    told = project.run("--baseline=main", "--measure.max_rounds=20", quick=False)

    assert (frozen.code, told.code) == (0, 0), frozen.out + told.out
    assert "using the baseline's rounds for 2 of 3 benchmarks" in frozen.out
    assert mentions(told.out, "not using the baseline's rounds", "--measure.max_rounds=20")
    (second,) = {*told.directories} - before - {first}
    taken, others = (RunReader(RunDirectory(path=one)).rounds() for one in (first, second))
    assert taken[KNOWN] == rounds[KNOWN]
    assert taken[CHANGED] != rounds[CHANGED]
    assert others[KNOWN].rounds <= 20


def test_rounds_of_another_machine_are_not_taken(tmp_path: Path) -> None:
    """The latest pinned run is of another one; only who compares with it all the same takes its."""
    project = InlineProject(tmp_path)
    project.write("test_it.py", SUITE.partition("def test_with")[0])
    pinned = project.run(quick=False).directory
    summary = json.loads((pinned / "summary.json").read_text())
    summary["environment"]["cpu"]["model"] = "Another"
    (pinned / "summary.json").write_text(json.dumps(summary))
    Baselines(tmp_path / "results").set("main", [pinned.name], branch=None)

    refused = project.run("--baseline=main", quick=False).out
    assert mentions(refused, "not using the baseline's rounds: ", "local directory")
    allowed = project.run("--baseline=main", "--allow-incomparable", quick=False).out
    assert "using the baseline's rounds for 1 of 1 benchmarks" in allowed
