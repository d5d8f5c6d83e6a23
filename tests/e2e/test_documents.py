"""Files and commands of README and of pages, written and run in the order of the page."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import subprocess
import tomllib
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn
from unittest.mock import patch

import pytest

from gpubench_plugin.baselines import resolve
from gpubench_plugin.cli.ab import comparison
from gpubench_plugin.cli.main import main
from gpubench_plugin.core.errors import NothingComparable
from tests.support.documents import ROOT, UNREACHABLE, blocks, documents
from tests.support.projects import InlineProject

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubench_plugin.cli.ab.saved_state import SavedState

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

pytestmark = pytest.mark.slow


def commands(language: str, block: str) -> list[str]:
    """The commands of a `block`, without comments; of a terminal's, those behind a prompt."""
    if language not in {"", "bash"}:
        return []
    lines = block.replace("\\\n", " ").splitlines()
    if not language:
        lines = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    words = [shlex.split(line, comments=True) for line in lines]
    return [
        shlex.join(command)
        for line in words
        for is_and, command in groupby(line, "&&".__eq__)
        if not is_and
    ]


def _only_prepared(state: SavedState, *_: object) -> NoReturn:
    """The first steps of a comparison, without its launches: those would take three minutes."""
    shutil.rmtree(state.folder)
    raise NothingComparable(f"prepared {state.request.base} in {state.folder}")


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
            "python3": lambda rest: (0, ""),  # an environment of its own: the tests have one
            ".": lambda rest: (0, ""),
            ".venv/bin/python": self._tox,
        }
        assert words[0] in known, f"no way to run {command!r} is known here"
        return known[words[0]](words[1:])

    def follow(self, document: Path) -> int:
        """Write the files of `document` and run its commands; returns how many it has."""
        count = 0
        for language, file, text in blocks(document):
            if file:
                self.project.write(file, text)
            for command in commands(language, text):
                code, out = self.run(command)
                assert is_done(command, code, out), f"{command}\n{out}"
                count += 1
        return count

    def _tox(self, words: list[str]) -> tuple[int, str]:
        """Check the names of environments: whoever runs this test has started one."""
        tox = configparser.ConfigParser(interpolation=None)
        tox.read(ROOT / "tox.ini")
        names = words[3].split(",") if words[1] == "tox" else []
        missing = [name for name in names if f"testenv:{name}" not in tox]
        return (1, f"no such environment: {missing}") if missing else (0, "")

    def _pytest(self, arguments: list[str], *, ranks: int) -> tuple[int, str]:
        if ranks or any(word.startswith("--world-size") for word in arguments):
            arguments = [*arguments, "--collect-only"]  # what ranks do is tested elsewhere
        run = self.project.run(*arguments, ranks=ranks, env={"GPUBENCH_REGISTRY": ""})
        return run.code, run.out + run.err

    def _torchrun(self, words: list[str]) -> tuple[int, str]:
        ranks, module, *rest = words
        assert module == "-m"
        assert rest[0] == "pytest"
        return self._pytest(rest[1:], ranks=int(ranks.removeprefix("--nproc-per-node=")))

    def _gpubench(self, arguments: list[str]) -> tuple[int, str]:
        self.capsys.readouterr()
        # A machine that is busy with other tests may leave most benchmarks of a run in doubt.
        unfit = patch.object(resolve, "_UNFIT", ())
        prepared = patch.object(comparison, "compare", _only_prepared)
        with prepared, unfit, patch.object(os, "execv") as become:
            code = main(arguments)
        out, err = self.capsys.readouterr()
        if become.called:  # gpubench measure becomes pytest
            return self._pytest(become.call_args.args[1][3:], ranks=0)
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
    if UNREACHABLE in command:
        return code == 1 and "gate: failed" in out
    if command.startswith("gpubench compare") and code == 1:
        return "regressed" in out  # two short runs on a busy machine may differ
    return code == 0


@pytest.fixture
def shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Shell:
    """A repository with a suite, its branch ``main`` committed, and a run."""
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
    return shell


def test_commands_of_readme_do_as_they_say(shell: Shell) -> None:
    """None of them is refused, but a device that is not there is, by name."""
    assert shell.follow(ROOT / "README.md") > 10
    assert shell.follow(ROOT / "docs" / "guide" / "everyday.md") > 10


def test_tutorial_can_be_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its files are written and its commands run in their order, and none of them is refused."""
    project = InlineProject(tmp_path)
    monkeypatch.chdir(project.path)
    assert Shell(project, capsys).follow(ROOT / "docs" / "guide" / "tutorial.md") > 10


def test_defaults_of_a_project_as_in_readme(tmp_path: Path) -> None:
    """Both its ini key and its options apply, from the file that it names alone."""
    (text,) = (block.text for block in blocks(ROOT / "README.md") if block.language == "toml")
    project = InlineProject(tmp_path)
    (project.path / "pytest.ini").unlink()
    project.write("pyproject.toml", text)
    project.write("test_it.py", "def test_it(gpubench, precision): gpubench(int)")

    run = project.run()

    (benchmark,) = run.summary["benchmarks"]
    assert benchmark["name"] == "test_it[amp]"
    assert benchmark["configuration"]["measure"]["profile"] == "quick"
    assert benchmark["configuration"]["distributed"]["threads"] == 1


def anchors(document: Path) -> set[str]:
    """Anchors of the headings of `document`, as GitHub makes them, but for repeated ones."""
    text = re.sub(r"^```.*?^```", "", document.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ +(.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in headings}


def test_links_between_documents_lead_to_a_file_and_a_heading() -> None:
    """Every page of the documentation can be reached from its index, too."""
    broken, linked = [], set()
    for document in documents():
        text = re.sub(
            r"^```.*?^```|`[^`\n]*`", "", document.read_text(), flags=re.DOTALL | re.MULTILINE
        )
        for link in re.findall(r"\]\(([^)\s]+)\)", text):
            if re.match(r"[a-z]+:", link):
                continue
            path, _, anchor = link.partition("#")
            file = (document.parent / path).resolve() if path else document
            if document == ROOT / "docs" / "index.md":
                linked.add(file)
            is_page = file.suffix == ".md" and file.is_file()
            if not file.exists() or (anchor and is_page and anchor not in anchors(file)):
                broken.append(f"{document.relative_to(ROOT)}: {link}")
    assert broken == []
    pages = {file for file in documents() if file.is_relative_to(ROOT / "docs")}
    assert pages - linked == {ROOT / "docs" / "index.md"}
