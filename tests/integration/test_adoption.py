"""Suites written for pytest-benchmark profit unedited: ``--adopt``."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.messages import mentions
from tests.support.projects import InlineProject, Project
from tests.support.pytest_versions import PYTEST_9

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.projects import Run

FOREIGN = """
import time
import unittest

import pytest

pytestmark = pytest.mark.precision("high")

@pytest.fixture
def world_size(request):
    return request.param

def test_fn(benchmark):
    assert benchmark(sum, range(1000)) == 499500

@pytest.mark.parametrize("world_size", [1, "two"], indirect=True)
@pytest.mark.parametrize("thing", [[3], object], ids=["list", "class"])
def test_pedantic(benchmark, world_size, thing):
    benchmark.extra_info["mine"] = str(world_size)
    benchmark.group = "slow"
    benchmark.pedantic(time.sleep, args=(0.001,), rounds=5, iterations=2, warmup_rounds=1)

class TestClass:
    @pytest.fixture(autouse=True)
    def _setup(self, benchmark):
        self.benchmark = benchmark

    @pytest.mark.benchmark(group="methods", min_rounds=3, max_time=0.01)
    def test_method(self):
        assert self.benchmark(lambda: 3) == 3

class TestUnit(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def _setup(self, benchmark):
        self.benchmark = benchmark

    def test_unit(self):
        self.benchmark.pedantic(lambda: time.sleep(0.001), rounds=3)

def test_fails_after(benchmark):
    benchmark.pedantic(time.sleep, args=(0.001,))
    assert benchmark.stats["mean"] < 0

def test_raises(benchmark):
    benchmark(lambda: 1 / 0)

@pytest.mark.skip(reason="not today")
def test_skipped(benchmark):
    pass

@pytest.mark.filterwarnings("ignore")
def test_uncalled(benchmark):
    pass

def test_faked_files(benchmark, monkeypatch):
    def nothing(*args, **kwargs):
        raise OSError("no such file")
    monkeypatch.setattr("builtins.open", nothing)
    benchmark.pedantic(time.sleep, args=(0.001,), rounds=3)

@pytest.mark.gpubench(limits={"step_time_s": "7%"}, timeout_s=50)
def test_marked(benchmark):
    benchmark.pedantic(time.sleep, args=(0.001,), rounds=3)

def test_plain():
    pass
"""
MARKED = "test_marked"
MEASURED = {
    "test_fn",
    "test_pedantic[list-1]",
    "test_pedantic[list-two]",
    "test_pedantic[class-1]",
    "test_pedantic[class-two]",
    "test_method",
    "test_unit",
    "test_faked_files",
}

SETTINGS = {
    "test_fn": {"max_time": 0.01},
    "TestClass::test_method": {"max_time": 0.01, "min_rounds": 3},
    "test_pedantic[list-1]": {"rounds": 5, "iterations": 2, "warmup_rounds": 1},
    "TestUnit::test_unit": {"rounds": 3},
}


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project whose tests know nothing of gpubench, but for one mark."""
    project = InlineProject(tmp_path_factory.mktemp("foreign"))
    project.write("test_it.py", FOREIGN)
    return project


@pytest.fixture(scope="module")
def without(foreign: Project) -> Run:
    """A session without the flag."""
    return _run(foreign, "without.json")


@pytest.fixture(scope="module")
def adopted(foreign: Project) -> Run:
    """The same with it."""
    return _run(foreign, "with.json", "--adopt", "--gate.limits.peak_memory_bytes=<=1e9")


def _run(project: Project, file: str, *args: str) -> Run:
    quick = ("--benchmark-max-time=0.01", "-rA", "-p", "no:cacheprovider")
    return project.run(f"--benchmark-json={file}", *quick, *args, quick=False)


def _benchmarks(project: Project, file: str) -> dict[str, Any]:
    saved = json.loads((project.path / file).read_text())
    return {benchmark["fullname"]: benchmark for benchmark in saved["benchmarks"]}


def test_outcomes_are_the_same_with_and_without(without: Run, adopted: Run) -> None:
    """Every test has the outcome and the node id it had; without the flag nothing is recorded."""
    assert without.code == adopted.code == 1

    def outcomes(run: Run) -> set[tuple[str, str]]:
        return {
            *re.findall(r"^(PASSED|FAILED|SKIPPED|ERROR) (?:\[1\] )?(\S+)", run.out, re.MULTILINE)
        }

    assert outcomes(without) == outcomes(adopted)
    assert len(outcomes(without)) == len(MEASURED) + 6
    assert "gpubench" not in without.out.replace("gpubench-", "")


def test_pytest_benchmarks_file_stays_as_it_is(
    foreign: Project, without: Run, adopted: Run
) -> None:
    """The same benchmarks with the same keys, and the same values of all but times."""
    assert without.code == adopted.code
    before, after = _benchmarks(foreign, "without.json"), _benchmarks(foreign, "with.json")
    assert list(before) == list(after)
    for name, saved in before.items():
        assert _unmeasured(saved) == _unmeasured(after[name])
        assert saved["stats"].keys() == after[name]["stats"].keys()
    top = [json.loads((foreign.path / f).read_text()).keys() for f in ("without.json", "with.json")]
    assert top[0] == top[1]


def _unmeasured(saved: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in saved.items() if key != "stats"}


def test_all_that_is_measured_is_recorded(foreign: Project, adopted: Run) -> None:
    """Like ours: a record each, with pytest-benchmark's numbers and ours."""
    outcomes = {name.rpartition("::")[2]: kind for name, kind in adopted.outcomes.items()}
    assert outcomes == {
        **dict.fromkeys(MEASURED | {MARKED}, "measured"),
        "test_fails_after": "failed",
        "test_raises": "failed",
        "test_skipped": "skipped",
        "test_uncalled": "not_measured",
    }
    records = {record["id"]: record for record in adopted.summary["benchmarks"]}
    for name, saved in _benchmarks(foreign, "with.json").items():
        record = records[name]
        if record["outcome"] == "measured":
            assert record["metrics"]["step_time_s"]["value"] == saved["stats"]["median"]
            assert record["metrics"]["step_time_min_s"]["value"] == saved["stats"]["min"]
            assert record["metrics"]["rounds"]["value"] == saved["stats"]["rounds"]
            assert (record["group"] or None, record["extra_info"]) == (
                saved["group"],
                saved["extra_info"],
            )
            assert record["timer"] == "perf_counter"
            assert record["world_size"] == 1
    assert {name: records[f"test_it.py::{name}"]["settings"] for name in SETTINGS} == {
        name: {f"pytest_benchmark.{option}": value for option, value in options.items()}
        for name, options in SETTINGS.items()
    }
    why = {name: records[f"test_it.py::{name}"]["reason"] for name in ("test_uncalled",)}
    assert why == {"test_uncalled": "the test did not call the benchmark fixture itself"}
    params = records["test_it.py::test_pedantic[class-two]"]["params"]
    assert params == {"world_size": "two", "thing": "<type>"}


def test_limits_come_from_mark_and_command_line(adopted: Run) -> None:
    """What the gate judges by is stated as for ours."""
    limits = {record["name"]: record["limits"] for record in adopted.summary["benchmarks"]}
    assert limits[MARKED] == {"step_time_s": "7%", "peak_memory_bytes": "<=1e9"}
    assert limits["test_fn"] == {"peak_memory_bytes": "<=1e9"}


def test_the_journal_has_the_samples(adopted: Run) -> None:
    """In seconds per call, with the iterations of a round; nothing is said of a warm-up."""
    lines = {e["id"]: e for e in adopted.journal if e["event"] == "benchmark"}
    samples = lines["test_it.py::test_pedantic[list-1]"]["samples"]
    assert len(samples["durations_s"]) == 5
    assert 0.001 <= min(samples["durations_s"]) < 0.1
    assert (samples["calls_per_duration"], samples["first_step_s"]) == (2, None)
    saved = json.loads((adopted.directory / "benchmark.json").read_text())
    names = {benchmark["name"] for benchmark in saved["benchmarks"]}
    assert names == MEASURED | {MARKED}


def test_the_terminal_names_both(adopted: Run) -> None:
    """Our table and pytest-benchmark's, and in the header how many are adopted."""
    assert f"gpubench: adopted from pytest-benchmark: {len(MEASURED) + 5}" in adopted.out
    assert mentions(adopted.out, "1 not measured: ", "did not call", "(uncalled)")
    assert "OPS: Operations Per Second" in adopted.out


def test_collecting_imports_nothing_heavy(foreign: Project, tmp_path: Path) -> None:
    """With the flag, too, and the node ids are the tests' own."""
    for name in ("torch", "numpy", "pydantic", "yaml", "sqlalchemy"):
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('{name} was imported')\n")
    run = foreign.run(
        "--adopt", "--collect-only", "-q", env={"PYTHONPATH": str(tmp_path)}, quick=False
    )
    assert run.code == 0, run.out + run.err
    assert "test_it.py::test_pedantic[list-two]" in run.out
    assert "ranks" not in run.out


@pytest.mark.parametrize(
    ("option", "outcome"),
    [("--benchmark-skip", "skipped"), ("--benchmark-disable", "not_measured")],
)
def test_measuring_is_off_where_it_was(foreign: Project, option: str, outcome: str) -> None:
    """Skipped tests are skipped; disabled ones run once, and the record says so."""
    folder = f"off-{outcome}"
    run = foreign.run(
        "--adopt", option, f"--results-dir={folder}", "-k", "test_fn or test_plain", quick=False
    )
    assert run.code == 0, run.out + run.err
    (summary,) = (foreign.path / folder).glob("*/*/summary.json")
    (record,) = json.loads(summary.read_text())["benchmarks"]
    assert (record["name"], record["outcome"]) == ("test_fn", outcome)


def test_they_are_compared_and_gated(foreign: Project, without: Run) -> None:
    """With any file of pytest-benchmark as the baseline: a verdict each, a regression fails."""
    assert without.code == 1
    saved = json.loads((foreign.path / "without.json").read_text())
    saved["machine_info"] = {}
    for benchmark in saved["benchmarks"]:
        factor = 0.01 if benchmark["name"] == "test_pedantic[list-1]" else 100
        stats = benchmark["stats"]
        stats.update({key: stats[key] * factor for key in ("min", "max", "mean", "median")})
        stats["data"] = [duration * factor for duration in stats["data"]]
    (foreign.path / "baseline.json").write_text(json.dumps(saved))
    run = foreign.run(
        "--adopt",
        "--baseline=baseline.json",
        "--gate=threshold",
        "--allow-doubt",
        "--results-dir=gated",
        "-k=list",
        "-v",
        quick=False,
    )
    assert run.code == 1, run.out + run.err
    assert "test_it.py::test_pedantic[list-1] PASSED" in run.out
    assert "test_it.py::test_pedantic::gate[list-1] FAILED" in run.out
    assert "test_it.py::test_pedantic::gate[list-two] PASSED" in run.out


IN_FRONT = """
import copy
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

class Counting(BenchmarkFixture):
    def __init__(self, inner):
        self._inner, self.calls = inner, 0

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def _make_runner(self, *args):
        self.calls += 1
        return super()._make_runner(*args)

@pytest.fixture
def counting(benchmark):
    return Counting(benchmark)

@pytest.fixture
def closure(benchmark):
    return lambda function: benchmark(function)

def part(benchmark, name):
    own = copy.copy(benchmark)
    own.name, own.fullname = f"{benchmark.name}-{name}", f"{benchmark.fullname}-{name}"
    return own

@pytest.mark.filterwarnings("ignore")
def test_copies(benchmark):
    part(benchmark, "a")(lambda: sum(range(9)))
    part(benchmark, "b").pedantic(sum, ([1, 2],), rounds=3)
    part(benchmark, "c").pedantic(sum, ([1, 2],), rounds=3)

def test_a_copy_too(benchmark):
    part(benchmark, "a").pedantic(sum, ([1, 2],), rounds=3)
    benchmark.pedantic(sum, ([1, 2],), rounds=4)

@pytest.mark.filterwarnings("ignore")
def test_subclass(counting):
    counting(lambda: 3)
    assert counting.calls

def test_closure(closure):
    closure(lambda: 3)

class TestReplaced:
    @pytest.fixture
    def benchmark(self, benchmark):
        return Counting(benchmark)

    @pytest.mark.filterwarnings("ignore")
    def test_replaced(self, benchmark):
        benchmark.pedantic(sum, ([1, 2],), rounds=3)
        assert benchmark.calls

class TestTheSame:
    @pytest.fixture
    def benchmark(self, benchmark):
        return benchmark

    def test_the_same(self, benchmark):
        benchmark.pedantic(sum, ([1, 2],), rounds=3)
"""
ITSELF = "the test did not call the benchmark fixture itself"


def test_copies_of_the_fixture_and_others_in_front_of_it_measure_as_ever(project: Project) -> None:
    """Outcomes, ids and pytest-benchmark's file stay; recorded is what the fixture measures."""
    project.write("test_it.py", IN_FRONT)
    for file, options in (("without.json", ()), ("with.json", ("--adopt",))):
        run = _run(project, file, *options)
        assert run.code == 0, run.out + run.err
    before, after = (_benchmarks(project, file) for file in ("without.json", "with.json"))
    assert [*map(_unmeasured, before.values())] == [*map(_unmeasured, after.values())]
    assert len(after) == 3 + 2 + 4
    records = {record["name"]: record for record in run.summary["benchmarks"]}
    assert {name: record["reason"] for name, record in records.items()} == {
        **dict.fromkeys(("test_copies", "test_subclass"), ITSELF),
        **dict.fromkeys(("test_a_copy_too", "test_closure", "test_replaced", "test_the_same"), ""),
    }
    rounds = {n: r["settings"].get("pytest_benchmark.rounds") for n, r in records.items()}
    assert [rounds[f"test_{name}"] for name in ("a_copy_too", "replaced", "the_same")] == [4, 3, 3]


CODSPEED = """
import pytest
from pytest_benchmark.fixture import BenchmarkFixture as Theirs

class Plugin:
    is_codspeed_enabled = True

class BenchmarkFixture:
    __class__ = property(lambda self: Theirs)

    def __call__(self, function, *args):
        return function(*args)

def pytest_addoption(parser):
    parser.addoption("--codspeed", action="store_true")

def pytest_configure(config):
    if config.getoption("--codspeed"):
        config.option.benchmark_disable = True
        config.pluginmanager.register(Plugin(), "codspeed_plugin")

@pytest.hookimpl(trylast=True)
def pytest_sessionstart(session):
    if session.config.getoption("--codspeed"):
        pytest.register_fixture(name="benchmark", func=BenchmarkFixture, node=session)
"""
"""What pytest-codspeed 5 does to pytest-benchmark with its option."""


@PYTEST_9
@pytest.mark.parametrize("option", [[], ["--adopt"]])
def test_codspeed_keeps_its_tests_and_ours_are_refused_in_one_line(
    project: Project, option: list[str]
) -> None:
    """Its fixture stands in front of pytest-benchmark's, so that nothing is there to adopt."""
    project.write("conftest.py", CODSPEED)
    project.write(
        "test_it.py", MIXED.replace(".pedantic(time.sleep, args=(0.001,), rounds=5)", "(sum, [1])")
    )
    theirs = project.run("--codspeed", "-k", "theirs", *option, quick=False)
    assert (theirs.code, "1 passed" in theirs.out) == (0, True), theirs.out + theirs.err
    assert not theirs.directories
    both = project.run("--codspeed", *option)
    assert both.code == 4
    assert "ERROR: --codspeed: gpubench requires pytest-benchmark; remove" in both.out + both.err
    assert "Traceback" not in both.out + both.err


MIXED = """
import os, time

def test_ours(gpubench):
    gpubench(lambda: sum(range(1000)))

def test_theirs(benchmark):
    assert "RANK" not in os.environ
    benchmark.pedantic(time.sleep, args=(0.001,), rounds=5)

def test_ordinary():
    assert "RANK" not in os.environ
"""


def test_in_a_gang_they_run_where_ordinary_tests_do(project: Project) -> None:
    """In pytest's own process, before the ranks start; both kinds are in one run."""
    project.write("test_it.py", MIXED)
    run = project.run("--adopt", "--isolate", "--benchmark-json=all.json", "-v")
    assert run.code == 0, run.out + run.err
    assert run.outcomes == {"test_ours": "measured", "test_theirs": "measured"}
    assert run.out.index("test_theirs PASSED") < run.out.index("test_ours PASSED")
    saved = _benchmarks(project, "all.json")
    assert "gpubench" in saved["test_it.py::test_ours"]
    assert "gpubench" not in saved["test_it.py::test_theirs"]


@pytest.mark.exhaustive
def test_under_torchrun_rank_zeros_are_recorded(project: Project) -> None:
    """Every rank runs them, as it runs ordinary tests."""
    project.write("test_it.py", MIXED.replace('assert "RANK" not in os.environ', "pass"))
    project.write("conftest.py", RAN)
    run = project.run("--adopt", "-k", "not ours", ranks=2, quick=False)
    assert run.code == 0, run.out + run.err
    assert run.outcomes == {"test_theirs": "measured"}
    assert sorted(path.name for path in project.path.glob("ran-*")) == ["ran-0", "ran-1"]


RAN = """
import os
from pathlib import Path

def pytest_runtest_call(item):
    if item.name == "test_theirs":
        Path(f"ran-{os.environ['RANK']}").touch()
"""
