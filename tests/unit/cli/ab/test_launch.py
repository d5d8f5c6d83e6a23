"""One launch: what it is told, and every way in which it can end. Its Python is a shell script."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
import venv
from pathlib import Path
from time import monotonic, sleep

import pytest

from gpubench_plugin.cli.ab import launch, launch_plugin
from gpubench_plugin.cli.ab.launch import LaunchOutcome, LaunchSpec, PytestLauncher
from gpubench_plugin.cli.ab.preflight import Capabilities, features, imports
from gpubench_plugin.cli.ab.sides import Side
from gpubench_plugin.cli.ab.workspaces import Workspace
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.environment.signals import exit_on_signals

pytestmark = pytest.mark.slow


ROOT = Path(__file__).parents[4]
NEW = Capabilities(python="3.11.7", flags=("registry",), can_fix_rounds=True)
OLD = Capabilities(python="3.11.7", flags=(), can_fix_rounds=False)


def state_of(pid: str) -> str:
    """The letter of that process in /proc; X where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


@pytest.fixture
def side(tmp_path: Path) -> Side:
    tree = tmp_path / "tree"
    (tree / "src").mkdir(parents=True)
    return Side(name="base", tree=tree, folder=tree, python=str(tmp_path / "python"))


def launcher(tmp_path: Path, *arguments: str, **environ: str) -> PytestLauncher:
    return PytestLauncher(
        arguments,
        workspace=Workspace(path=tmp_path / "space"),
        probe=tmp_path / "probe/gpubench_ab_probe.py",
        repository=tmp_path / "repo",
        environ={"PATH": os.environ["PATH"], **environ},
    )


def launched(tmp_path: Path, side: Side, script: str, *, timeout_s: float = 30.0) -> LaunchOutcome:
    python = Path(side.python)
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    order = LaunchSpec(side=side, folder=tmp_path / "launch", offers=NEW, timeout_s=timeout_s)
    return launcher(tmp_path).launch(order)


RUN = "mkdir -p ../launch/results/default/r1; cd ../launch/results/default/r1; touch metrics.jsonl"


def test_the_sides_code_comes_first(tmp_path: Path, side: Side) -> None:
    """PYTHONPATH leads to the side's tree; the user's entries move with the repository."""
    given = os.pathsep.join([str(tmp_path / "repo/python"), "/elsewhere"])
    environment = launcher(tmp_path, PYTHONPATH=given).environment(side)
    assert environment["PYTHONPATH"].split(os.pathsep) == [
        str(side.tree / "src"),
        str(side.tree),
        str(tmp_path / "probe"),
        str(side.tree / "python"),
        "/elsewhere",
    ]


def test_a_launch_neither_writes_into_the_tree_nor_for_ci(tmp_path: Path, side: Side) -> None:
    """Byte code goes to the workspace; what CI collects is not the launches' to write."""
    environment = launcher(
        tmp_path, PYTHONDONTWRITEBYTECODE="1", GITHUB_STEP_SUMMARY="/x", GPUBENCH_REGISTRY="db"
    ).environment(side)
    assert environment["PYTHONPYCACHEPREFIX"] == str(tmp_path / "space/pycache")
    assert not {"PYTHONDONTWRITEBYTECODE", "GITHUB_STEP_SUMMARY", "GPUBENCH_REGISTRY"} & set(
        environment
    )


def test_an_older_gpubench_gets_no_flag_it_does_not_know(tmp_path: Path, side: Side) -> None:
    """The registry is switched off only where there is one."""
    made = launcher(tmp_path, "-k", "a b")
    orders = {
        known: LaunchSpec(side=side, folder=tmp_path, offers=known, timeout_s=1.0)
        for known in (NEW, OLD)
    }
    assert "--gpubench-registry=none" in made.command(orders[NEW])
    assert "--gpubench-registry=none" not in made.command(orders[OLD])
    assert made.command(orders[OLD])[:5] == [side.python, "-m", "pytest", "-k", "a b"]


