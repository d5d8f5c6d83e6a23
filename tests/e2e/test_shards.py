"""Benchmarks that run in shards end as those of a plain session, and are one run."""

from __future__ import annotations

import json
import os
import re
import signal
import xml.etree.ElementTree as ET
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from gpubench_plugin.compare.comparability import Comparability
from gpubench_plugin.core.errors import ResultsError
from gpubench_plugin.results.reader import RunReader
from gpubench_plugin.results.run_directory import RunDirectory
from gpubench_plugin.session.shards.shard import Request
from tests.support.exhaustive import shown
from tests.support.other_plugins import switched_off
from tests.support.processes import processes_with, wait_until
from tests.support.projects import QUICK, InlineProject, Project
from tests.support.sessions import written_by
from tests.support.toy_engine.toy_engine import Fault, Plan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.projects import Run

TOY: Final = Path(__file__).parents[1] / "support/toy_engine"
INSTALLED: Final = {"PYTHONPATH": f"{TOY}:{os.environ.get('PYTHONPATH', '')}"}
"""Variables of a process in which the toy engine is installed."""

BEGINNING = """
import os, signal, sys, time, unittest, warnings
import pytest

beside = pytest.mark.gpubench(exclusive=False)

def step():
    time.sleep(0.001)
"""
SUITE = """
IDS = ["a b", "x/y", "ü-é", "[br]", "a::b", "100%", "$HOME", "-k", "a\\nb", "'q\\"", ""]

@beside
@pytest.mark.parametrize("n", range(len(IDS)), ids=IDS)
def test_odd(gpubench, n):
    gpubench(step)

@beside
def test_failed(gpubench, capsys):
    print("what capsys has")
    print("what it has of stderr", file=sys.stderr)
    gpubench(step)
    assert 1 == 2, capsys

@beside
@pytest.mark.xfail
def test_xfailed(gpubench):
    gpubench(step)
    assert 0

@beside
@pytest.mark.xfail
def test_xpassed(gpubench):
    gpubench(step)

@beside
@pytest.mark.xfail(strict=True)
def test_strict(gpubench):
    gpubench(step)

@beside
def test_skipped(gpubench):
    pytest.skip("not today")

@beside
@pytest.mark.skip(reason="never")
def test_marked(gpubench): ...

@pytest.fixture
def broken():
    raise ValueError("no set-up")

@pytest.fixture
def untidy():
    yield
    raise ValueError("no teardown")

@beside
def test_setup(gpubench, broken): ...

@beside
def test_teardown(gpubench, untidy):
    gpubench(step)

@beside
def test_subtests(gpubench, subtests):
    for n in range(3):
        with subtests.test(str(n)):
            assert n != 1
    gpubench(step)

@beside
def test_warns(gpubench, record_property):
    warnings.warn("be careful")
    record_property("color", "blue")
    gpubench(step)

@beside
def test_forgot(gpubench): ...

@beside
def test_wrong(gpubench):
    gpubench(step, samples=-1)

class TestClass:
    @beside
    def test_method(self, gpubench):
        gpubench(step)

def test_plain(record_property):
    record_property("number", 1)

def test_of_pytest_benchmark(benchmark):
    benchmark.pedantic(step, rounds=3)

def test_plain_failed():
    print("what was printed")
    assert 0

class Case(unittest.TestCase):
    def test_case(self):
        warnings.warn("in the last test of a shard")
"""
SHORT = """
@beside
@pytest.mark.parametrize("n", range(4))
def test_step(gpubench, n):
    gpubench(step)
    assert n != 1
"""
REPORTED = ("--junitxml=junit.xml", "-o", "junit_family=xunit1", "--benchmark-json=saved.json")


