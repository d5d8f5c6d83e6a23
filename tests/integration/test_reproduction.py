"""--repro: the folder of a failed check, and what a fresh process makes of it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import torch

from gpubench_plugin.core.errors import BrokenFile, UsageProblem
from gpubench_plugin.results.reproduction import replay_arguments
from tests.support.projects import QUICK, InlineProject, Project

if TYPE_CHECKING:
    from pathlib import Path

SMALL = """
    model: {name: mlp}
    training: {loss_drop: 0.9, steps: 6, momentum: 0.5}
"""
TESTS = """
import os
import pytest, torch
from torch import nn
from torch.nn.functional import cross_entropy

@pytest.mark.gpubench(config="small", ranks="any")
def test_train(gpubench, trainer):
    gpubench(trainer)

@pytest.mark.gpubench(config="small")
@pytest.mark.gpubench_set("data.source=digits")
def test_digits(gpubench, trainer):
    gpubench(trainer)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.unused = nn.Linear(8, 4), nn.Linear(8, 4)

    def forward(self, x, scale=None):
        return self.layer(x.log())

def test_unused(gpubench):
    batch = torch.ones(6, 8), torch.randint(4, (6,))
    gpubench.train(Net(), batch, cross_entropy, optimizer="adamw")

@pytest.mark.parametrize("key", ["ghp_SECRETSECRETSECRET12"])
def test_log(gpubench, key):
    drawn = torch.ones(3, 8)
    drawn[1, 2] = -float(os.environ.get("SIGN", "1"))
    gpubench.infer(Net(), {"x": drawn, "scale": None})

def test_variants(gpubench):
    gpubench.compare({"a": lambda: 1, "b": lambda: 2})
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    project = InlineProject(tmp_path_factory.mktemp("project"))
    project.write("configs/small.yaml", SMALL)
    project.write("tests/test_it.py", TESTS)
    return project


def failed(project: Project, *args: str) -> dict[str, dict[str, Any]]:
    """The facts of a session's failures, by the name of their folder."""
    run = project.run(*args, "--repro=repro")
    assert run.code == 1, run.out + run.err
    found = {p.name: json.loads((p / "repro.json").read_text()) for p in folders(project)}
    for name in found:
        assert f"\nE       reproduce: gpubench measure --repro=repro/{name}\n" in run.out
    return found


def folders(project: Project) -> list[Path]:
    return sorted((project.path / "repro").iterdir())


def replayed(project: Project, folder: Path, *args: str) -> str:
    """What a fresh process writes that replays `folder`, which may be anywhere."""
    moved = folder.rename(project.path / "moved")
    try:
        command = [sys.executable, "-m", "pytest", *replay_arguments(moved), *args, *QUICK]
        ended = subprocess.run(
            command, cwd=project.path, capture_output=True, text=True, check=False, timeout=200
        )
    finally:
        moved.rename(folder)
    return ended.stdout + ended.stderr


@pytest.fixture(autouse=True)
def _none_before(project: Project) -> None:
    shutil.rmtree(project.path / "repro", ignore_errors=True)


@pytest.mark.parametrize(
    ("test", "options", "text"),
    [
        ("train", ["--training.learning_rate=1e30", "--training.momentum=0.9"], "the loss at step"),
        ("train", ["--training.loss_drop=0.01"], "training.loss_drop=0.01: in 6 steps"),
        ("digits", ["--training.loss_drop=0.01"], "training.loss_drop=0.01: in 6 steps"),
        ("unused", ["--experiment.seed=3"], "parameter unused.weight received no gradient"),
        ("variants", [], "variant 'b' disagrees"),
    ],
)
def test_replays_the_failure(project: Project, test: str, options: list[str], text: str) -> None:
    """The same benchmark fails in the same words in a fresh process, with less on its command."""
    ((name, facts),) = failed(project, "tests", "-k", f"test_{test}", *options).items()
    assert facts["failure"].startswith(text)
    assert facts["command"][: len(options) + 3] == ["tests", "-k", f"test_{test}", *options]
    has_inputs = test in {"train", "unused"}
    assert (project.path / "repro" / name / "inputs.pt").exists() == has_inputs
    assert bool(facts["no_inputs"]) is not has_inputs
    assert facts["failure"] in replayed(project, project.path / "repro" / name)


