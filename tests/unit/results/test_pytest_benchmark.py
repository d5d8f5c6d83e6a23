"""The contract with pytest-benchmark, kept by the installed version of it in real sessions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median, stdev
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.core import records
from gpubench_plugin.core.records import LaunchSample, Metric, RoundLayout
from gpubench_plugin.results import pytest_benchmark
from tests.support.other_plugins import switched_off

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubench_plugin.core.records import Measurement

pytestmark = pytest.mark.slow


ROOT = Path(records.__file__).parents[2]

CONFTEST = '''
import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from gpubench_plugin.core.records import Measurement, Metric, Samples
from gpubench_plugin.results import pytest_benchmark

MEASUREMENTS, CARRIED = {}, {}


@pytest.fixture
def carrying(request, benchmark):
    """Fake of our fixture: stores given durations."""

    def carry(durations, step=lambda: None, setup=None, teardown=None, per_round=1):
        if pytest_benchmark.measuring_disabled(benchmark):
            return pytest_benchmark.run_once(benchmark, step, setup, teardown)
        samples = Samples(
            timer="cuda_event", durations_s=tuple(durations), calls_per_duration=4,
            durations_per_round=per_round,
            block_s=(1.0,), block_calls=(4,), first_step_s=1.0, warmup_s=(), warmup_calls=0,
        )
        rate = Metric(name="samples_per_s", value=80.5, unit="samples/s", better="higher")
        rounds = Metric(name="rounds", value=1.0, unit="")
        measurement = Measurement(
            id=request.node.nodeid, name=request.node.name, params={"precision": "amp"},
            world_size=2, outcome="measured", samples=samples, flags=("unsteady",),
            metrics={"samples_per_s": rate, "rounds": rounds},
            configuration={
                "precision": {"name": "amp"}, "experiment": {"preset": "tiny"},
                "measure": {"by": "ci"},
            },
        )
        pytest_benchmark.store_result(benchmark, measurement)
        MEASUREMENTS[measurement.id] = measurement
        CARRIED[measurement.id] = benchmark.stats

    return carry


def pytest_addoption(parser):
    parser.addoption("--mute", action="store_true")


def pytest_sessionstart(session):
    if session.config.getoption("--mute"):
        pytest_benchmark.disable_output(session.config)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if report.failed and "benchmark" in item.funcargs:
        pytest_benchmark.mark_failed(item.funcargs["benchmark"])
    return report


def pytest_benchmark_update_machine_info(config, machine_info):
    machine_info["rack"] = "b"
    machine_info["load"] = float("nan")


def pytest_benchmark_update_json(config, benchmarks, output_json):
    pytest_benchmark.add_metrics(output_json, MEASUREMENTS)


def pytest_sessionfinish(session):
    if CARRIED:
        written = pytest_benchmark.benchmark_json(session.config, CARRIED, MEASUREMENTS)
        Path("run.json").write_text(json.dumps(written, allow_nan=False))
'''

TESTS = """
import pytest

@pytest.mark.parametrize("precision", ["amp"])
def test_train(carrying, precision):
    carrying([0.012, 0.010, 0.011, 0.050])

def test_fails_afterwards(carrying):
    carrying([0.001, 0.002])
    raise RuntimeError("boom")

def test_fails_before(carrying):
    raise RuntimeError("boom")

def test_ordinary(benchmark):
    benchmark.pedantic(sum, args=([1, 2],), rounds=3)

def test_plain():
    pass
"""

BARE = """
import sys

