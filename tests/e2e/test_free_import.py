"""A session without benchmarks pays nothing: heavy modules stay unimported."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.config.settings import FLAGS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.projects import Project

HEAVY = ("torch", "transformers", "diffusers", "sqlalchemy", "numpy", "pydantic", "yaml")


@pytest.fixture
def poisoned(tmp_path: Path) -> dict[str, str]:
    """An environment in which importing a heavy module raises."""
    folder = tmp_path / "poison"
    folder.mkdir()
    for name in HEAVY:
        (folder / f"{name}.py").write_text(f"raise SystemExit('{name} was imported')\n")
    return {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}


def test_poison_works(project: Project, poisoned: dict[str, str]) -> None:
    """The poison kills a benchmark, so that the other tests here can fail."""
    project.write("test_it.py", "def test_x(gpubench):\n    gpubench(lambda: None)\n")

    run = project.run(env=poisoned)

    assert run.code != 0
    assert "was imported" in run.out + run.err


@pytest.mark.parametrize(
    "args", [("--help",), ("--version",), ("--markers",), ("--fixtures",), ("--collect-only", "-q")]
)
def test_asking_pytest_for_something_imports_nothing_heavy(
    project: Project, poisoned: dict[str, str], args: tuple[str, ...]
) -> None:
    """Help, version, marks, fixtures and collecting benchmarks work without torch."""
    project.write(
        "test_it.py",
        """
        import pytest
        @pytest.mark.gpubench(config="mlp")
        def test_x(gpubench, trainer):
            gpubench(trainer.step)
        """,
    )

    run = project.run(*args, "--precision=amp", "--training.batch_size=2", env=poisoned)

    assert run.code == 0, run.out + run.err
    assert "was imported" not in run.out + run.err
    if args == ("--help",):  # the short form of each option stands beside the long one
        help_text = _on_one_line(run.out)
        assert [name for name in FLAGS if f" Short: --{name}. " not in help_text] == []


def _on_one_line(text: str) -> str:
    return " ".join(text.split())


def test_ordinary_tests_import_nothing_heavy(project: Project, poisoned: dict[str, str]) -> None:
    """A project of ordinary tests, plain pytest-benchmark ones among them, never loads torch."""
    project.write(
        "test_it.py",
        """
        def test_x(): pass
        def test_b(benchmark): benchmark(lambda: None)
        """,
    )

    run = project.run(env=poisoned, quick=False)

    assert run.code == 0, run.out + run.err
    assert "2 passed" in run.out
