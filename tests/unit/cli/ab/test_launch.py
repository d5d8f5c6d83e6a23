"""One launch: what it is told, and every way in which it can end. Its Python is a shell script."""

from __future__ import annotations

import os
import platform
import shutil
import signal
import sys
import venv
from pathlib import Path
from time import monotonic, sleep

import pytest

from gpubench_plugin.cli.ab import launch
from gpubench_plugin.cli.ab.launch import PytestProcess, imports, python_version
from gpubench_plugin.cli.ab.saved_state import LaunchRecord
from gpubench_plugin.cli.ab.sides import Side
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.system.signals import exit_on_signals

pytestmark = pytest.mark.slow


ROOT = Path(__file__).parents[4]


def state_of(pid: str) -> str:
    """The letter of that process in /proc; X where there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "X"


def side_in(tree: Path, python: str | Path = sys.executable) -> Side:
    return Side(name="base", label="base", python=str(python), tree=tree, folder=tree)


@pytest.fixture
def side(tmp_path: Path) -> Side:
    (tmp_path / "tree/src").mkdir(parents=True)
    return side_in(tmp_path / "tree", tmp_path / "python")


def launcher(tmp_path: Path, *arguments: str, **environ: str) -> PytestProcess:
    return PytestProcess(
        arguments=arguments,
        workspace=tmp_path / "space",
        repository=tmp_path / "repo",
        environ={"PATH": os.environ["PATH"], **environ},
    )


def launched(tmp_path: Path, side: Side, script: str, *, timeout_s: float = 30.0) -> LaunchRecord:
    write_python(side, script)
    return launcher(tmp_path).launch(side, tmp_path / "launch", timeout_s=timeout_s)


def output(tmp_path: Path) -> str:
    return (tmp_path / "launch/output.txt").read_text()


def write_python(side: Side, script: str) -> None:
    python = Path(side.python)
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)


RUN = "mkdir -p ../launch/results/default/r1; cd ../launch/results/default/r1; touch metrics.jsonl"


def test_the_sides_code_comes_first(tmp_path: Path, side: Side) -> None:
    """PYTHONPATH leads to the side's tree; caches and results are the launch's own."""
    given = os.pathsep.join([str(tmp_path / "repo/python"), "/elsewhere"])
    environment = launcher(tmp_path, PYTHONPATH=given).environment(side)
    assert environment["PYTHONPATH"].split(os.pathsep) == [
        str(side.tree / "src"),
        str(side.tree),
        str(tmp_path / "space/probe"),
        str(side.tree / "python"),
        "/elsewhere",
    ]
    environment = launcher(
        tmp_path, PYTHONDONTWRITEBYTECODE="1", GITHUB_STEP_SUMMARY="/x", GPUBENCH_REGISTRY="db"
    ).environment(side)
    assert environment["PYTHONPYCACHEPREFIX"] == str(tmp_path / "space/pycache")
    assert not {"PYTHONDONTWRITEBYTECODE", "GITHUB_STEP_SUMMARY", "GPUBENCH_REGISTRY"} & set(
        environment
    )
    command = launcher(tmp_path, "-k", "a b").command(side, tmp_path)
    assert command[:5] == [side.python, "-m", "pytest", "-k", "a b"]
    storage = f"--benchmark-storage=file://{tmp_path / 'space/benchmarks'}"
    assert {"-o", storage, "--gpubench-registry=none"} <= {*command}
    off = ("-p", "no:cacheprovider", "-p", "no:benchmark")
    assert not {"-o", storage} & {*launcher(tmp_path, *off).command(side, tmp_path)}
    rounds = launcher(tmp_path).command(side, tmp_path, tmp_path / "rounds.json")
    assert f"--gpubench-set=measure.rounds_file={tmp_path / 'rounds.json'}" in rounds


def test_an_orderly_end_is_no_error(tmp_path: Path, side: Side) -> None:
    """Which benchmark failed stands in the run; without any benchmark there is no run."""
    found = launched(tmp_path, side, f"({RUN}; touch summary.json); exit 1")
    assert (found.problem, found.run) == ("", "results/default/r1")
    (tmp_path / "launch").rename(tmp_path / "first")
    found = launched(tmp_path, side, "exit 5")
    assert (found.problem, found.run) == ("", "")


@pytest.mark.parametrize(
    ("script", "problem"),
    [
        ("exit 2", "exited with code 2 before any benchmark ran"),
        (f"({RUN}); exit 3", "exited with code 3 before its run was complete"),
        ("exit 4", "exited with code 4 before any benchmark ran"),
        ("kill -SEGV $$", "was killed by SIGSEGV"),
    ],
)
def test_a_broken_launch_says_how_it_ended(
    tmp_path: Path, side: Side, script: str, problem: str
) -> None:
    """Exit codes, signals and half-written runs are told apart; pytest's refusal is known."""
    found = launched(tmp_path, side, f"echo said this; {script}")
    assert found.problem == problem
    assert output(tmp_path) == "said this\n"
    assert found.usage_error == ("code 4" in problem)