class Bare:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("gpubench_plugin"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Bare())
from pytest_benchmark.cli import main
main()
"""


class Project:
    """A project whose conftest carries samples, with ``pytest`` as its users run it."""

    def __init__(self, folder: Path, tests: str = TESTS):
        self.folder = folder
        (folder / "pytest.ini").write_text("[pytest]\n")
        (folder / "conftest.py").write_text(CONFTEST)
        (folder / "test_it.py").write_text(tests)

    def pytest(self, *arguments: str) -> str:
        """What a session says; every warning in it is an error."""
        command = ("-m", "pytest", "-p", "no:gpubench", "-p", "no:cacheprovider", "-W", "error")
        return self._python(*command, *arguments, PYTHONPATH=str(ROOT))

    def compare(self, elsewhere: Path, *names: str) -> str:
        """What ``pytest-benchmark compare`` says in a folder without conftest and package."""
        files = [str(self.folder / name) for name in names]
        return self._python(
            "-c", BARE, "compare", *files, folder=elsewhere, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1"
        )

    def json(self, name: str) -> dict[str, Any]:
        """By the names of their tests, the benchmarks in a file."""
        written = json.loads((self.folder / name).read_text())
        return {benchmark["name"]: benchmark for benchmark in written["benchmarks"]}

    def _python(self, *arguments: str, folder: Path | None = None, **environ: str) -> str:
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "PYTHON"))}
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=folder or self.folder,
            env={**inherited, "PYTEST_ADDOPTS": switched_off(), "COLUMNS": "250", **environ},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.stdout


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Project, str]:
    """A project after a session that saved its benchmarks, and the session's output."""
    project = Project(tmp_path_factory.mktemp("saved"))
    return project, project.pytest("--benchmark-json=first.json", "--benchmark-autosave")


def test_durations_and_facts_are_saved(saved: tuple[Project, str]) -> None:
    """The statistics are those of our durations; ``extra_info`` is the test's.

    Metrics stand among ``stats``; pytest-benchmark's own names keep their values.
    """
    benchmark = saved[0].json("first.json")["test_train[amp]"]
    stats = benchmark["stats"]
    assert stats["data"] == [0.012, 0.010, 0.011, 0.050]
    found = [stats[name] for name in ("min", "max", "rounds", "iterations", "median")]
    assert found == [0.010, 0.050, 4, 4, median(stats["data"])]
    assert (stats["samples_per_s"], benchmark["fullname"]) == (80.5, "test_it.py::test_train[amp]")
    assert benchmark["extra_info"] == {}
    assert benchmark["options"] == {"by": "ci", "timer": "cuda_event"}
    assert benchmark["params"] == {"precision": "amp"}


def test_failure_before_measuring_is_no_second_problem(saved: tuple[Project, str]) -> None:
    """A test that failed before it measured is a failure and neither a warning nor an error."""
    assert "2 failed, 3 passed" in saved[1]
    assert "was not used" not in saved[1]


def test_table_shows_the_carried_benchmark(saved: tuple[Project, str]) -> None:
    """pytest-benchmark's table shows our durations beside those of ordinary benchmarks."""
    project, output = saved
    (row,) = [line for line in output.splitlines() if line.startswith("test_train[amp]")]
    assert "50,000.0000" in row
    chosen = project.pytest("--benchmark-columns=min,iterations", "-k", "train")
    (row,) = [line for line in chosen.splitlines() if line.startswith("test_train[amp]")]
    assert row.split() == ["test_train[amp]", "10.0000", "4"]


def test_run_directorys_file_has_our_benchmarks_only(saved: tuple[Project, str]) -> None:
    """The run directory's file equals pytest-benchmark's, but for benchmarks of others and NaN."""
    project, _ = saved
    ours = json.loads((project.folder / "run.json").read_text())
    theirs = json.loads((project.folder / "first.json").read_text())
    assert ours["benchmarks"] == [b for b in theirs["benchmarks"] if "test_train" in b["name"]]
    assert ours["commit_info"] == theirs["commit_info"]
    assert (ours["machine_info"]["rack"], ours["machine_info"]["load"]) == ("b", None)


def test_files_are_compared_without_our_package(saved: tuple[Project, str], tmp_path: Path) -> None:
    """``pytest-benchmark compare`` reads both kinds of our files, knowing nothing of us."""
    output = saved[0].compare(tmp_path, "first.json", "run.json")
    rows = [line.split()[1] for line in output.splitlines() if line.startswith("test_train[amp]")]
    assert sorted(row.rpartition("/")[2] for row in rows) == ["first)", "run)"]


