"""Other people's plugins beside tests on ranks: each sees one test with its phases and outcome."""

from __future__ import annotations

import html
import json
import re
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest

from tests.support.other_plugins import switched_off

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.projects import Project, Run

pytestmark = pytest.mark.slow

LAUNCHERS = pytest.mark.parametrize(
    "launcher",
    [
        pytest.param(("--world-size=2",), id="gang"),
        pytest.param((), id="torchrun", marks=pytest.mark.exhaustive),
    ],
)
"""Options of pytest; without, torchrun starts the ranks."""

ON_RANKS = """
import random, time
from pathlib import Path
import pytest, torch
import torch.distributed as dist

pytestmark = pytest.mark.gpubench(ranks="any")

def rank_one_waits():
    if dist.get_rank() == 1:
        dist.barrier()

def is_first_try(name):
    file = Path(f"tries-{name}-{dist.get_rank()}")
    with file.open("a") as tries:
        tries.write("x")
    return file.stat().st_size == 1
"""


def run(project: Project, launcher: tuple[str, ...], *options: str, plugins: str) -> Run:
    """Run a session with those plugins, in a gang or of torchrun's ranks."""
    wanted = plugins.split()
    if missing := {*wanted} - entry_points(group="pytest11").names:
        pytest.skip(f"not installed: {missing}")
    return project.run(
        *launcher,
        *options,
        env={"PYTEST_ADDOPTS": switched_off(*wanted), "COLUMNS": "200"},
        ranks=0 if launcher else 2,
    )


def outcomes(project: Project) -> dict[str, list[str]]:
    """What pytest's own file says of every test: how each entry of it ended."""
    found: dict[str, list[str]] = {}
    for case in ElementTree.parse(project.path / "unit.xml").iter("testcase"):
        name = case.get("name", "").partition("[")[0].removeprefix("test_")
        found.setdefault(name, []).append(case[0].tag if len(case) else "passed")
    return found


QUARANTINE = """
import pytest
def pytest_runtest_logreport(report): pass
def pytest_generate_tests(metafunc):
    if "width" in metafunc.fixturenames: metafunc.parametrize("width", [1, 2])
def pytest_collection_modifyitems(items):
    for item in items:
        if "bad" in item.name: item.add_marker(pytest.mark.skip(reason="known"))
    items.append(items[0])
"""


@LAUNCHERS
def test_collection_is_the_plugins_on_every_rank(
    project: Project, launcher: tuple[str, ...]
) -> None:
    """Although it is muted while tests run; an item that it lists twice runs twice."""
    project.write("quarantine.py", QUARANTINE)
    tests = "def test_good(width): pass\ndef test_bad(gpubench): gpubench(1)\n"
    own = "def test_own(gpubench, width): gpubench(lambda: None)\n"
    project.write("test_it.py", ON_RANKS + own + tests)
    env = {"PYTHONPATH": str(project.path)}
    ended = project.run(*launcher, "-p", "quarantine", env=env, ranks=0 if launcher else 2)
    assert "5 passed, 1 skipped" in ended.out, ended.out + ended.err
    own, plain = ["measured"] * 2, ["not_measured"] * 2  # which has the mark
    assert sorted(ended.outcomes.values()) == [*own, *plain, "skipped"]


WAITING = """
import os
if "RANK" in os.environ:
    time.sleep(3)  # as they start
@pytest.fixture
def late_setup(process_group):
    rank_one_waits()
@pytest.fixture
def late_teardown(process_group):
    yield
    rank_one_waits()
@pytest.mark.timeout(3)
def test_setup(late_setup): pass
@pytest.mark.timeout(3)
def test_call(process_group): rank_one_waits()
@pytest.mark.timeout(3)
def test_teardown(late_teardown): pass
"""
HEALTHY = """
def test_next(process_group): dist.barrier()
"""


