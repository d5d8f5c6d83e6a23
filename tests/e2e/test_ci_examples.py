"""The workflows in ``docs/examples``, which cannot be run here: they can be read and parsed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gpubench_plugin.cli import main

if TYPE_CHECKING:
    from collections.abc import Iterator

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


def _scripts(path: Path) -> Iterator[str]:
    for job in _workflow(path)["jobs"].values():
        for step in job["steps"]:
            if "run" in step:
                yield step["run"]


def _commands(path: Path, program: str) -> list[list[str]]:
    """The arguments of each command that starts `program`, with the variables' values."""
    found = []
    for script in _scripts(path):
        for command in re.split(r"\|\||&&|\n|;", script):
            shown = command
            for name, value in VALUES.items():
                shown = shown.replace(name, value)
            words = shlex.split(shown)
            if words and words[0] == program:
                found.append(words[1:])
    return found


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_workflow_gates_pull_requests_and_measures_in_full_at_night(path: Path) -> None:
    """It runs on main, on pull requests and at night, with the profile for each."""
    workflow = _workflow(path)
    assert {"push", "pull_request", "schedule"} <= workflow[True].keys()  # YAML reads `on` so
    assert "'full' || 'quick'" in workflow["env"]["PROFILE"]
    (command,) = _commands(path, "pytest")
    assert "--gate" in command


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_scripts_are_valid_shell(path: Path) -> None:
    """Bash can read every step."""
    for script in _scripts(path):
        shell = script.replace("${{", "").replace("}}", "").encode()
        done = subprocess.run(["bash", "-n"], input=shell, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_gpubench_takes_the_command_lines(path: Path) -> None:
    """Every command of gpubench in it is one that its parser takes."""
    commands = _commands(path, "gpubench")
    assert commands
    for command in commands:
        assert main.build_parser().parse_args(command).command is not None


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_pytest_takes_the_command_lines(path: Path, project: Project) -> None:
    """Every command of pytest in it collects a project's benchmarks, with every option known."""
    project.write("benchmarks/test_it.py", "def test_x(gpubench):\n    gpubench(lambda: None)\n")
    for command in _commands(path, "pytest"):
        run = project.run("--collect-only", "-q", *command, quick=False)
        assert run.code == 0, run.out + run.err
        assert "test_x" in run.out


def _pin_step(path: Path) -> str:
    (job,) = _workflow(path)["jobs"].values()
    (step,) = [step for step in job["steps"] if step.get("name") == "pin the first baseline"]
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
