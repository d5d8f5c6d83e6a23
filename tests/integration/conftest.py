"""Fixtures of whole sessions and commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gpubench_plugin.cli.main import main
from tests.support.projects import InlineProject

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> InlineProject:
    """This repository's benchmarks and tests, run within this process and recorded elsewhere."""
    project = InlineProject(tmp_path_factory.mktemp("checkout"))
    project.write("pytest.ini", "[pytest]\naddopts = --import-mode=importlib -p no:cacheprovider\n")
    for folder in ("benchmarks", "configs", "tests"):
        (project.path / folder).symlink_to(ROOT / folder)
    return project


@pytest.fixture
def run_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run ``gpubench`` in a folder; return exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GPUBENCH_REGISTRY", raising=False)

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(arguments)
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """The folder of results there."""
    return tmp_path / "results"
