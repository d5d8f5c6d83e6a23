"""Commands of README and the tutorial, run one after the other as they stand there."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn
from unittest.mock import patch

import pytest

from gpubench_plugin.cli.ab import comparison
from gpubench_plugin.cli.main import main
from gpubench_plugin.errors import NothingComparable
from tests.support.projects import InlineProject

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubench_plugin.cli.ab import Progress, Request, State

ROOT = Path(__file__).parents[2]

SUITE = """
import pytest


@pytest.mark.gpubench(config="small", ranks="any")
def test_resnet18_train(gpubench, trainer):
    gpubench(trainer)


@pytest.mark.gpubench(config="small", ranks="any")
def test_resnet50_train(gpubench, trainer):
    gpubench(trainer)
"""
"""Benchmarks with the names that README uses, of a model that trains in milliseconds."""

RUNS = ("20261121T030000Z_run_00000a", "20261122T030000Z_run_00000b")
"""Runs that README names by the beginning of their ids."""

INSTALLED_BY_CI = re.compile(r"python3 -m (?:pip|venv) .*tox")
"""The two marked commands of README: whoever runs this test has started the second one."""

pytestmark = pytest.mark.slow


def blocks(document: Path) -> list[tuple[str, str]]:
    """Language and text of the code blocks of `document`."""
    pattern = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
    return pattern.findall(document.read_text())


def commands(block: str) -> list[str]:
    """The command lines of a `block`, without comments."""
    lines = block.replace("\\\n", " ").splitlines()
    return [shlex.join(words) for line in lines if (words := shlex.split(line, comments=True))]


def _only_prepared(state: State, request: Request, _: Progress) -> NoReturn:
    """The first steps of a comparison, without its launches: those would take three minutes."""
    shutil.rmtree(state.folder)
    raise NothingComparable(f"prepared {request.base} in {state.folder}")


@dataclass
class Shell:
    """Runs the commands of a document in a project; each returns its exit code and output."""

    project: InlineProject
    capsys: pytest.CaptureFixture[str]

    def run(self, command: str) -> tuple[int, str]:
        """Run `command`; one that this class does not know fails the test."""
        words = shlex.split(command)
        assert words, command
        known: dict[str, Callable[[list[str]], tuple[int, str]]] = {
            "pytest": lambda rest: self._pytest(rest, ranks=0),
            "torchrun": self._torchrun,
            "gpubench": self._gpubench,
            "git": lambda rest: self._process(["git", *rest]),
            "pip": self._pip,
            ".": lambda rest: (0, ""),
        }
        assert words[0] in known, f"no way to run {command!r} is known here"
        return known[words[0]](words[1:])

    def _pytest(self, arguments: list[str], *, ranks: int) -> tuple[int, str]:
        run = self.project.run(*arguments, ranks=ranks, env={"GPUBENCH_REGISTRY": ""})
        return run.code, run.out + run.err

    def _torchrun(self, words: list[str]) -> tuple[int, str]:
        ranks, module, *rest = words
        assert module == "-m"
        assert rest[0] == "pytest"
        return self._pytest(rest[1:], ranks=int(ranks.removeprefix("--nproc-per-node=")))

    def _gpubench(self, arguments: list[str]) -> tuple[int, str]:
        self.capsys.readouterr()
        with patch.object(comparison, "compare", _only_prepared):
            code = main(arguments)
        out, err = self.capsys.readouterr()
        return code, out + err

    def _process(self, words: list[str]) -> tuple[int, str]:
        ended = subprocess.run(
            words, cwd=self.project.path, capture_output=True, text=True, check=False
        )
        return ended.returncode, ended.stdout + ended.stderr

    def _pip(self, arguments: list[str]) -> tuple[int, str]:
        """Check what would be installed: nothing is, since the tests' own environment has it."""
        metadata = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        (extras,) = re.findall(r"\[([\w,]+)\]", " ".join(arguments))
        missing = set(extras.split(",")) - metadata["optional-dependencies"].keys()
        constraints = [arguments[i + 1] for i, word in enumerate(arguments) if word == "-c"]
        assert all((ROOT / name).is_file() for name in constraints)
        return (1, f"no such extra: {missing}") if missing else (0, "")


def is_done(command: str, code: int, out: str) -> bool:
    """Whether `command` did what it is for, by its exit code and output."""
    if command.startswith("gpubench ab"):
        return "prepared main in" in out
    if "--device=cuda" in command and code == 4:
        return "cuda" in out
    if command.startswith("gpubench compare") and code == 1:
        return "regressed" in out  # two short runs on a busy machine may differ
    return code == 0


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    """A repository with a suite, its branch ``main`` committed, and two runs of other days."""
    project = InlineProject(tmp_path)
    project.write("benchmarks/test_resnet.py", SUITE)
    shutil.copy(ROOT / "configs" / "mlp.yaml", project.write("configs/small.yaml", ""))
    project.write(".gitignore", "results/\n.benchmarks/\n__pycache__/\n")
    shell = Shell(project, capsys)
    monkeypatch.chdir(project.path)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(project.write("../gitconfig", "")))
    for command in (
        "git init -q -b main",
        "git add -A",
        "git -c user.name=Me -c user.email=me@example.org commit -qm First",
        "pytest benchmarks -q",
    ):
        code, out = shell.run(command)
        assert code == 0, out
    (first,) = (project.path / "results" / "default").iterdir()
    for run_id in RUNS:
        shutil.copytree(first, first.with_name(run_id))
        for file in first.with_name(run_id).glob("*.json*"):
            file.write_text(file.read_text().replace(first.name, run_id))
    return shell


def test_commands_of_readme_do_as_they_say(shell: Shell) -> None:
    """None of them is refused, but a device that is not there is, by name."""
    bash = [text for language, text in blocks(ROOT / "README.md") if language == "bash"]
    readme = [command for text in bash for command in commands(text)]
    assert len(readme) > 10
    for command in readme:
        if INSTALLED_BY_CI.match(command):
            continue
        code, out = shell.run(command)
        assert is_done(command, code, out), f"{command}\n{out}"


def test_tutorial_can_be_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its files are written and its commands run in their order, and none of them is refused."""
    project = InlineProject(tmp_path)
    monkeypatch.chdir(project.path)
    shell = Shell(project, capsys)
    for language, text in blocks(ROOT / "docs" / "guide" / "tutorial.md"):
        if language == "python":
            name, _, code = text.removeprefix("# ").partition("\n")
            project.write(name, code)
        for command in commands(text) if language == "bash" else ():
            code, out = shell.run(command)
            assert is_done(command, code, out), f"{command}\n{out}"
