"""Environments without the libraries that some workloads come from."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support.projects import Project

if TYPE_CHECKING:
    from collections.abc import Callable

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def without(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """The environment of a process in which the named libraries are not installed."""

    def environment(*libraries: str) -> dict[str, str]:
        folder = tmp_path / "missing"
        folder.mkdir()
        for name in libraries:
            error = f"ModuleNotFoundError(\"No module named '{name}'\", name='{name}')"
            (folder / f"{name}.py").write_text(f"raise {error}\n")
        return {"PYTHONPATH": str(folder)}

    return environment


@pytest.mark.own_process
def test_residual_networks_are_measured_with_torch_alone(
    tmp_path: Path, without: Callable[..., dict[str, str]]
) -> None:
    """This repository's ResNets in mixed precision need neither transformers nor diffusers."""
    project = Project(tmp_path)
    for folder in ("configs", "benchmarks"):
        (tmp_path / folder).symlink_to(REPOSITORY / folder)
    run = project.run(
        "benchmarks",
        "--import-mode=importlib",
        "--precision=amp",
        "-k",
        "resnet50_infer and b1",
        env=without("transformers", "diffusers"),
    )
    assert run.code == 0, run.out + run.err
    measured = {name for name, outcome in run.outcomes.items() if outcome == "measured"}
    assert measured == {
        "test_resnet50_infer[channels_last-b1-amp-ws1]",
    }