@pytest.fixture(scope="module", autouse=True)
def _toy() -> Iterator[None]:
    """The toy engine is installed, for sessions in this process."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(TOY)
        yield


@pytest.fixture
def sharded(project: Project) -> Project:
    """A project with four short benchmarks, of which one fails."""
    project.write("test_it.py", BEGINNING + SHORT)
    return project


def run(project: Project, *args: str, on: str = "toy:2", plan: Plan | None = None) -> Run:
    """Run a session with its own locks, so that those of others are not waited for."""
    env = {} if plan is None else plan.write(project.path / "plan.json")
    return project.run(f"--on={on}", *args, env={"TMPDIR": str(project.path.parent), **env})


@dataclass(frozen=True)
class Left:
    """What one session has left."""

    run: Run
    junit: dict[tuple[str, str], list[Any]]
    saved: dict[str, Any]
    lastfailed: set[str]

    @classmethod
    def by(cls, project: Project, *args: str) -> Left:
        env = {"TMPDIR": str(project.path.parent)}
        ended = project.run("-rA", *REPORTED, *args, env=env)
        cache = json.loads((project.path / ".pytest_cache/v/cache/lastfailed").read_text())
        saved = json.loads((project.path / "saved.json").read_text())
        junit = ET.parse(project.path / "junit.xml")
        cases: dict[tuple[str, str], list[Any]] = {}
        for case in junit.iter("testcase"):
            cases.setdefault((case.attrib["classname"], case.attrib["name"]), []).append(
                [
                    (e.tag, anonymous(e.get("message")), [p.attrib for p in e], anonymous(e.text))
                    for e in case
                ]
            )
        return cls(ended, cases, saved, set(cache))

    @property
    def summary_lines(self) -> list[str]:
        """Lines of pytest's short summary."""
        words = ("PASSED", "FAILED", "ERROR", "SKIPPED", "XFAIL", "XPASS", "SUBFAILED")
        lines = self.run.out.partition("short test summary info")[2].splitlines()
        return sorted(line for line in lines if line.startswith(words))


def anonymous(text: str | None) -> str:
    """The `text` without addresses of objects and the folder of the project."""
    return re.sub(r"0x[0-9a-f]+|/\S+/project", "", text or "")


def structure(value: Any) -> Any:
    """Keys and types of a JSON value; intervals, which doubtful numbers lack, are left out."""
    if isinstance(value, dict):
        return {k: structure(v) for k, v in value.items() if "_ci_" not in k}
    if isinstance(value, list):
        return list
    return type(value)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Left, Left]:
    """What a plain session and one on two slots leave of the same suite."""
    found = []
    for on in ((), ("--on=local:2",)):
        path = tmp_path_factory.mktemp("pair") / "project"
        path.mkdir()
        project = InlineProject(path)
        project.write("test_it.py", BEGINNING + SUITE)
        found.append(Left.by(project, *on))
    return found[0], found[1]


def test_outcomes_are_those_of_a_plain_session(pair: tuple[Left, Left]) -> None:
    """To pytest, to its other plugins, and in the run: every outcome, id, text and exit code."""
    plain, sharded = pair
    assert sharded.run.code == plain.run.code == 1, sharded.run.out + sharded.run.err
    assert sharded.summary_lines == plain.summary_lines
    assert sharded.junit == plain.junit
    assert sharded.lastfailed == plain.lastfailed
    assert sharded.run.outcomes == plain.run.outcomes
    closing = [re.sub(r" in .*", "", left.run.out.splitlines()[-1]) for left in pair]
    assert closing[0] == closing[1]
    assert "be careful" in sharded.run.out
    assert "Captured stderr call" in sharded.run.out


def test_shards_are_one_run(pair: tuple[Left, Left]) -> None:
    """One directory, one line for each benchmark in its journal, and where it was measured."""
    plain, sharded = pair
    ended = [line for line in sharded.run.journal if line["event"] == "benchmark"]
    assert sorted(line["id"] for line in ended) == sorted(
        line["id"] for line in plain.run.journal if line["event"] == "benchmark"
    )
    assert {line["shard"] for line in ended} >= {"1", "2"}
    assert {line["host"] for line in ended} == {os.uname().nodename}
    assert sharded.run.summary["status"] == plain.run.summary["status"]
    ids = [benchmark["id"] for benchmark in sharded.run.summary["benchmarks"]]
    assert ids == [benchmark["id"] for benchmark in plain.run.summary["benchmarks"]]
    assert not (sharded.run.directory / "shards").exists()
    names = [{file.name for file in left.run.directory.iterdir()} for left in pair]
    assert names[0] == names[1]