@pytest.mark.parametrize("fails", [False, True])
def test_disabled_measuring_runs_the_step_once(tmp_path: Path, fails: bool) -> None:
    """Under ``--benchmark-disable`` set-up, step and teardown run once, and nothing is saved."""
    project = Project(
        tmp_path,
        "def test_it(carrying):\n"
        f"    carrying([1.0], step=lambda: print('step') or 1 / {1 - fails},\n"
        "             setup=lambda: print('setup'), teardown=lambda: print('teardown'))\n",
    )
    output = project.pytest("--benchmark-disable", "--benchmark-json=a.json", "-s")
    assert ("1 failed" if fails else "1 passed") in output
    words = [word for word in output.split() if word in {"setup", "step", "teardown"}]
    assert words == ["setup", "step", "teardown"]
    assert not (tmp_path / "run.json").exists()


def test_profile_is_not_the_carriers(saved: tuple[Project, str]) -> None:
    """``--benchmark-cprofile`` shows no profile of the no-op that carries the samples."""
    output = saved[0].pytest("--benchmark-cprofile=tottime", "-k", "train")
    assert "1 passed" in output
    assert "_no_op" not in output


def test_muted_rank_saves_and_shows_nothing(tmp_path: Path) -> None:
    """A muted session measures, and leaves writing and judging to rank zero."""
    project = Project(tmp_path)
    output = project.pytest(
        "--mute", "--benchmark-json=a.json", "--benchmark-autosave", "-k", "train"
    )
    assert "1 passed" in output
    assert "benchmark: 1 tests" not in output
    assert list(tmp_path.rglob("*a.json")) == []
    assert list(tmp_path.rglob("0001_*.json")) == []


def test_many_durations_are_thinned(tmp_path: Path) -> None:
    """Too many durations are thinned evenly by rank: extremes, median and order of time remain."""
    project = Project(
        tmp_path,
        "def test_it(carrying):\n    carrying([1 + (i * 7919) % 10_001 for i in range(10_001)])\n",
    )
    project.pytest("--benchmark-json=a.json")
    stats = project.json("a.json")["test_it"]["stats"]
    assert (stats["min"], stats["median"], stats["max"]) == (1, 5001, 10_001)
    assert (stats["rounds"], len(stats["data"])) == (10_001, 1000)
    assert stats["stddev"] == pytest.approx(stdev(range(1, 10_002)))
    assert (stats["q1"], stats["q3"]) == pytest.approx((2501, 7501), rel=0.01)
    when = {1 + (i * 7919) % 10_001: i for i in range(10_001)}
    times = [when[duration] for duration in stats["data"]]
    assert times == sorted(times)


STALLS = """
def test_it(carrying):
    calls = [0.001] * 300
    calls[1::30] = [{stall}] * 10
    carrying(calls, per_round=3)
"""


def test_a_stall_that_no_round_shows_is_in_the_statistics_and_fails_a_comparison(
    tmp_path: Path,
) -> None:
    """Grouped calls: mean, maximum and deviation are of calls, so that options on them see it."""
    project = Project(tmp_path, STALLS.format(stall=0.001))
    project.pytest("--benchmark-json=even.json", "--benchmark-autosave")
    (tmp_path / "test_it.py").write_text(STALLS.format(stall=0.1))
    output = {
        name: project.pytest(
            "--benchmark-compare", f"--benchmark-compare-fail={name}:50%", "--benchmark-json=a.json"
        )
        for name in ("median", "min", "mean", "max", "stddev")
    }
    regressed = {name: "Performance has regressed" in text for name, text in output.items()}
    assert regressed == {"median": False, "min": False, "mean": True, "max": True, "stddev": True}
    stats = project.json("a.json")["test_it"]["stats"]
    calls = [0.001] * 290 + [0.1] * 10
    found = [stats[name] for name in ("min", "max", "mean", "stddev", "ops", "rounds")]
    assert found == pytest.approx(
        [0.001, 0.1, fmean(calls), stdev(calls), 1 / fmean(calls), 300], rel=1e-9
    )
    assert stats["iterations"] == 4


