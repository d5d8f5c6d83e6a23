"""The guide to models of one's own: its code as it stands there."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from gpubench_plugin.precision.base import Precision
from gpubench_plugin.workloads.base import Workload

if TYPE_CHECKING:
    import pytest

    from tests.support.projects import Project

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "own-model.md"

PRECISION = """
def test_flushed(gpubench):
    import torch
    gpubench.train(torch.nn.Linear(4, 2), torch.ones(3, 4), lambda output: output.square().sum())

def test_flushed_model(gpubench, precision):
    import torch
    gpubench.train(torch.nn.Linear(4, 2), torch.ones(3, 4), lambda output: output.square().sum())
"""


def files() -> dict[str, str]:
    """The page's code blocks by the file that their first line names."""
    pattern = r"^```\w+\n# (\S+)\n(.*?)^```"
    return dict(re.findall(pattern, PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE))


def test_the_code_of_the_page_runs(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every block, in a project that has nothing else."""
    for name, text in files().items():
        project.write(name, text)
    project.write("test_flushed.py", PRECISION)
    info = project.path / "my_precisions-1.0.dist-info"
    entry_points = tomllib.loads(files()["pyproject.toml"])["project"]["entry-points"]
    ((name, value),) = entry_points["gpubench.precision"].items()
    project.write(f"{info.name}/METADATA", "Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    project.write(f"{info.name}/entry_points.txt", f"[gpubench.precision]\n{name} = {value}\n")
    monkeypatch.syspath_prepend(project.path)

    run = project.run(f"--precision=fp32,{name}")

    assert set(run.outcomes.values()) == {"measured"}, run.out
    assert {name.partition("[")[0] for name in run.outcomes} == {
        *("test_my_model", "test_my_model_forward", "test_sizes"),
        *("test_points_train", "test_points_infer", "test_flushed", "test_flushed_model"),
    }
    by_name = {b["name"]: b for b in run.summary["benchmarks"]}
    points = by_name["test_points_train[fp32-ws1]"]["configuration"]["model"]
    assert (points["name"], points["width"]) == ("points", 64)
    assert by_name[f"test_flushed_model[{name}-ws1]"]["settings"]["precision.name"] == name


def test_the_tables_have_every_method() -> None:
    """Of the two classes to be subclassed, their public names."""
    text = PAGE.read_text(encoding="utf-8")
    for kind in (Workload, Precision):
        names = {name for name in (*vars(kind), *kind.__annotations__) if not name.startswith("_")}
        names -= {"tokens", "memory_format", "section", "where", "unlike_any"}
        missing = {name for name in names if not re.search(rf"`{name}\b", text)}
        assert not missing, kind
