"""One benchmark on one rank and on two, from one session."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.support.projects import InlineProject

if TYPE_CHECKING:
    from tests.support.projects import Run

UNEVEN = """
import time
import pytest
@pytest.mark.gpubench(ranks="any")
def test_uneven(gpubench, process_group):
    pause = 0.002 * (1 + 20 * process_group.world.rank)
    gpubench(lambda: time.sleep(pause), samples=4)
"""


SURE = """
from dataclasses import replace
import pytest
@pytest.hookimpl(wrapper=True)
def pytest_gpubench_measurement(item, measurement):
    told = (yield) or measurement
    return replace(told, flags=())
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """On two ranks of which one takes far longer; a machine that is busy is no doubt."""
    project = InlineProject(tmp_path_factory.mktemp("uneven"))
    project.write("conftest.py", SURE)
    project.write("test_it.py", UNEVEN)
    gate = ("--gate", "--baseline=none", "--gate.limits.scaling_efficiency=>=0.9")
    wide = {"COLUMNS": "100"}
    return project.run("--world-size=1,2", "--distributed.threads=1", "-v", *gate, env=wide)


def test_the_efficiency_is_recorded_and_can_fail_a_gate(run: Run) -> None:
    """It stands in the record, the journal, the table of the run and the verdicts."""
    alone, together = run.summary["benchmarks"]
    assert alone["metrics"]["scaling_efficiency"]["value"] == 1
    value = together["metrics"]["scaling_efficiency"]["value"]
    assert together["metrics"]["scaling_speed_up"]["value"] == pytest.approx(2 * value)
    recorded = [line["metrics"] for line in run.journal if line["event"] == "benchmark"]
    assert recorded[-1]["scaling_efficiency"]["value"] == value
    assert (run.directory / "summary.csv").read_text().count("scaling_efficiency") >= 1
    verdicts = json.loads((run.directory / "verdicts.json").read_text())["benchmarks"]
    judged = [v["verdict"] for v in verdicts if v["metric"] == "scaling_efficiency"]
    assert sorted(judged) == ["regressed", "unchanged"]
    assert run.code == 1
    item = "test_it.py::test_uneven::gate[ranks2]"
    assert (run.out.count(f"{item} FAILED"), run.out.count(f"FAILED {item}")) == (1, 1)
    assert "1 failed, 3 passed" in run.out, "the controller alone runs gate items"


def test_the_slowest_rank_is_named_and_what_more_ranks_bring(run: Run) -> None:
    """Rank 1 takes far longer: table, note, summary, every rank's samples, traffic."""
    lines = run.out.splitlines()
    title = lines.index("uneven (weak scaling)")
    columns = ["ranks", "threads", "step", "samples/s", "speed-up", "efficiency"]
    assert lines[title - 1].split() == columns
    rows = [line.split()[:2] for line in lines[title + 1 : title + 3]]
    assert rows == [["1", "1"], ["2", "1"]]
    assert lines[title + 1].split()[-2:] == ["1.00", "100%"]
    assert any(line.startswith("uneven[ranks2]: slowest rank 1: +") for line in lines)

    alone, together = run.summary["benchmarks"]
    assert (alone["ranks"], alone["slowest_rank"]) == ([], None)
    assert [row["rank"] for row in together["ranks"]] == [0, 1]
    assert together["slowest_rank"] == 1
    medians = [row["median_s"] for row in together["ranks"]]
    assert together["metrics"]["rank_skew_s"]["value"] == medians[1] - medians[0]

    (recorded,) = (
        line["samples"]
        for line in run.journal
        if line["event"] == "benchmark" and line["world_size"] == 2
    )
    own = []
    for rank in (0, 1):
        (line,) = (run.directory / "ranks" / f"rank-{rank}.jsonl").read_text().splitlines()
        told = json.loads(line)
        assert (told["benchmark"], told["rank"]) == ("test_it.py::test_uneven[ranks2]", rank)
        own.append(told["samples"]["durations_s"])
    assert recorded["durations_s"] == [max(pair) for pair in zip(*own, strict=True)]
    (traffic,) = (line for line in run.journal if line["event"] == "traffic")
    assert traffic["benchmark"] == "test_it.py::test_uneven[ranks2]"
    assert 0 < traffic["bytes_written"] < traffic["bytes_read"]