@pytest.mark.exhaustive
@pytest.mark.own_process
def test_a_timeout_fails_its_test_with_the_ranks_stacks(project: Project) -> None:
    """In whichever phase it is; the next test runs, and starting ranks takes none of its time."""
    project.write("test_it.py", ON_RANKS + WAITING + HEALTHY)

    ended = run(project, ("--world-size=2",), "--junitxml=unit.xml", plugins="timeout")

    assert ended.code == 1
    assert outcomes(project) == {
        "setup": ["error"],
        "call": ["failure"],
        "teardown": ["error"],
        "next": ["passed"],
    }
    assert len(re.findall("(?m)^Failed: Timeout .>3", ended.out)) == 3
    assert len(re.findall("- Stack of rank 1 -", ended.out)) == 3


@pytest.mark.exhaustive
@pytest.mark.own_process
def test_a_timeout_ends_ranks_of_torchrun(project: Project) -> None:
    """Its test fails with the stacks; ranks that cannot be replaced run no other."""
    waiting = "@pytest.mark.timeout(3)\ndef test_call(process_group): rank_one_waits()\n"
    project.write("test_it.py", ON_RANKS + waiting + HEALTHY)

    ended = run(project, (), "--junitxml=unit.xml", plugins="timeout")

    assert ended.code == 1
    assert outcomes(project) == {"call": ["failure"]}
    assert "Stack of rank 1" in ended.out
    assert "these ranks cannot be replaced" in ended.out


@pytest.mark.exhaustive
@pytest.mark.own_process
def test_a_timeout_ends_a_process_of_its_own(project: Project) -> None:
    """With ``--isolate`` on one rank, too, whether for the whole test or its call alone."""
    asleep = """
@pytest.mark.timeout(3)
def test_asleep(): time.sleep(100)
@pytest.mark.timeout(3, func_only=True)
def test_call_asleep(): time.sleep(100)
def test_next(): pass
"""
    project.write("test_it.py", ON_RANKS + asleep)

    ended = run(project, ("--isolate",), "--junitxml=unit.xml", plugins="timeout")

    assert ended.code == 1
    assert outcomes(project) == {
        "asleep": ["failure"],
        "call_asleep": ["failure"],
        "next": ["passed"],
    }
    stacks = re.findall(r"- Stack -(?s:.*?), line \d+ in (test_\w+)", ended.out)
    assert stacks == ["test_asleep", "test_call_asleep"]
    assert "controller.py" not in ended.out


HOOKS = """
import os
import pytest

def fail(item, phase):
    if "RANK" not in os.environ and item.name.startswith(f"test_hook_of_{phase}"):
        raise ValueError(f"from the hook of {phase}")
def pytest_runtest_setup(item): fail(item, "setup")
def pytest_runtest_call(item): fail(item, "call")
@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item):
    result = yield
    fail(item, "teardown")
    return result
"""


def test_an_error_in_a_hook_of_the_controller_fails_its_test(project: Project) -> None:
    """The next one runs, on the same ranks."""
    project.write("hooks.py", HOOKS)
    tests = "".join(
        f"def test_hook_of_{phase}(process_group): pass\n"
        for phase in ("setup", "call", "teardown")
    )
    project.write("test_it.py", ON_RANKS + tests + HEALTHY)

    path = {"PYTHONPATH": str(project.path)}
    ended = project.run("--world-size=2", "-p", "hooks", "--junitxml=unit.xml", env=path)

    assert ended.code == 1
    assert outcomes(project) == {
        "hook_of_setup": ["error"],
        "hook_of_call": ["failure"],
        "hook_of_teardown": ["error"],
        "next": ["passed"],
    }
    assert len(ended.directories) == 1
    assert "started a new gang" not in ended.out


FLAKY = """
def test_one_rank_first(process_group):
    is_first = is_first_try("one")
    dist.barrier()
    assert dist.get_rank() == 0 or not is_first
def test_one_rank_always(process_group):
    is_first_try("always")
    dist.barrier()
    assert dist.get_rank() == 0, "rank one is never right"
def test_all_first(process_group):
    assert not is_first_try("all")
def test_measured(gpubench, process_group):
    gpubench(lambda: None)
    assert not is_first_try("measured")
def test_good(process_group):
    is_first_try("good")
"""