def test_reads_the_saved_inputs(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """The saved batch fails whatever the test draws now, and a better one in its place passes."""
    ((name, facts),) = failed(project, "tests", "-k", "test_log").items()
    folder = project.path / "repro" / name
    assert "SECRET" not in name + "".join(p.read_text() for p in folder.glob("*[!t]"))
    facts["test"] = "tests/test_it.py::test_log"
    (folder / "repro.json").write_text(json.dumps(facts))
    monkeypatch.setenv("SIGN", "-1")  # what the test itself draws is fine now
    assert "4 of 12 values are not finite" in facts["failure"]
    assert facts["failure"] in replayed(project, folder)
    samples, inputs, *rest = torch.load(folder / "inputs.pt", weights_only=True)
    torch.save((samples, {**inputs, "x": inputs["x"].abs()}, *rest), folder / "inputs.pt")
    monkeypatch.setenv("SIGN", "1")
    assert "1 passed" in replayed(project, folder)


def test_ranks_write_one_folder(project: Project) -> None:
    """Rank zero's, in which it is the batch; the other rank draws its own again."""
    options = ("--training.loss_drop=0.01", "--world-size=2")
    ((name, facts),) = failed(project, "tests", "-k", "test_train", *options).items()
    assert (name, facts["options"]["world-size"]) == ("tests-test_it.py-test_train-fp32-ranks2", 2)
    assert facts["failure"] in replayed(project, project.path / "repro" / name)


def test_replaces_what_failed_before(project: Project) -> None:
    """The folder of the same benchmark is the last failure's, and nothing else is left."""
    options = ("tests", "-k", "test_train", "--training.steps=2", "--training.loss_drop=0.01")
    ((name, _),) = failed(project, *options).items()
    (project.path / "repro" / name / "mine").touch()
    ((name, facts),) = failed(project, *options, "--training.loss_drop=0.02").items()
    files = {path.name for path in (project.path / "repro" / name).iterdir()}
    assert files == {"configuration.yaml", "inputs.pt", "repro.json"}
    assert facts["failure"].startswith("training.loss_drop=0.02")


@pytest.mark.parametrize("value", ["tests/test_it.py", "tests/test_it.py/below", ""])
def test_refuses_a_file(project: Project, value: str) -> None:
    """Before anything is measured, in one line."""
    run = project.run("tests", f"--repro={value}")
    assert run.code == 4
    (line,) = [line for line in run.err.splitlines() if "--repro" in line]
    assert ("Not a directory" if value else "empty") in line


def test_a_folder_that_cannot_be_written_hides_no_failure(project: Project) -> None:
    """As one that became unwritable since the session started."""
    hook = "def pytest_runtest_setup(item):\n    open('late', 'w').close()\n"
    project.write("tests/conftest.py", hook)
    try:
        run = project.run("tests", "-k", "test_variants", "--repro=late")
    finally:
        project.write("tests/conftest.py", "")
        (project.path / "late").unlink()
    assert "variant 'b' disagrees" in run.out
    assert "E       --repro: cannot write late" in run.out


class Foreign:
    """What no torch would load without executing code."""

    samples = 8


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "no such file"),
        (b"", "not a saved batch"),
        (b"PK\x03\x04", "not a saved batch"),
        ({"weights": torch.ones(3)}, "not a saved batch"),
        ((8, Foreign(), None, ()), "not a saved batch"),
        ((4, torch.ones(4, 8), torch.ones(4), ()), "has 4 samples"),
    ],
)
def test_refuses_other_inputs(project: Project, content: Any, text: str) -> None:
    """A file that is missing, broken, foreign, or of another size, in one line."""
    file = project.path / "inputs.pt"
    file.unlink(missing_ok=True)
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif content is not None:
        torch.save(content, file)
    run = project.run("tests", "-k", "test_train", "--data.source=saved", f"--data.path={file}")
    assert run.code
    assert f"data.path={file}: {text}" in run.out + run.err
    assert "Traceback" not in run.out + run.err


def test_arguments_are_a_test_and_own_options(tmp_path: Path) -> None:
    """Whatever the facts of a stranger say; and a session of a named model selects by name."""
    facts: dict[str, Any] = {
        "schema_version": 1,
        "test": "-pevil",
        "options": {"precision": "fp32"},
    }
    (tmp_path / "repro.json").write_text(json.dumps({**facts, "no_inputs": "none"}))
    config = f"--gpubench-config={tmp_path}/configuration.yaml"
    assert replay_arguments(tmp_path) == ["pevil", "--gpubench-precision=fp32", config]
    options = {**facts["options"], "measure": "hf:x --shrink"}
    named = {**facts, "test": "made.py::test_infer[fp32]", "options": options}
    (tmp_path / "repro.json").write_text(json.dumps({**named, "no_inputs": ""}))
    assert replay_arguments(tmp_path) == [
        "-ktest_infer[fp32]",
        "--gpubench-precision=fp32",
        "--gpubench-measure=hf:x --shrink",
        "--gpubench-set=data.source=saved",
        f"--gpubench-set=data.path={tmp_path}/inputs.pt",
        config,
    ]


def test_refuses_other_folders(tmp_path: Path) -> None:
    """A folder without facts, or with such as gpubench never writes."""
    with pytest.raises(UsageProblem, match="no such file"):
        replay_arguments(tmp_path)
    (tmp_path / "repro.json").write_text('{"schema_version": 1, "test": []}')
    with pytest.raises(BrokenFile, match=r"repro\.json"):
        replay_arguments(tmp_path)
