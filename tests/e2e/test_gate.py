"""The gate: a benchmark that got worse is a failed test, and what cannot be judged is said."""

from __future__ import annotations

import json
import re
import shutil
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.measure.record_builder import MEASURING_METHOD
from tests.support.projects import InlineProject

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.projects import Project, Run

SUITE = """
import os
import pytest

def test_plain(gpubench):
    gpubench(lambda: sum(range(2000)), samples=4)

@pytest.mark.gpubench(limits={"samples_per_s": "2.5%", "step_time_max_s": "<=1000"})
@pytest.mark.parametrize("size", ["small"])
def test_limited(gpubench, size):
    gpubench(lambda: sum(range(2000)), samples=4)

def test_skipped(gpubench):
    pytest.skip("not today")

def test_ordinary():
    if "INTERRUPT" in os.environ:
        raise KeyboardInterrupt
"""
SKIPS = "def test_plain(gpubench):\n    pytest.skip('no device')"
PLAIN, LIMITED = "test_plain", "test_limited[small]"
FASTER = 1e-4
"""Of an earlier run: by so much that no stall of a busy machine hides that this one is slower."""
GATE_OF_PLAIN = "test_it.py::test_plain::gate"


@dataclass(frozen=True)
class Gated:
    """A project in which earlier runs are made from one that was measured."""

    project: Project
    measured: Path

    def earlier(self, times: float, number: int = 1, **environment: Any) -> str:
        """The id of a run whose steps took so many `times` as long, in other surroundings if given.

        Its memory is far above that of any session, so that only the time can be worse.
        """
        run_id = f"20200101T0000{number:02}Z_run_{number:06x}"
        folder = self.project.path / "results" / "default" / run_id
        shutil.copytree(self.measured, folder)
        summary = json.loads((folder / "summary.json").read_text())
        summary["run_id"] = run_id
        summary["environment"].update(environment)
        for benchmark in summary["benchmarks"]:
            for name, metric in benchmark["metrics"].items():
                if name.startswith("step_time_"):
                    metric["value"] *= times
                elif name.endswith("_per_s"):
                    metric["value"] /= times
                elif name == "peak_memory_bytes":
                    metric["value"] *= 2
        (folder / "summary.json").write_text(json.dumps(summary))
        return run_id

    def run(self, *args: str, **more: Any) -> Run:
        """A session that gives no annotations to a GitHub that these tests may run on.

        Whatever disturbs this machine, its numbers are judged.
        """
        env = {"GITHUB_ACTIONS": "", "GITHUB_STEP_SUMMARY": "", **more.pop("env", {})}
        return self.project.run(*args, "--allow-doubt", env=env, **more)

    @property
    def last(self) -> Path:
        """The folder of the latest session's run."""
        return sorted((self.project.path / "results").glob("*/*T*Z_*"))[-1]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run directory of a plain session."""
    project = InlineProject(tmp_path_factory.mktemp("measured"))
    project.write("test_it.py", SUITE)
    return project.run().directory


@pytest.fixture
def gated(project: Project, measured: Path) -> Gated:
    """The suite in a project of its own."""
    project.write("test_it.py", SUITE)
    return Gated(project, measured)


def test_a_regression_is_a_failed_test_everywhere_and_is_measured_again_by_lf(
    gated: Gated,
) -> None:
    """``-v`` line, junit failure with properties, exit 1, record, GitHub; ``--lf`` reruns both."""
    faster, slower = gated.earlier(FASTER), gated.earlier(1 / FASTER, number=2)
    page = gated.project.path / "page.md"
    github = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(page)}

    run = gated.run("-v", f"--baseline={faster}", "--gate", "--junitxml=unit.xml", env=github)

    assert run.code == 1, run.out + run.err
    progress = [line.split()[:2] for line in run.out.splitlines() if line.endswith("%]")]
    assert progress[-3:] == [
        [GATE_OF_PLAIN, "FAILED"],
        ["test_it.py::test_limited::gate[small]", "FAILED"],
        ["test_it.py::test_skipped::gate", "SKIPPED"],
    ]
    cases = {
        (c.get("classname"), c.get("name")): c
        for c in ET.parse(gated.project.path / "unit.xml").iter("testcase")
    }
    gate = cases["test_it.test_limited", "gate[small]"]
    (failure,) = gate.iter("failure")
    assert "step_time_min_s regressed: " in failure.get("message", "")
    properties = {p.get("name"): p.get("value", "") for p in gate.iter("property")}
    assert (
        properties["step_time_min_s.verdict"] == properties["samples_per_s.verdict"] == "regressed"
    )
    assert properties["step_time_max_s.verdict"] == "unchanged"
    assert properties["samples_per_s.limit"] == "2.5%"
    assert float(properties["step_time_min_s.effect"]) > 1
    verdicts = json.loads((gated.last / "verdicts.json").read_text())
    found = {(v["id"], v["metric"]): v["verdict"] for v in verdicts["benchmarks"]}
    assert found[f"test_it.py::{PLAIN}", "step_time_min_s"] == "regressed"
    summary = json.loads((gated.last / "summary.json").read_text())
    assert summary["status"] == "complete"
    lines = (gated.last / "metrics.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines]
    assert [e["event"] for e in events][-2:] == ["verdicts", "run_finished"]
    assert events[-2]["verdicts"] == verdicts
    assert "gate: failed: 2 benchmarks" in run.out
    assert "::error file=test_it.py,line=5" in run.out
    assert faster in page.read_text()

    again = gated.run("-v", "--lf", f"--baseline={slower}", "--gate")

    assert again.code == 0, again.out + again.err
    assert f"{GATE_OF_PLAIN} PASSED" in again.out
    assert f"test_it.py::{PLAIN} PASSED" in again.out
    assert "4 passed" in again.out, again.out
    assert "gate: passed" in again.out


def test_a_run_records_its_measuring_method_and_how_clocks_are_governed(measured: Path) -> None:
    """An unknown governor is recorded as such: earlier versions recorded none."""
    environment = json.loads((measured / "summary.json").read_text())["environment"]
    assert environment["gpubench"] == {"measuring_method": MEASURING_METHOD}
    assert {"governor", "boost"} <= environment["cpu"].keys()


@pytest.mark.own_process
def test_what_judging_needs_is_not_measured(gated: Gated) -> None:
    """Libraries of judging and of the registry are loaded after the last benchmark only."""
    heavy = "def test_first(gpubench):\n    assert not {'sqlalchemy', 'scipy'} & {*sys.modules}\n"
    gated.project.write("test_it.py", f"import sys\n{heavy}    gpubench(lambda: None)\n{SUITE}")

    run = gated.run("-k", "first or plain", f"--baseline={gated.earlier(FASTER)}", "--gate")

    assert run.code == 1, run.out + run.err
    assert "1 failed, 3 passed" in run.out, run.out


def test_all_verdicts_are_said_though_the_session_stops_at_the_first(gated: Gated) -> None:
    """With -x the second gate item never runs; its verdict is printed and recorded all the same."""
    faster = gated.earlier(FASTER)

    flags = ("-x", "-q", "-p", "no:cacheprovider", "--durations=2")
    run = gated.run(*flags, f"--baseline={faster}", "--gate=threshold")

    assert run.code == 1, run.out + run.err
    assert "stopping after 1 failures" in run.out
    assert "2 benchmarks" in run.out
    verdicts = json.loads((gated.last / "verdicts.json").read_text())["benchmarks"]
    assert {v["id"] for v in verdicts if v["verdict"] == "regressed"} == {
        f"test_it.py::{PLAIN}",
        f"test_it.py::{LIMITED}",
    }


def test_a_baseline_without_gate_compares_and_an_interrupted_session_is_judged(
    gated: Gated,
) -> None:
    """Nothing fails for a comparison; after Ctrl-C it is of what had been measured.

    A function that is gone is removed, and so is one whose file is.
    """
    faster = gated.earlier(FASTER)
    file = gated.project.path / "results" / "default" / faster / "summary.json"
    summary = json.loads(file.read_text())
    summary["benchmarks"].append({**summary["benchmarks"][0], "id": "test_gone.py::test_gone"})
    file.write_text(json.dumps(summary))
    gated.project.write("test_it.py", SUITE.replace("def test_limited", "def limited"))

    run = gated.run(f"--baseline={faster}", "-k", "plain or ordinary", env={"INTERRUPT": "1"})

    assert run.code == 2, run.out + run.err
    assert "::gate" not in run.out
    assert "= comparison =" in run.out
    assert "1 regressed" in run.out
    assert "2 removed" in run.out


LEAVES_OUT = """
def pytest_collection_modifyitems(items):
    items[:] = [item for item in items if "limited" not in item.name]