@pytest.mark.exhaustive
@LAUNCHERS
def test_reruns_repeat_on_all_ranks(project: Project, launcher: tuple[str, ...]) -> None:
    """So no rank waits for another that repeats alone; an assertion that stays is reported."""
    project.write("test_it.py", ON_RANKS + FLAKY)

    options = ("--reruns=1", "-p", "no:xdist", "--junitxml=unit.xml")
    ended = run(project, launcher, *options, plugins="rerunfailures")

    assert ended.code == 1
    assert "1 failed, 4 passed, 4 rerun" in ended.out
    assert "rank one is never right" in ended.out
    tries = {
        name: [(project.path / f"tries-{name}-{rank}").read_text() for rank in (0, 1)]
        for name in ("one", "always", "all", "measured", "good")
    }
    twice = ["xx", "xx"]
    assert tries.pop("good") == ["x", "x"]
    assert tries == dict.fromkeys(("one", "always", "all", "measured"), twice)
    assert ended.outcomes["test_measured[ranks2]"] == "measured"


MIXED = """
def test_passes(process_group): dist.barrier()
def test_measures(gpubench): gpubench(lambda: time.sleep(0.001))
def test_fails_on_one(process_group):
    dist.barrier()
    assert dist.get_rank() == 0
def test_fails(process_group): assert False
def test_skips(process_group): pytest.skip("not now")
@pytest.mark.xfail(reason="known")
def test_is_expected_to_fail(process_group): assert False
@pytest.fixture
def broken(process_group): raise ValueError
def test_errs(broken): pass
"""
REPORTED = {
    "plain": "passed",
    "passes": "passed",
    "measures": "passed",
    "fails_on_one": "failed",
    "fails": "failed",
    "skips": "skipped",
    "is_expected_to_fail": "xfailed",
    "errs": "error",
}
ALLURE = {"xfailed": "skipped", "error": "failed"}
HTML = {"xfailed": "XFailed"}
JUNIT = {"failed": "failure", "xfailed": "skipped"}


def named(entries: Iterator[tuple[str, str]]) -> dict[str, str]:
    """Each test's outcome; a test that is there twice has two."""
    found: dict[str, list[str]] = {}
    for nodeid, outcome in entries:
        name = nodeid.rpartition("::test_")[2].partition("[")[0].removeprefix("test_")
        found.setdefault(name, []).append(outcome)
    return {name: " and ".join(several) for name, several in found.items()}


def of_json_report(folder: Path) -> dict[str, str]:
    report = json.loads((folder / "report.json").read_text())
    return named((test["nodeid"], test["outcome"]) for test in report["tests"])


def of_allure(folder: Path) -> dict[str, str]:
    files = [json.loads(file.read_text()) for file in (folder / "allure").glob("*-result.json")]
    return named((file["name"], file["status"]) for file in files)


def of_html(folder: Path) -> dict[str, str]:
    page = (folder / "report.html").read_text()
    blob = re.search('data-jsonblob="([^"]*)"', page)
    assert blob
    tests = json.loads(html.unescape(blob[1]))["tests"]
    return named((name, test["result"]) for name, rows in tests.items() for test in rows)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("launcher", "clean"),
    [
        pytest.param(("--world-size=2",), (), id="gang"),
        pytest.param(("--world-size=2",), ("--clean-alluredir",), id="gang, clean"),
        pytest.param((), (), id="torchrun"),
    ],
)
def test_reports_have_every_test_once(
    project: Project, launcher: tuple[str, ...], clean: tuple[str, ...]
) -> None:
    """JSON report, HTML, junit and Allure, with the outcome that the ranks had together."""
    project.write("test_it.py", ON_RANKS + MIXED)
    project.write("test_plain.py", "def test_plain(): pass")
    stale = project.write("allure/stale-result.json", '{"name": "test_stale", "status": "passed"}')
    files = (
        *("--json-report", "--json-report-file=report.json", "--html=report.html"),
        *("--junitxml=unit.xml", "--alluredir=allure"),
    )

    ended = run(
        project, launcher, *files, *clean, plugins="pytest_jsonreport html metadata allure_pytest"
    )

    assert ended.code == 1, ended.err
    assert stale.exists() == (not clean)
    stale.unlink(missing_ok=True)
    assert of_json_report(project.path) == REPORTED
    assert of_html(project.path) == {k: HTML.get(v, v.title()) for k, v in REPORTED.items()}
    assert of_allure(project.path) == {k: ALLURE.get(v, v) for k, v in REPORTED.items()}
    junit = {name: " and ".join(entries) for name, entries in outcomes(project).items()}
    assert junit == {k: JUNIT.get(v, v) for k, v in REPORTED.items()}