def test_a_launch_that_hangs_is_killed_with_its_children(
    tmp_path: Path, side: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time is bounded, it is asked to end first, and no process of its group is left."""
    monkeypatch.setattr(launch, "_GRACE_S", 0.3)
    child = tmp_path / "child"
    script = f"trap 'echo asked' TERM; sleep 60 & echo $! > {child}; while :; do wait; done"
    found = launched(tmp_path, side, script, timeout_s=1.0)
    assert "timed out after 1 s and was killed" in found.problem
    assert output(tmp_path) == "asked\n"
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


def test_each_side_runs_the_plugin_of_its_own_tree(tmp_path: Path) -> None:
    """Where gpubench itself is compared, the installed one is not used; nothing is left in it."""
    tree, folder = tmp_path / "tree", tmp_path / "launch"
    packages = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "gpubench_plugin", tree / "gpubench_plugin", ignore=packages)
    (tree / "pytest.ini").write_text("[pytest]\naddopts = --strict-config\n")
    (tree / "test_it.py").write_text("def test_it(gpubench):\n    gpubench(print)\n")
    before = sorted(tree.rglob("*"))
    side, space = side_in(tree), tmp_path / "space"
    made = PytestProcess(arguments=["--collect-only"], workspace=space, repository=ROOT)
    ended = made.launch(side, folder, timeout_s=300.0)
    assert ended.problem == "", (folder / "output.txt").read_text()
    modules = imports(folder, side).modules
    plugin = {n: f for n, f in modules.items() if n.partition(".")[0] == "gpubench_plugin"}
    assert plugin["gpubench_plugin.plugin"] == tree.resolve() / "gpubench_plugin/plugin.py"
    assert all(file.is_relative_to(tree.resolve()) for file in plugin.values())
    assert sorted(tree.rglob("*")) == before


def test_another_environment_has_its_own_python(tmp_path: Path) -> None:
    """A second virtual environment that sees the packages of this one is asked, and answers."""
    venv.create(tmp_path / "venv", symlinks=True)
    site = next((tmp_path / "venv").glob("lib/python*/site-packages"))
    (site / "these.pth").write_text("\n".join(p for p in sys.path if "site-packages" in p))
    side = side_in(tmp_path, tmp_path / "venv/bin/python")
    environment = {**launcher(tmp_path).environment(side), "PYTHONPATH": str(ROOT)}
    assert python_version(side, environment) == platform.python_version()


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo no module named sys >&2; exit 1", "does not answer: .*no module named sys"),
        ("echo hello", "does not answer"),
    ],
)
def test_a_python_without_gpubench_is_refused(
    tmp_path: Path, side: Side, script: str, said: str
) -> None:
    """Before anything is launched, with the option that names it."""
    write_python(side, script)
    with pytest.raises(UsageProblem, match=f"--base-python: .*{said}"):
        python_version(side, os.environ)