def test_the_cache_is_not_asked_for_where_it_is_off(tmp_path: Path, side: Side) -> None:
    """Under --strict-config, pytest refuses the cache's key without the cache."""
    order = LaunchSpec(side=side, folder=tmp_path, offers=NEW, timeout_s=1.0)
    assert "-o" in launcher(tmp_path).command(order)
    assert "-o" not in launcher(tmp_path, "-p", "no:cacheprovider").command(order)
    storage = f"--benchmark-storage=file://{tmp_path / 'space/benchmarks'}"
    assert storage in launcher(tmp_path).command(order)
    assert storage not in launcher(tmp_path, "-p", "no:benchmark").command(order)


def test_failing_tests_are_an_orderly_end(tmp_path: Path, side: Side) -> None:
    """Which benchmark failed stands in the run; the launch is fine."""
    found = launched(tmp_path, side, f"({RUN}; touch summary.json); exit 1")
    assert (found.error, found.code) == ("", 1)
    assert found.run == tmp_path / "launch/results/default/r1"


def test_no_benchmark_is_an_orderly_end(tmp_path: Path, side: Side) -> None:
    """Whether nothing was collected or only other tests ran: there is no run."""
    found = launched(tmp_path, side, "exit 5")
    assert (found.error, found.run) == ("", None)


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("exit 2", "exited with code 2 before any benchmark ran"),
        (f"({RUN}); exit 3", "exited with code 3 before its run was complete"),
        ("kill -SEGV $$", "was killed by SIGSEGV"),
    ],
)
def test_a_broken_launch_says_how_it_ended(
    tmp_path: Path, side: Side, script: str, problem: str
) -> None:
    """Exit codes, signals and half-written runs are told apart."""
    found = launched(tmp_path, side, f"echo said this; {script}")
    assert found.error == problem
    assert found.last_lines == ("said this",)
    assert not found.usage_error


def test_arguments_that_pytest_refuses_are_known(tmp_path: Path, side: Side) -> None:
    """Then there is no use in another launch."""
    assert launched(tmp_path, side, "exit 4").usage_error


