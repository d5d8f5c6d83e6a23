"""The workflows in ``docs/examples``, which cannot be run here: they can be read and parsed."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gpubench_plugin import cli

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.acceptance.conftest import Project

EXAMPLES = sorted((Path(__file__).parents[2] / "docs" / "examples").glob("*.yml"))
VALUES = {"$PROFILE": "quick", "$RUN": "results/ci/some", "${{ matrix.machine }}": "a100"}


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


def test_there_is_one_with_a_cache_and_one_with_postgresql() -> None:
    """Baselines are kept in the cache, or in a database whose URL is a secret."""
    cached, database = (path.read_text(encoding="utf-8") for path in EXAMPLES)
    assert "actions/cache/restore@" in cached
    assert "path: results" in cached
    assert "secrets.GPUBENCH_REGISTRY" in database
    services = next(iter(_workflow(EXAMPLES[1])["jobs"].values()))["services"]
    assert services["postgres"]["image"].startswith("postgres")


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
        assert cli._parser().parse_args(command).command is not None


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_pytest_takes_the_command_lines(path: Path, project: Project) -> None:
    """Every command of pytest in it collects a project's benchmarks, with every option known."""
    project.write("benchmarks/test_it.py", "def test_x(gpubench):\n    gpubench(lambda: None)\n")
    for command in _commands(path, "pytest"):
        run = project.run("--collect-only", "-q", *command, quick=False)
        assert run.code == 0, run.out + run.err
        assert "test_x[fp32-ws1]" in run.out