"""
DESELECTS = """
import pytest

@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    config.hook.pytest_deselected(items=[item for item in items if "limited" in item.name])
    items[:] = [item for item in items if "limited" not in item.name]
"""


def test_what_the_baseline_measured_is_missed(gated: Gated) -> None:
    """Skipped, or left out by a conftest, but not deselected; it fails only if asked.

    As ``--stepwise`` a conftest may deselect before the gate knows what conftests leave out.
    """
    slower = gated.earlier(1 / FASTER)
    gated.project.write("test_it.py", SUITE.replace("def test_plain(gpubench):", SKIPS))
    gated.project.write("conftest.py", LEAVES_OUT)
    other = "def test_other(gpubench): gpubench(lambda: None)\n"
    gated.project.write("test_other.py", other)
    gone = f"1 removed (test_it.py::{LIMITED}): "
    lost = f"1 not measured any more (test_it.py::{PLAIN}): "

    run = gated.run(f"--baseline={slower}", "--gate")
    assert (run.code, "gate: passed" in run.out) == (0, True), run.out + run.err
    assert f"{gone}pass (--gate-missing=pass)" in run.out
    assert f"{lost}pass (--gate-missing=pass)" in run.out

    run = gated.run("-v", f"--baseline={slower}", "--gate", "--gate-missing=fail")
    assert (run.code, "gate: failed: 3 benchmarks" in run.out) == (1, True), run.out + run.err
    assert f"{gone}fail (--gate-missing=fail)" in run.out
    assert f"{lost}fail (--gate-missing=fail)" in run.out
    assert f"{GATE_OF_PLAIN} FAILED" in run.out
    assert "test_it.py::test_skipped::gate SKIPPED" in run.out

    gated.project.write("conftest.py", DESELECTS)
    run = gated.run("-k", "not plain", f"--baseline={slower}", "--gate")
    assert "2 deselected" in run.out, run.out + run.err
    assert "removed" not in run.out


def test_a_near_miss_of_a_baselines_name_is_refused(gated: Gated) -> None:
    """Nothing is measured, and no gate passes, for a slip of the fingers."""
    from gpubench_plugin.baselines.store import Baselines

    Baselines(gated.project.path / "results").set("main", [gated.earlier(FASTER)], branch=None)
    runs = list((gated.project.path / "results").glob("*/*"))

    run = gated.run("--baseline=mian", "--gate")

    assert run.code == 4, run.out + run.err
    assert "--baseline=mian: no baseline named 'mian' (did you mean 'main'?)" in run.err
    assert "gate: passed" not in run.out
    assert list((gated.project.path / "results").glob("*/*")) == runs


def test_missing_baselines_are_said_and_fixed_bounds_judged_all_the_same(gated: Gated) -> None:
    """By default a benchmark without baseline passes; a bound that it breaks fails it."""
    run = gated.run("-k", "plain or limited", "--baseline=none-such", "--gate")

    assert run.code == 0, run.out + run.err
    assert "no baseline named 'none-such'" in run.out
    assert "2 without baseline: pass (--gate-missing=pass)" in run.out

    limits = ("--gate.limits.step_time_s=<=1e-12", "--gate.limits.step_time_=3%")
    flags = ("--gate-missing=fail", *limits)
    run = gated.run("-k", "plain", "--baseline=none-such", "--gate", *flags)

    assert run.code == 1, run.out + run.err
    assert "1 without baseline: fail (--gate-missing=fail)" in run.out
    assert "breaks <=1e-12" in run.out
    assert "step_time_ not measured: " in run.out


def test_a_gate_whose_baseline_is_of_another_machine_fails(gated: Gated) -> None:
    """Nothing at all could be compared; the differing key is named with both values."""
    elsewhere = gated.earlier(FASTER, cpu={"model": "Another processor"})

    run = gated.run("-k", "plain", f"--baseline={elsewhere}", "--gate")

    assert run.code == 1, run.out + run.err
    assert f"FAILED {GATE_OF_PLAIN}" in run.out
    assert "Another processor" in run.out
    assert "1 incomparable: fail (nothing was comparable" in run.out
    assert "gate: failed: 1 benchmark" in run.out


def test_a_name_is_judged_by_its_history(gated: Gated) -> None:
    """Enough earlier runs regress it; fewer are inconclusive, which fails only if asked.

    GitHub's page offers to accept only what regressed.
    """
    from gpubench_plugin.baselines.store import Baselines

    baselines = Baselines(gated.project.path / "results")
    runs = [gated.earlier(FASTER * (1 + n / 1000), number=n) for n in range(1, 13)]
    baselines.set("main", runs, branch=None)
    baselines.set("young", runs[:3], branch=None)

    page = gated.project.path / "page.md"
    github = {"GITHUB_ACTIONS": "true", "GITHUB_STEP_SUMMARY": str(page)}
    run = gated.run("-k", "plain", "--baseline=main", "--gate", env=github)

    assert run.code == 1, run.out + run.err
    assert "12 earlier runs" in run.out
    assert f"gpubench accept {gated.last.name} '<benchmark>' --baseline=main" in page.read_text()

    flags = ("--gate", "--gate-inconclusive=fail")
    page.unlink()
    run = gated.run("-k", "plain", "--baseline=young", "--gate", env=github)

    assert run.code == 0, run.out + run.err
    assert "To reproduce" in page.read_text()
    assert "accept" not in page.read_text()
    assert re.findall("^::.*", run.out, re.MULTILINE) == [
        "::notice title=cannot judge yet::1 verdict: the baseline needs 7 more runs"
    ]
    assert "gate: cannot judge yet (the baseline needs 7 more runs)" in run.out

    run = gated.run("-k", "plain", "--baseline=young", *flags)

    assert run.code == 1, run.out + run.err
    assert "at least 10 are needed" in run.out
    assert "1 inconclusive: fail (--gate-inconclusive=fail)" in run.out


def test_a_gate_that_measured_nothing_fails(gated: Gated) -> None:
    """Whether all were skipped, none was selected, or measuring is off: there is no gate item."""
    faster = gated.earlier(FASTER)
    gate = (f"--baseline={faster}", "--gate")

    run = gated.run("-k", "skipped", *gate)
    assert run.code == 1, run.out + run.err
    assert "nothing was measured: the gate has no benchmark to judge" in run.out

    run = gated.run("-k", "ordinary", *gate)
    assert run.code == 1, run.out + run.err
    assert "no benchmark was selected" in run.out

    run = gated.run("-k", "ordinary", "-n2", *gate)
    assert run.code == 1, run.out + run.err
    assert "nothing is judged with -n" in run.out

    for off in ("--benchmark-disable", "--benchmark-skip"):
        run = gated.run(off, "-v", *gate)
        assert run.code == 1, run.out + run.err
        assert f"gate: failed: nothing is judged with {off}" in run.out
        assert "::gate" not in run.out

    run = gated.run("--collect-only", "-q", *gate)
    assert run.code == 0, run.out + run.err
    assert "::gate" not in run.out


def test_a_resumed_run_is_judged_as_a_whole(gated: Gated) -> None:
    """What an earlier session has measured is judged with the rest."""
    faster = gated.earlier(FASTER)
    gated.run("-k", "plain or limited")

    run = gated.run(f"--resume={gated.last.name}", "-k", "plain", f"--baseline={faster}", "--gate")

    assert run.code == 1, run.out + run.err
    assert "1 failed" in run.out
    assert "gate: failed: 2 benchmarks" in run.out


@pytest.mark.exhaustive
def test_the_gate_judges_what_ranks_of_torchrun_measured_once(gated: Gated) -> None:
    """Rank zero runs the gate item; the exit code says."""
    gated.project.write(
        "test_it.py",
        """
        import pytest
        @pytest.mark.gpubench(ranks="any")
        def test_plain(gpubench):
            gpubench(lambda: None)
        """,
    )
    flags = ("--baseline=none-such", "--gate", "--gate.limits.step_time_s=<=1e-12", "-v")

    run = gated.run(*flags, ranks=2)

    assert run.code == 1, run.out + run.err
    gate = "test_it.py::test_plain::gate[ranks2]"
    assert (run.out.count(f"{gate} FAILED"), run.out.count(f"FAILED {gate}")) == (1, 1)
    assert "1 failed, 1 passed" in run.out