LIBRARY = """
def shard(rank):
    if rank == 1:
        return "second"
    return "first"

def unused():
    return 0
"""


@pytest.mark.exhaustive
@pytest.mark.own_process
@LAUNCHERS
def test_coverage_has_the_lines_that_ran_on_ranks(
    project: Project, launcher: tuple[str, ...]
) -> None:
    """Of every rank, in one report."""
    project.write("pytest.ini", "[pytest]\npythonpath = .\n")
    project.write("library.py", LIBRARY)
    test = "def test_shard(process_group): assert shard(dist.get_rank()) in ('first', 'second')\n"
    project.write("test_it.py", f"from library import shard\n{ON_RANKS}{test}")

    ended = run(project, launcher, "--cov=.", "--cov-report=json:cov.json", plugins="pytest_cov")

    assert ended.code == 0, ended.err
    files: dict[str, Any] = json.loads((project.path / "cov.json").read_text())["files"]
    assert files["library.py"]["missing_lines"] == [8]
    assert [*project.path.glob(".coverage*")] == [project.path / ".coverage"]


SEEDED = """
import numpy

@pytest.mark.parametrize("number", range(3))
def test_numbers(process_group, number, request):
    mine = [random.random(), float(numpy.random.rand()), torch.rand(1).item()]
    seed = request.config.getoption("randomly_seed", None)
    values = [None, None]
    dist.all_gather_object(values, [seed, *(mine if seed else mine[2:])])
    assert values[0] == values[1]
    with Path(f"order-{dist.get_rank()}").open("a") as order:
        order.write(f"{number} {seed}\\n")
def test_other(process_group): pass
"""


@LAUNCHERS
@pytest.mark.parametrize(
    ("plugin", "option"),
    [
        ("randomly", ()),
        ("randomly", ("--randomly-seed=7",)),
        ("random_order", ("--random-order",)),
    ],
    ids=["randomly", "randomly, seed given", "random-order"],
)
def test_random_order_and_seed_are_the_controller_s(
    project: Project, launcher: tuple[str, ...], plugin: str, option: tuple[str, ...]
) -> None:
    """On every rank, though each has drawn its own; a set of tests in another order is the same."""
    project.write("test_it.py", ON_RANKS + SEEDED)

    ended = run(project, launcher, *option, plugins=plugin)

    assert ended.code == 0, ended.out
    assert "4 passed" in ended.out
    assert "collected" not in ended.out.partition("= warnings summary =")[2]
    orders = [(project.path / f"order-{rank}").read_text().splitlines() for rank in (0, 1)]
    assert orders[0] == orders[1]
    seed = re.search(r"--randomly-seed=(\d+)", ended.out)
    assert {line.split()[1] for line in orders[0]} == {seed[1] if seed else "None"}


WRAPPER = """
import os
import pytest

@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item, nextitem):
    item.own_notes = {}
    with open("protocols", "a") as file:
        print(item.name.partition("[")[0], file=file)
    try:
        return (yield)
    finally:
        del item.own_notes
"""


@LAUNCHERS
def test_a_conftest_s_wrapper_with_state_runs_once_per_test(
    project: Project, launcher: tuple[str, ...]
) -> None:
    """For the last test before the ranks start, too."""
    project.write("conftest.py", WRAPPER)
    project.write("test_it.py", f"{ON_RANKS}\ndef test_on_ranks(process_group): dist.barrier()\n")
    project.write("test_plain.py", "def test_plain(): pass")

    ended = project.run(*launcher, ranks=0 if launcher else 2)

    assert ended.code == 0, ended.out
    protocols = (project.path / "protocols").read_text().split()
    assert sorted(protocols) == ["test_on_ranks", "test_plain"]
