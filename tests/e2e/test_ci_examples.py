"""The workflows in ``docs/examples``, which cannot be run here: they can be read and parsed."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gpubench_plugin.cli import main
from tests.support import workflows

if TYPE_CHECKING:
    from tests.support.projects import Project

EXAMPLES = sorted((Path(__file__).parents[2] / "docs" / "examples" / "ci").glob("*.yml"))
VALUES = {
    "$PROFILE": "quick",
    "$RUN": "results/ci/some",
    "$GITHUB_RUN_ID": "7",
    "$HOME/$KEPT": "results",
    "${{ matrix.machine }}": "a100",
}


def _workflow(path: Path) -> dict[Any, Any]:
    loaded: dict[Any, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return loaded


def _job(path: Path) -> dict[str, Any]:
    (job,) = _workflow(path)["jobs"].values()
    found: dict[str, Any] = job
    return found


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_workflow_gates_pull_requests_and_measures_in_full_at_night(path: Path) -> None:
    """It runs on main, on pull requests and at night, with the profile for each."""
    workflow = _workflow(path)
    assert {"push", "pull_request", "schedule"} <= workflow[True].keys()  # YAML reads `on` so
    assert "'full' || 'quick'" in workflow["env"]["PROFILE"]
    (command,) = workflows.commands(_job(path), "pytest", VALUES)
    assert "--gate" in command


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_scripts_are_valid_shell(path: Path) -> None:
    """Bash can read every step."""
    assert workflows.problems_of_shell(_job(path)) == ""


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_gpubench_takes_the_command_lines(path: Path) -> None:
    """Every command of gpubench in it is one that its parser takes."""
    commands = workflows.commands(_job(path), "gpubench", VALUES)
    assert commands
    for command in commands:
        assert main.build_parser().parse_args(command).command is not None


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_pytest_takes_the_command_lines(path: Path, project: Project) -> None:
    """Every command of pytest in it collects a project's benchmarks, with every option known."""
    project.write("benchmarks/test_it.py", "def test_x(gpubench):\n    gpubench(lambda: None)\n")
    for command in workflows.commands(_job(path), "pytest", VALUES):
        run = project.run("--collect-only", "-q", *command, quick=False)
        assert run.code == 0, run.out + run.err
        assert "test_x" in run.out


def _pin_step(path: Path) -> str:
    (step,) = [step for step in _job(path)["steps"] if step.get("name") == "pin the first baseline"]
    script: str = step["run"]
    return script.replace("${{ matrix.machine }}", "a100")


@pytest.mark.parametrize("code", [0, 2, 4])
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_a_baseline_is_pinned_only_by_whoever_knows_that_it_is_missing(
    path: Path, code: int, tmp_path: Path
) -> None:
    """One command decides that, with this job's run; where it fails, the step does."""
    calls, program = tmp_path / "calls", tmp_path / "bin" / "gpubench"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" >> {shlex.quote(str(calls))}\nexit {code}\n')
    program.chmod(0o755)
    kept = "results" if path == EXAMPLES[0] else "kept"
    runs = [f"20260101T00000{n}Z_{word}_00000{n}" for n, word in enumerate(("7", "7"))]
    for run in (*runs, "20250101T000000Z_6_000000"):
        (tmp_path / kept / "ci" / run).mkdir(parents=True)
    environ = {
        "HOME": str(tmp_path),
        "KEPT": "kept",
        "GITHUB_RUN_ID": "7",
        "PROFILE": "quick",
        "PATH": f"{program.parent}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        ["bash", "-e", "-c", _pin_step(path)], cwd=tmp_path, env=environ, check=False
    )
    assert done.returncode == code
    (call,) = calls.read_text().splitlines()
    assert call.startswith("baseline set --if-missing quick")
    assert f"/{runs[-1]}/ " in call
