"""Other people's plugins, each alone and all together: every test ends as without them.

``tox -e plugins`` installs them; the table of docs/reference/plugins.md is of what stands here.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Final
from xml.etree import ElementTree

import pytest

if TYPE_CHECKING:
    from tests.support.projects import Project

pytestmark = [pytest.mark.slow, pytest.mark.exhaustive, pytest.mark.own_process]

OPTIONS: Final = {
    "allure-pytest": "--alluredir=allure",
    "anyio": "",
    "hypothesis": "--hypothesis-show-statistics",
    "pytest-asyncio": "",
    "pytest-check": "",
    "pytest-codspeed": "",
    "pytest-cov": "--cov=.",
    "pytest-dependency": "",
    "pytest-env": "",
    "pytest-flakefinder": "--flake-finder --flake-runs=2",
    "pytest-forked": "",
    "pytest-html": "--html=report.html",
    "pytest-instafail": "--instafail",
    "pytest-json-report": "--json-report",
    "pytest-metadata": "--metadata who me",
    "pytest-mock": "",
    "pytest-order": "--order-scope=module",
    "pytest-random-order": "--random-order",
    "pytest-randomly": "--randomly-seed=7",
    "pytest-repeat": "--count=2",
    "pytest-reportlog": "--report-log=log.jsonl",
    "pytest-rerunfailures": "--reruns=1",
    "pytest-socket": "",
    "pytest-split": "--splits=1 --group=1",
    "pytest-subtests": "",
    "pytest-sugar": "",
    "pytest-timeout": "--timeout=100",
    "pytest-torch": "",
    "pytest-xdist": "",
}
"""With what each acts; some act unasked, and some only for tests that ask them."""
NEEDED: Final = {"pytest-html": ["pytest-metadata"]}
REPEATING: Final = {"pytest-flakefinder", "pytest-repeat", "pytest-rerunfailures"}
"""Among all plugins they do not act: they would multiply each other."""
OURS: Final = ("pytest-benchmark", "pytest-gpubench")

HERE = """
import pytest

def test_plain(): pass
def test_plain_fails(): raise ValueError
@pytest.mark.skip
def test_plain_is_skipped(): pass
@pytest.mark.xfail
def test_plain_is_expected_to_fail(): raise ValueError
@pytest.fixture
def broken(): raise ValueError
def test_plain_errs(broken): pass

def test_adopted(benchmark): benchmark(sum, range(100))
def test_adopted_fails(benchmark):
    benchmark(sum, range(100))
    raise ValueError

def test_measured(gpubench): gpubench(lambda: sum(range(100)))
@pytest.mark.gpubench(config="mlp")
def test_trained(gpubench, trainer): gpubench(trainer)
def test_measured_fails(gpubench):
    gpubench(lambda: sum(range(100)))
    raise ValueError
def test_step_fails(gpubench): gpubench(lambda: 1 / 0)
def test_measured_errs(gpubench, broken): pass
"""
ON_RANKS = """
import pytest, torch.distributed as dist

pytestmark = pytest.mark.gpubench(ranks=2)

def test_plain(): pass
def test_two_ranks(process_group): dist.barrier()
def test_measured(gpubench): gpubench(dist.barrier)
def test_measured_fails(gpubench):
    gpubench(dist.barrier)
    raise ValueError
@pytest.mark.gpubench(ranks=2, timeout_s=8)
def test_hangs(process_group):
    if dist.get_rank():
        dist.barrier()
"""
HANGS = """
import time
import pytest

@pytest.mark.gpubench(timeout_s=3)
def test_hangs(gpubench): gpubench(lambda: time.sleep(100))
"""
KINDS: Final = {
    "one process": (HERE, ("--adopt", "--benchmark-max-time=0.05")),
    "two ranks": (ON_RANKS, ()),
    "hanging": (HANGS, ()),
}


def switched_off(*plugins: str) -> str:
    """Value of ``PYTEST_ADDOPTS`` with which a session has only these, what they need, and ours."""
    on = {*OURS, *plugins, *(needed for plugin in plugins for needed in NEEDED.get(plugin, ()))}
    installed = entry_points(group="pytest11")
    return " ".join(f"-p no:{e.name}" for e in installed if e.dist and e.dist.name not in on)


def session(project: Project, kind: str, *plugins: str) -> dict[str, set[str]]:
    """How the tests ended, by name without parameters: by junit's file and gpubench's summary."""
    text, options = KINDS[kind]
    project.write("test_it.py", text)
    acting = [p for p in plugins if len(plugins) == 1 or p not in REPEATING]
    used = " ".join(OPTIONS[plugin] for plugin in acting).split()
    ended = project.run(
        *(*options, *used, "--junitxml=unit.xml"), env={"PYTEST_ADDOPTS": switched_off(*plugins)}
    )
    found: dict[str, set[str]] = {"the session": {str(ended.code)}}
    cases = {
        case.get("name", ""): case[0].tag if len(case) else "passed"
        for case in ElementTree.parse(project.path / "unit.xml").iter("testcase")
    }  # of one that is run again, its last
    for name, outcome in cases.items():
        found.setdefault(re.split(r"[\[ ]", name)[0], set()).add(outcome)
    for benchmark in ended.summary["benchmarks"]:
        name = benchmark["name"].partition("[")[0]
        found.setdefault(f"measurement of {name}", set()).add(benchmark["outcome"])
    # Where tests are repeated, the session ends with the first that hangs.
    return {name: outcomes - {"not_measured"} or outcomes for name, outcomes in found.items()}


@cache
def without_plugins(folder: Path, kind: str) -> dict[str, set[str]]:
    from tests.support.projects import Project

    path = folder / kind
    path.mkdir()
    return session(Project(path), kind)


def refuse_missing(*plugins: str) -> None:
    installed = {entry.dist.name for entry in entry_points(group="pytest11") if entry.dist}
    if missing := {*plugins} - installed:
        pytest.skip(f"not installed: {', '.join(sorted(missing))}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("without")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("plugin", OPTIONS)
def test_beside_a_plugin_tests_end_as_without(
    project: Project, folder: Path, plugin: str, kind: str
) -> None:
    """Alone, with the option that has it act."""
    refuse_missing(plugin)
    assert session(project, kind, plugin) == without_plugins(folder, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_beside_all_plugins_tests_end_as_without(project: Project, folder: Path, kind: str) -> None:
    """As far as they go with each other."""
    refuse_missing(*OPTIONS)
    assert session(project, kind, *OPTIONS) == without_plugins(folder, kind)


OF_PYTEST_TORCH = """
import torch

def test_theirs(make_tensor, torch_device):
    assert torch_device == make_tensor(3).device.type == "cpu"

def test_ours(gpubench, make_tensor, torch_device):
    assert make_tensor(3).device == torch_device == torch.device("cpu")
    gpubench(lambda: None)
"""


def test_pytest_torch_s_tests_have_its_device_and_benchmarks_ours(project: Project) -> None:
    """It parametrizes the former by its option only."""
    refuse_missing("pytest-torch")
    project.write("test_it.py", OF_PYTEST_TORCH)
    env = {"PYTEST_ADDOPTS": switched_off("pytest-torch")}

    ended = project.run("-v", "--torch-device=cpu", env=env)

    assert "test_theirs[cpu] PASSED" in ended.out, ended.out
    assert ended.outcomes == {"test_ours": "measured"}
    assert "these fixtures do not count: torch_device (pytest_torch)" in ended.out