def test_statistics_of_launches_and_of_a_sample_are_those_of_the_metrics(
    measured: Callable[..., Measurement],
) -> None:
    """What is no longer there call by call still has its extremes and its mean."""
    names = ("step_time_s", "step_time_min_s", "step_time_max_s", "step_time_mean_s")
    metrics = {
        name: Metric(name=name, value=value, unit="s")
        for name, value in zip(names, (2.0, 0.5, 70.0, 3.5), strict=True)
    }
    samples = measured().samples
    assert samples is not None
    many = RoundLayout(durations=10_000, calls_per_duration=7, durations_per_round=2)
    sampled = replace(
        samples,
        durations_s=(2.0,) * 5000,
        calls_per_duration=14,
        sample_s=(0.5, *[2.0] * 9998, 70.0),
        reduced_from=many,
    )
    launch = LaunchSample(samples=samples, metrics={}, flags=())
    for made, rounds, iterations in (
        (measured(metrics=metrics, samples=sampled), 10_000, 7),
        (measured(metrics=metrics, per_launch=(launch, launch)), 6, 1),
    ):
        assert made.samples is not None
        stats, at_a_time = pytest_benchmark._stats(made, made.samples)
        assert (stats.median, stats.min, stats.max, stats.mean) == (2.0, 0.5, 70.0, 3.5)
        assert (stats.ops, stats.total) == (1 / 3.5, 3.5 * rounds)
        assert (stats.rounds, at_a_time) == (rounds, iterations)


HANDED_OVER = """
import json
from pathlib import Path
from gpubench_plugin.results import pytest_benchmark

def pytest_sessionfinish(session):
    found = session.config._benchmarksession.benchmarks
    before = [result.as_dict() for result in found if not result.has_error]
    results = json.loads(json.dumps(pytest_benchmark.taken_results(session.config)))
    left = len(found)
    after = [pytest_benchmark.add_result(session.config, result).as_dict() for result in results]
    Path("told.json").write_text(json.dumps([before, left, after]))
"""


@pytest.mark.parametrize("notes", [[], [3], None])
def test_notes_that_are_no_json_are_one_line_of_the_record(notes: Any) -> None:
    """What contains itself, and what is no dictionary: the record is written and read."""
    if notes == []:
        notes = {"self": notes}
        notes["self"].append(notes)
    carried = pytest_benchmark.labels(SimpleNamespace(group=3, extra_info=notes))
    assert carried["group"] == "3"
    assert [*carried["extra_info"]] == ["not_json"]
    json.dumps(carried)


def test_results_of_another_process_are_as_good_as_own_ones(tmp_path: Path) -> None:
    """What a rank took out of its session, without failed tests, the controller adds to its own."""
    tests = "@pytest.mark.parametrize('n', [3])\n@pytest.mark.benchmark(group='sums')\n"
    tests += (
        "def test_n(benchmark, n):\n    benchmark.extra_info['n'] = n\n    benchmark(sum, [n])\n"
    )
    project = Project(tmp_path, TESTS + tests)
    (tmp_path / "handed_over.py").write_text(HANDED_OVER)
    project.pytest("-p", "handed_over", "--benchmark-json=a.json", "--benchmark-max-time=0.01")
    before, left, after = json.loads((tmp_path / "told.json").read_text())
    assert (left, after) == (0, before)
    assert [result["name"] for result in after] == ["test_train[amp]", "test_ordinary", "test_n[3]"]
    written = project.json("a.json")["test_n[3]"]
    assert (written["group"], written["params"], written["extra_info"]) == (
        "sums",
        {"n": 3},
        {"n": 3},
    )
