"""The project's own workflows: what they may do, and that each job's commands run here."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from gpubench_plugin.cli import main
from tests.support import workflows
from tests.support.git import git

ROOT = Path(__file__).parents[2]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
LOADED = {path: yaml.safe_load(path.read_text(encoding="utf-8")) for path in WORKFLOWS}
JOBS = {f"{path.stem}-{name}": (path, name) for path in WORKFLOWS for name in LOADED[path]["jobs"]}
RUNNING = {key: place for key, place in JOBS.items() if key != "release-publish"}
PINNED = re.compile(
    r"- uses: (?:[\w.-]+/[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+|docker://\S+:\d\S+)"
)

# What only a runner has, and what would take an hour here.
OF_A_RUNNER = {
    "BASE": "origin/main",
    "GITHUB_REF_NAME": "v0.2.0",
    "PROFILE": "quick",
    "SELECTION": "control",
    "TIME": "1s",
}
NARROWED = {
    "ci-tests": "-k test_quality_flags",
    "benchmarks-change": "--measure.profile=quick",
}
VALUES = {f"${name}": value for name, value in OF_A_RUNNER.items()}
LEFT_TO_THE_RUNNER = {"PIP_EXTRA_INDEX_URL", "GPUBENCH_TEST_POSTGRESQL"}

each_workflow = pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
each_job = pytest.mark.parametrize("key", RUNNING)


def _job(key: str) -> dict[str, Any]:
    path, name = JOBS[key]
    job: dict[str, Any] = LOADED[path]["jobs"][name]
    return job


@each_workflow
def test_actions_are_pinned_by_commit(path: Path) -> None:
    """A tag can be moved; the comment beside the commit tells which version it was."""
    lines = [line.strip() for line in path.read_text().splitlines() if "uses:" in line]
    assert [line for line in lines if not PINNED.fullmatch(f"- {line.removeprefix('- ')}")] == []


@pytest.mark.parametrize("key", JOBS)
def test_job_may_do_little_and_ends(key: str) -> None:
    """No job has more than it needs, keeps the checkout's token, or runs for hours."""
    path, _ = JOBS[key]
    job = _job(key)
    assert LOADED[path]["permissions"] == {}
    assert job["timeout-minutes"] <= 60
    if key == "release-publish":
        assert (job["permissions"], job["environment"]) == (
            {"id-token": "write", "attestations": "write"},
            "pypi",
        )
        return
    assert job["permissions"] == {"contents": "read"}
    (checkout,) = (s for s in job["steps"] if s.get("uses", "").startswith("actions/checkout@"))
    assert checkout["with"]["persist-credentials"] is False


@each_job
def test_scripts_are_valid_shell_without_expressions(key: str) -> None:
    """Bash can read every step; values of GitHub reach it by variables, which inject no code."""
    assert workflows.problems_of_shell(_job(key)) == ""
    assert "${{" not in "".join(workflows.scripts(_job(key)))


@each_job
def test_programs_take_the_command_lines(key: str) -> None:
    """Each environment of tox exists, and gpubench's parser takes its commands."""
    tox = configparser.ConfigParser()
    tox.read(ROOT / "tox.ini")
    for words in workflows.commands(_job(key), "tox", VALUES):
        assert words[0] == "-e"
        assert f"testenv:{words[1]}" in tox.sections()
    for words in workflows.commands(_job(key), "gpubench", VALUES):
        assert main.build_parser().parse_args(words).command is not None


def test_every_python_that_the_metadata_name_is_tested() -> None:
    """Classifiers and the matrix of the job `tests` are the same."""
    named = re.findall(
        r'"Programming Language :: Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text()
    )
    assert _job("ci-tests")["strategy"]["matrix"]["python"] == named


def _clone(folder: Path) -> Path:
    """A clone of HEAD on a branch `main` with a commit on top that changes what is measured."""
    git(ROOT, "clone", "--quiet", str(ROOT), str(folder))
    changed = folder / "benchmarks" / "control" / "test_control.py"
    changed.write_text(f"{changed.read_text()}\n\n# changed\n")
    for command in (
        "switch --quiet --force-create main",
        "update-ref refs/remotes/origin/main HEAD",
        "commit --quiet --all --message=changed",
    ):
        git(folder, *command.split())
    return folder


@pytest.mark.exhaustive
@each_job
def test_commands_of_the_job_run_in_their_order(key: str, tmp_path: Path) -> None:
    """In a clone, with a new environment for Python, as a runner has it after its checkout."""
    path, _ = JOBS[key]
    folder = _clone(tmp_path / "clone")
    python = tmp_path / "python"
    subprocess.run([sys.executable, "-m", "venv", str(python)], check=True)
    stated = {**LOADED[path].get("env", {}), **_job(key).get("env", {})}
    inherited = {
        k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "PYTHON", "GITHUB"))
    }
    environ = {
        **inherited,
        **{name: str(value) for name, value in stated.items() if name not in LEFT_TO_THE_RUNNER},
        **OF_A_RUNNER,
        "PATH": f"{python / 'bin'}:{os.environ['PATH']}",
        "GITHUB_OUTPUT": str(tmp_path / "output"),
        "PYTEST_ADDOPTS": NARROWED.get(key, ""),
    }
    if key == "release-build":
        _date_the_release(folder)
    for script in workflows.scripts(_job(key)):
        done = workflows.run(script, folder, environ)
        assert done.returncode == 0, f"$ {script}\n{done.stdout[-4000:]}"
    shutil.rmtree(folder)


def _date_the_release(folder: Path) -> None:
    """What is done before a tag is pushed: the section of that version has a date."""
    changelog = folder / "CHANGELOG.md"
    text, sections = re.subn(
        r"^## \[0\.2\.0\].*$", "## [0.2.0] - 2026-12-01", changelog.read_text(), flags=re.MULTILINE
    )
    assert sections == 1
    changelog.write_text(text)
    git(folder, "commit", "--quiet", "--all", "--allow-empty", "--message=Release")
    git(folder, "tag", "--force", "v0.2.0")