def test_a_launch_that_hangs_is_killed_with_its_children(
    tmp_path: Path, side: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time is bounded, it is asked to end first, and no process of its group is left."""
    monkeypatch.setattr(launch, "_GRACE_S", 0.3)
    child = tmp_path / "child"
    script = f"trap 'echo asked' TERM; sleep 60 & echo $! > {child}; while :; do wait; done"
    found = launched(tmp_path, side, script, timeout_s=1.0)
    assert "timed out after 1 s and was killed" in found.error
    assert found.last_lines == ("asked",)
    until = monotonic() + 20.0
    while state_of(child.read_text().strip()) not in "ZX":  # a killed process ends when it runs
        assert monotonic() < until
        sleep(0.02)


def test_who_asks_twice_does_not_wait_for_a_launch(tmp_path: Path, side: Side) -> None:
    """It is asked to end by the first SIGTERM and killed by the second; nothing of it is left."""
    pid = tmp_path / "pid"
    again = "trap 'kill -TERM $PPID' TERM"
    script = f"{again}; echo $$ > {pid}; kill -TERM $PPID; while :; do sleep 0.05; done"
    with exit_on_signals(), pytest.raises(SystemExit) as end:
        launched(tmp_path, side, script)
    assert end.value.code == 128 + signal.SIGTERM
    assert state_of(pid.read_text().strip()) == "X"


def test_a_side_is_asked_what_it_offers(tmp_path: Path) -> None:
    """The gpubench of this checkout has a registry and fixed rounds."""
    side = Side(name="head", tree=tmp_path, folder=tmp_path, python=sys.executable)
    found = features(side, os.environ)
    assert "registry" in found.flags
    assert found.can_fix_rounds


@pytest.mark.parametrize("frozen", [True, False])
def test_a_side_of_before_the_packages_moved_is_asked_too(tmp_path: Path, frozen: bool) -> None:
    """Its flags and whether it can fix rounds stand in other modules there."""
    package = tmp_path / "gpubench_plugin"
    (package / "measure").mkdir(parents=True)
    for module in ("__init__", "measure/__init__", *(["measure/frozen"] if frozen else [])):
        (package / f"{module}.py").touch()
    (package / "options.py").write_text("FLAGS = {'registry': 'where runs are stored'}\n")
    side = Side(name="base", tree=tmp_path, folder=tmp_path, python=sys.executable)
    found = features(side, os.environ)
    assert (found.flags, found.can_fix_rounds) == (("registry",), frozen)


def test_each_side_runs_the_plugin_of_its_own_tree(tmp_path: Path) -> None:
    """Where gpubench itself is compared, the installed one is not used; nothing is left in it."""
    tree, folder = tmp_path / "tree", tmp_path / "launch"
    packages = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "gpubench_plugin", tree / "gpubench_plugin", ignore=packages)
    (tree / "pytest.ini").write_text("[pytest]\naddopts = --strict-config\n")
    (tree / "test_it.py").write_text("def test_it(gpubench):\n    gpubench(print)\n")
    before = sorted(tree.rglob("*"))
    side = Side(name="head", tree=tree, folder=tree, python=sys.executable)
    space = Workspace(path=tmp_path / "space")
    copy = tmp_path / "probe/gpubench_ab_probe.py"
    copy.parent.mkdir()
    shutil.copyfile(launch_plugin.__file__, copy)
    made = PytestLauncher(["--collect-only"], workspace=space, probe=copy, repository=ROOT)
    known = features(side, made.environment(side))
    ended = made.launch(LaunchSpec(side=side, folder=folder, offers=known, timeout_s=300.0))
    assert (ended.error, ended.code) == ("", 0), ended.last_lines
    found = imports(folder / "report", side)
    plugin = {n: f for n, f in found.modules.items() if n.partition(".")[0] == "gpubench_plugin"}
    assert plugin["gpubench_plugin.plugin"] == tree.resolve() / "gpubench_plugin/plugin.py"
    assert all(file.is_relative_to(tree.resolve()) for file in plugin.values())
    assert sorted(tree.rglob("*")) == before


def test_another_environment_has_its_own_versions(tmp_path: Path) -> None:
    """A second virtual environment that sees the packages of this one is asked, and answers."""
    venv.create(tmp_path / "venv", symlinks=True)
    site = next((tmp_path / "venv").glob("lib/python*/site-packages"))
    (site / "these.pth").write_text("\n".join(p for p in sys.path if "site-packages" in p))
    python = tmp_path / "venv/bin/python"
    side = Side(name="base", tree=tmp_path, folder=tmp_path, python=str(python))
    environment = {**launcher(tmp_path).environment(side), "PYTHONPATH": str(ROOT)}
    assert "registry" in features(side, environment).flags


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo no module named sys >&2; exit 1", "failed: no module named sys"),
        ("echo hello", "does not respond"),
        (
            """echo '{"python": "3", "pytest": true, "flags": [], "freezes_rounds": false}'""",
            "has no pytest-gpubench",
        ),
        (
            """echo '{"python": "3", "pytest": false, "flags": ["x"], "freezes_rounds": false}'""",
            "has no pytest;",
        ),
    ],
)
def test_a_python_without_gpubench_is_refused(
    tmp_path: Path, side: Side, script: str, said: str
) -> None:
    """Before anything is launched, with the option that names it."""
    Path(side.python).write_text(f"#!/bin/sh\n{script}\n")
    Path(side.python).chmod(0o755)
    with pytest.raises(UsageProblem, match=f"--base-python: .*{said}"):
        features(side, os.environ)


def test_launch_that_was_stopped_has_its_time(tmp_path: Path, side: Side) -> None:
    """Stopped by itself for longer than it may take, and continued by somebody."""
    pid = tmp_path / "pid"

    def go_on() -> None:
        until = monotonic() + 20
        while not (pid.exists() and state_of(pid.read_text().strip()) == "T"):
            assert monotonic() < until
            sleep(0.01)
        sleep(1.2)
        os.kill(int(pid.read_text()), signal.SIGCONT)

    threading.Thread(target=go_on).start()
    result = launched(tmp_path, side, f"echo $$ > {pid}; kill -STOP $$; {RUN}", timeout_s=1.0)
    assert "did not end" not in result.error