def test_saved_json_has_the_structure_of_a_plain_one(pair: tuple[Left, Left]) -> None:
    """For ``pytest-benchmark compare``; but the facts that a slot changes are each benchmark's."""
    plain, sharded = (
        {benchmark["name"]: benchmark for benchmark in left.saved["benchmarks"]} for left in pair
    )
    assert sharded.keys() == plain.keys()
    for name, benchmark in sharded.items():
        if "gpubench" in benchmark:
            assert benchmark["gpubench"].pop("machine").keys() <= {"cpu.usable_cores"}
            plain[name]["gpubench"].pop("machine")
        assert structure(benchmark) == structure(plain[name])
    heads = [{k: v for k, v in left.saved.items() if k != "benchmarks"} for left in pair]
    assert structure(heads[1]) == structure(heads[0])


@pytest.mark.parametrize("option", shown("-x", exhaustively=["--maxfail=1"]))
def test_session_ends_with_the_first_failure(sharded: Project, option: str) -> None:
    """The others are not measured, and no shard goes on."""
    ended = run(sharded, option)
    assert ended.code == 1, ended.out + ended.err
    assert ended.outcomes["test_step[1]"] == "failed"
    assert "stopping after 1 failures" in ended.out
    assert ended.summary["status"] == "failed"
    assert not processes_with(f"TMPDIR={sharded.path.parent}")[1:]


JOURNAL_GOES = """
import os
from pathlib import Path

def pytest_runtest_logreport(report):
    if "GPUBENCH_SHARD" not in os.environ:
        for path in Path("results").glob("*/*/metrics.jsonl"):
            path.unlink()
"""


def test_session_ends_where_its_results_cannot_be_written(sharded: Project) -> None:
    """As a plain one does: the others are not measured."""
    sharded.write("conftest.py", JOURNAL_GOES)
    ended = run(sharded, "--deselect=test_it.py::test_step[1]", on="toy:1")
    assert ended.code == 1, ended.out + ended.err
    assert re.search(r"^! cannot write results: .*metrics\.jsonl: No such file", ended.out, re.M)
    assert "1 measured, 2 not measured" in ended.out
    assert not processes_with(f"TMPDIR={sharded.path.parent}")[1:]


def test_shard_ends_where_its_reports_cannot_be_written(project: Project) -> None:
    """In one line; what ran there begins again, and has crashed after some tries."""
    reports_go = """
        import os, pathlib
        def pytest_runtest_teardown(item):
            if item.name == "test_step[0]":
                pathlib.Path(os.environ["GPUBENCH_SHARD"], "reports.jsonl").unlink()
    """
    project.write("conftest.py", reports_go)
    project.write("test_it.py", BEGINNING + TROUBLED)
    ended = run(project, on="toy:1")
    assert ended.code == 1, ended.out + ended.err
    crashed = {"test_step[0]": "crashed"}
    assert ended.outcomes == {f"test_step[{n}]": "measured" for n in range(4)} | crashed
    assert "test_step[0] - it was interrupted 3 times" in ended.out
    assert re.search(r"^! cannot write results: .*reports\.jsonl", ended.out, re.M), ended.out
    assert "INTERNALERROR" not in ended.out


