"""Fixtures of whole sessions and commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gpubench_plugin.cli.main import main


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