def test_session_ends_where_a_shard_cannot_be_written(
    sharded: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line, without a traceback."""

    def write(request: Request, folder: Path) -> None:
        raise ResultsError("no space left")

    monkeypatch.setattr(Request, "write", write)
    ended = run(sharded)
    assert ended.code == 1, ended.out + ended.err
    assert "! cannot write results: no space left !" in ended.out
    assert "INTERNALERROR" not in ended.out + ended.err


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (("--lf",), {"test_step[1]"}),
        pytest.param(
            ("--sw",),
            {"test_step[1]", "test_step[2]", "test_step[3]"},
            marks=pytest.mark.exhaustive,
        ),
        pytest.param(
            ("--ff", "--nf"), {f"test_step[{n}]" for n in range(4)}, marks=pytest.mark.exhaustive
        ),
    ],
)
def test_cache_is_that_of_the_front(
    sharded: Project, options: tuple[str, ...], names: set[str]
) -> None:
    """What failed last is known here, and in no shard."""
    assert run(sharded, "-k", "not 3", *options).code in {1, 2}
    again = run(sharded, *options)
    assert again.code == (2 if "--sw" in options else 1), again.out + again.err
    assert {
        b["name"]
        for b in json.loads((again.directories[-1] / "summary.json").read_text())["benchmarks"]
    } == names


def test_test_ends_the_session(project: Project) -> None:
    """``pytest.exit`` means what it means, with its reason and exit code, and once."""
    project.write(
        "test_it.py",
        BEGINNING
        + """
@beside
def test_last(gpubench):
    if not os.path.exists("resumed"):
        pytest.exit("enough", returncode=7)
    gpubench(step)

@beside
def test_never(gpubench):
    gpubench(step)
""",
    )
    ended = run(project, on="toy:1")
    assert ended.code == 7, ended.out + ended.err
    assert "enough" in ended.out
    assert ended.outcomes == {"test_last": "not_measured", "test_never": "not_measured"}
    assert ended.summary["status"] == "failed"
    project.write("resumed", "")
    resumed = run(project, "--resume=last", on="toy:1")
    assert resumed.code == 0, resumed.out + resumed.err
    assert resumed.outcomes == {"test_last": "measured", "test_never": "measured"}


def test_failed_tests_are_run_again(project: Project) -> None:
    """By pytest-rerunfailures, in the shard; each try is reported, the last is recorded."""
    project.write(
        "test_it.py",
        BEGINNING
        + """
tries = []

@beside
def test_flaky(gpubench):
    gpubench(step)
    tries.append(1)
    assert len(tries) == 3

@beside
def test_steady(gpubench):
    gpubench(step)
""",
    )
    ended = project.run(
        *("--on=toy:1", "--reruns=3", "-rR"),
        env={
            "PYTHONPATH": f"{TOY}:{os.environ.get('PYTHONPATH', '')}",
            "PYTEST_ADDOPTS": switched_off("rerunfailures"),
        },
    )
    assert ended.code == 0, ended.out + ended.err
    assert "2 passed, 2 rerun" in ended.out
    assert ended.outcomes == {"test_flaky": "measured", "test_steady": "measured"}


def test_seed_and_files_of_other_plugins(project: Project) -> None:
    """One seed in all shards, and a log of the front; none removes what allure has of others."""
    project.write(
        "test_it.py",
        BEGINNING
        + """
import logging

@beside
@pytest.mark.parametrize("n", range(4))
def test_step(gpubench, record_property, request, n):
    logging.getLogger("mine").warning("which makes other lines of a shard's log")
    record_property("seed", request.config.getoption("randomly_seed"))
    gpubench(step)
""",
    )
    ended = project.run(
        *("--on=toy:1", "--engine.shards=2", "--junitxml=unit.xml"),
        *("--alluredir=allure", "--clean-alluredir", "--log-file=log.txt", "--log-file-level=INFO"),
        env={**INSTALLED, "PYTEST_ADDOPTS": switched_off("randomly", "allure_pytest")},
    )
    assert ended.code == 0, ended.out + ended.err
    seeds = re.findall('"seed" value="(.*?)"', (project.path / "unit.xml").read_text())
    assert seeds == re.findall(r"--randomly-seed=(\d+)", ended.out) * 4
    assert len([*(project.path / "allure").glob("*-result.json")]) == 4
    log = (project.path / "log.txt").read_text().splitlines()
    assert [line[:4] for line in log] == ["INFO"] * 4, log


def test_gangs_of_several_sizes(project: Project) -> None:
    """Each rank collects the tests of all sizes, as its shard does."""
    project.write(
        "test_it.py",
        BEGINNING
        + """
@pytest.mark.gpubench(ranks="any")
def test_step(gpubench):
    gpubench(step)
""",
    )
    ended = project.run("--on=toy:1", "--world-size=1,2", env=INSTALLED)
    assert ended.code == 0, ended.out + ended.err
    assert ended.outcomes == {"test_step": "measured", "test_step[ranks2]": "measured"}


def test_results_with_v(sharded: Project) -> None:
    """A line for each test with its number, as without shards; none of a shard's own."""
    ended = run(sharded, "-v", "test_it.py::test_step[0]", "test_it.py::test_step[2]")
    assert ended.code == 0, ended.out + ended.err
    lines = re.findall(r"^test_it.py::test_step\[(\d)\] PASSED .*ms", ended.out, re.MULTILINE)
    assert sorted(lines) == ["0", "2"]
    assert ended.out.count("test session starts") == 1
    assert {b["name"] for b in ended.summary["benchmarks"]} == {"test_step[0]", "test_step[2]"}


def test_adopted_tests(project: Project) -> None:
    """Tests for pytest-benchmark run alone in a shard, and are saved as without."""
    project.write("test_it.py", "def test_old(benchmark): benchmark(lambda: sum(range(100)))")
    options = ("--adopt", "--benchmark-json=saved.json", "--benchmark-max-time=0.01")
    ended = run(project, *options, on="local:2")
    assert ended.code == 0, ended.out + ended.err
    saved = json.loads((project.path / "saved.json").read_text())
    (benchmark,) = saved["benchmarks"]
    assert benchmark["stats"]["rounds"] > 1
    (record,) = ended.summary["benchmarks"]
    assert (record["name"], record["outcome"], record["shard"]) == ("test_old", "measured", "1")


def test_gate_judges_in_the_front(project: Project) -> None:
    """Limits and a baseline fail the tests that the gate adds, whose alarms are measured again."""
    project.write(
        "test_it.py",
        BEGINNING
        + """
TIMES = ("step_time_s", "step_time_min_s", "step_time_mean_s")
WIDE = dict.fromkeys((*TIMES, "process_peak_memory_bytes"), "90%")

@pytest.mark.gpubench(exclusive=False, limits=WIDE)
def test_same(gpubench):
    gpubench(step)

@pytest.mark.gpubench(exclusive=False, limits={"step_time_s": "<=1e-6"})
def test_limited(gpubench):
    gpubench(step)
""",
    )
    first = run(project, "-k", "same")
    assert first.code == 0, first.out + first.err
    judged = run(
        project, f"--baseline={first.directory.name}", "--gate=threshold", "--allow-doubt", "-v"
    )
    assert judged.code == 1, judged.out + judged.err
    assert re.search(r"test_limited::gate FAILED", judged.out)
    assert not re.search(r"test_limited FAILED", judged.out)
    assert re.search(r"test_same::gate (PASSED|SKIPPED)", judged.out)
    assert len(judged.directories) == 2
    assert not [*judged.directories[-1].glob("relaunch-*")]


def test_nodes_that_differ_are_incomparable(
    sharded: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fact is named, also one that only the front has; equal nodes form one series."""
    monkeypatch.setenv("MKL_CBWR", "AVX2")
    plain = {"MKL_CBWR": ""}
    nodes = Plan(unequal={"node-1": plain, "node-2": {**plain, "MKL_DYNAMIC": "FALSE"}})
    measured = partial(run, sharded, "-k", "not 1")
    base, head = (measured(on=on, plan=nodes).directories[-1] for on in ("toy:1", "toy:2"))
    here = measured(on="toy:1", plan=Plan()).directories[-1]
    node_of = {
        line["benchmark"]: line["node"]
        for line in map(json.loads, (head / "metrics.jsonl").read_text().splitlines())
        if line["event"] == "phase"
    }
    name = "environment_variables.MKL_"
    told = {"node-1": "", "node-2": f"{name}DYNAMIC absent in base, FALSE in head"}
    assert {*node_of.values()} == {*told}
    assert differences(base, head) == {i: told[node] for i, node in node_of.items()}
    assert {*differences(base, here).values()} == {f"{name}CBWR absent in base, AVX2 in head"}


def differences(base: Path, head: Path) -> dict[str, str]:
    """What makes benchmarks of two runs incomparable; empty where nothing does."""
    runs = [RunReader(RunDirectory(path=path)).run() for path in (base, head)]
    judge = Comparability(exempt=(), allow=False).differences
    return {
        i: judge(runs[0], runs[0].results[i], runs[1], result)
        for i, result in runs[1].results.items()
    }


REFUSED = {
    "unknown": (("--on=locale",), "--on: unknown engine 'locale' (did you mean 'local'?)"),
    "target": (("--on=local:none",), "--on=local: 'none' is not a positive integer"),
    "many": (("--on=local:9999",), "--on=local:9999: this host has "),
    "pdb": (("--on=toy", "--pdb"), "--pdb"),
    "workers": (("--on=toy", "-n2"), "--on: the shards are the workers; run without -n"),
    "key": (("--on=toy", "--engine.retries=-1"), "engine.retries"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_run_is_refused(sharded: Project, case: str) -> None:
    """In one line with exit code 4, before anything is measured."""
    options, said = REFUSED[case]
    ended = sharded.run(*options)
    assert ended.code == 4, ended.out + ended.err
    (line,) = [line for line in ended.err.splitlines() if line.startswith("ERROR")]
    assert said in line
    assert "Traceback" not in ended.out + ended.err
    assert not ended.directories


@pytest.mark.exhaustive
def test_torchrun_is_refused(sharded: Project) -> None:
    """Its ranks are started already; so say all of them."""
    ended = sharded.run("--on=toy", ranks=2, env=INSTALLED)
    assert ended.code != 0
    assert "--on: torchrun has already started 2 ranks" in ended.out + ended.err
    assert not ended.directories


OTHER_NODES = {
    "code": (Plan(before="echo 'x = 1' >> helper.py"), "has other code in .*helper.py"),
    "version": (Plan(environ={"PYTHONPATH": "other"}), "has gpubench 0.0.1, this session .*"),
    "test": (Plan(environ={"LACKS": "yes"}), r"does not collect test_it.py::test_step\[3\]"),
    "conftest": (Plan(environ={"BREAKS": "yes"}), "ValueError: not on this node"),
}


@pytest.mark.parametrize("case", OTHER_NODES)
def test_other_node_is_refused(sharded: Project, case: str) -> None:
    """Before its first benchmark, with what is other there."""
    plan, said = OTHER_NODES[case]
    if "PYTHONPATH" in plan.environ:
        info = "Metadata-Version: 2.1\nName: pytest-gpubench\nVersion: 0.0.1\n"
        sharded.write("other/pytest_gpubench-0.0.1.dist-info/METADATA", info)
        path = f"{sharded.path}/other:{INSTALLED['PYTHONPATH']}"
        plan = Plan(environ={"PYTHONPATH": path})
    sharded.write("helper.py", "")
    sharded.write(
        "conftest.py",
        """
        import os, helper
        if "BREAKS" in os.environ:
            raise ValueError("not on this node")
        def pytest_collection_modifyitems(items):
            if "LACKS" in os.environ:
                items.pop()
        """,
    )
    ended = run(sharded, on="toy:1", plan=plan)
    assert ended.code == 4, ended.out + ended.err
    assert re.search(said, ended.err), ended.err
    assert set(ended.outcomes.values()) == {"not_measured"}
    assert "INTERNALERROR" not in ended.out + ended.err


TROUBLED = """
@beside
@pytest.mark.parametrize("n", range(4))
def test_step(gpubench, n):
    with open("begun", "a") as file:
        print(n, file=file)
    time.sleep(0.4 if os.environ.get("SLOW") else 0)
    gpubench(step)
"""


@pytest.mark.own_process
@pytest.mark.parametrize(
    "way",
    shown(
        ("toy:2", signal.SIGKILL),
        ("local:2", signal.SIGINT),
        ("toy-batch:2", signal.SIGINT),
        exhaustively=[("toy:2", signal.SIGINT), ("local:2", signal.SIGKILL)],
    ),
)
def test_resumed_run_is_complete(project: Project, way: tuple[str, signal.Signals]) -> None:
    """After the front was killed, or interrupted: no shard outlives it, nothing is run twice.

    That a session ended is no misfortune of its shards, of which none is allowed here.
    """
    on, number = way
    project.write("test_it.py", BEGINNING + TROUBLED)
    own = {**INSTALLED, "TMPDIR": str(project.path.parent)}
    front = project.start(f"--on={on}", *QUICK, env={"SLOW": "yes", **own})
    begun = project.path / "begun"
    wait_until(lambda: begun.exists() and begun.read_text().count("\n") >= 3)
    front.send_signal(number)
    written_by(front, 30)
    assert front.returncode == (-9 if number == signal.SIGKILL else 2)
    wait_until(lambda: not processes_with(f"TMPDIR={project.path.parent}"), within_s=15)
    before = {e["id"] for e in journal_of(project) if e["event"] == "benchmark"}

    (directory,) = project.path.glob("results/*/*")
    options = (f"--resume={directory.name}", "--engine.retries=0")
    ended = project.run(f"--on={on}", *options, env=own)

    assert ended.code == 0, ended.out + ended.err
    assert ended.outcomes == {f"test_step[{n}]": "measured" for n in range(4)}
    ids = [line["id"] for line in ended.journal if line["event"] == "benchmark"]
    assert sorted(ids) == sorted({*ids})
    assert before <= {*ids}
    assert not [*directory.glob("shards/*/request.json")]


@pytest.mark.own_process
def test_jobs_that_go_on_are_collected(project: Project) -> None:
    """After the front's terminal was closed; what has finished meanwhile is not run again."""
    project.write("test_it.py", BEGINNING + TROUBLED)
    own = {**INSTALLED, "TMPDIR": str(project.path.parent)}
    front = project.start("--on=toy-batch:2", *QUICK, env={"SLOW": "yes", **own})
    begun = project.path / "begun"
    wait_until(lambda: begun.exists() and begun.read_text().count("\n") >= 2)
    front.send_signal(signal.SIGHUP)
    out, err = written_by(front, 30)
    assert front.returncode == 2, out + err
    (directory,) = project.path.glob("results/*/*")
    wait_until(lambda: len([*directory.glob("shards/*/toy-code")]) == 2)

    ended = project.run("--on=toy-batch:2", f"--resume={directory.name}", env=own)

    assert ended.code == 0, ended.out + ended.err
    assert ended.outcomes == {f"test_step[{n}]": "measured" for n in range(4)}
    assert sorted(begun.read_text().split()) == ["0", "1", "2", "3"]
    ids = [line["id"] for line in ended.journal if line["event"] == "benchmark"]
    assert sorted(ids) == sorted({*ids})


def journal_of(project: Project) -> list[dict[str, Any]]:
    """Whole lines of the one journal of a project."""
    (path,) = project.path.glob("results/*/*/metrics.jsonl")
    lines = path.read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]


@pytest.mark.own_process
def test_two_sessions_do_not_measure_on_one_core(project: Project) -> None:
    """Both end well, and at no time more benchmarks run than there are slots."""
    project.write(
        "test_it.py",
        BEGINNING
        + """
@beside
@pytest.mark.parametrize("n", range(3))
def test_step(gpubench, n):
    begun = time.time()
    gpubench(step)
    cores = sorted(os.sched_getaffinity(0))
    with open("times", "a") as file:
        print(begun, time.time(), *cores, file=file)
""",
    )
    env = {"TMPDIR": str(project.path.parent)}
    options = ("--on=local:1", *QUICK)
    fronts = [project.start(*options, f"--results-dir={n}", env=env) for n in range(2)]
    for front in fronts:
        out, err = written_by(front, 60)
        assert front.returncode == 0, out + err
    rows = (project.path / "times").read_text().splitlines()
    spans = sorted([float(value) for value in row.split()[:2]] for row in rows)
    assert len(spans) == 6
    for (_, end), (begun, _) in pairwise(spans):
        assert begun >= end


FAULTS = {
    "lost": ("measured", 0, ""),
    "preempted": ("measured", 0, ""),
    "requeued": ("measured", 0, ""),
    "crashed": ("crashed", 1, "was killed by SIGKILL"),
    "cancelled": ("not_measured", 2, "was cancelled"),
}


@pytest.mark.parametrize(
    "case",
    shown(
        ("lost", False),
        ("crashed", True),
        ("cancelled", True),
        exhaustively=[(kind, shared) for kind in FAULTS for shared in (True, False)],
    ),
)
def test_fault_costs_one_benchmark_at_most(project: Project, case: tuple[Any, bool]) -> None:
    """And not that either, where the node is at fault."""
    kind, shared = case
    project.write("test_it.py", BEGINNING + TROUBLED)
    outcome, code, said = FAULTS[kind]
    fault = Fault(kind=kind, start=0, tests=2)
    log = project.path / "log"
    plan = Plan(faults=(fault,), shared=shared, sick_s=1.0, log=str(log), environ={"SLOW": "yes"})
    ended = run(project, plan=plan)
    assert ended.code == code, ended.out + ended.err
    events = [json.loads(line) for line in log.read_text().splitlines()]
    (victim,) = {e["running"] for e in events if e["what"] == kind}
    name = victim.partition("::")[2]
    expected = dict.fromkeys((f"test_step[{n}]" for n in range(4)), "measured") | {name: outcome}
    assert ended.outcomes == expected
    assert said in ended.out
    if kind == "lost":
        (again,) = [e for e in events if e["what"] == "started" and e["avoid"]]
        assert again["node"] not in again["avoid"]


def test_shard_that_never_begins_is_given_up(project: Project) -> None:
    """After some tries; the others go on to their ends, and the run can be resumed."""
    project.write("test_it.py", BEGINNING + TROUBLED)
    faults = tuple(Fault(kind="preempted", start=start) for start in (0, 2))
    plan = Plan(faults=faults, environ={"SLOW": "yes"}, log=str(project.path / "log"))
    ended = run(project, "--engine.retries=1", plan=plan)
    assert ended.code == 2, ended.out + ended.err
    assert re.search(r"Interrupted: shard \d+: its time was up 2 times", ended.out)
    outcomes = ("not_measured", "measured", "not_measured", "measured")
    assert ended.outcomes == {f"test_step[{n}]": o for n, o in enumerate(outcomes)}


@pytest.mark.parametrize("sick", [("node-1",), ("node-1", "node-2")])
def test_sick_node_is_avoided(sharded: Project, sick: tuple[str, ...]) -> None:
    """On which no session starts; where all are, the reason and the output are told."""
    end = "if 'SICK' in os.environ: os.write(1, b'why'); os._exit(3)"
    sharded.write("conftest.py", f"import os\ndef pytest_report_header():\n    {end}")
    plan = Plan(unequal={node: {"SICK": "yes"} for node in sick})
    ended = run(sharded, "-k", "not 1", plan=plan)
    if len(sick) == 1:
        assert (ended.code, {*ended.outcomes.values()}) == (0, {"measured"}), ended.out
    else:
        assert (ended.code, {*ended.outcomes.values()}) == (2, {"not_measured"}), ended.out
        told = r"shard \d+: exited with code 3 on node-. before its first test 3 times"
        assert len(re.findall(told, ended.out)) == 2, ended.out
        assert ended.out.count("\nwhy\n") == 1


def test_hanging_test_ends_its_shard_only(project: Project) -> None:
    """The others go on in another one."""
    project.write(
        "test_it.py",
        BEGINNING
        + """
@pytest.mark.gpubench(exclusive=False, timeout_s=1)
def test_hangs(gpubench):
    gpubench(lambda: time.sleep(100))

@beside
def test_after(gpubench):
    gpubench(step)
""",
    )
    ended = run(project, on="toy:1")
    assert ended.code == 1, ended.out + ended.err
    assert ended.outcomes == {"test_hangs": "hang", "test_after": "measured"}
