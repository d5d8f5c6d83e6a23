"""``gpubench measure``: a model by its name in an ordinary session, without a test file."""

from __future__ import annotations

import json
import os
import shlex
import sys
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.projects import Project

NET = """
import torch


class Net(torch.nn.Module):
    def __init__(self, depth=4, width=16):
        super().__init__()
        self.layers = torch.nn.Sequential(*[torch.nn.Linear(width, width) for _ in range(depth)])

    def forward(self, x):
        return self.layers(x)
"""


@pytest.fixture
def words(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """The arguments of the pytest that ``gpubench measure`` becomes."""
    started: list[list[str]] = []

    def become(path: str, arguments: list[str]) -> None:
        assert path == arguments[0] == sys.executable
        started.append(arguments)
        raise SystemExit(0)

    monkeypatch.setattr(os, "execv", become)

    def run(*arguments: str) -> list[str]:
        with pytest.raises(SystemExit):
            main(["measure", *arguments])
        _, dash_m, pytest_name, *rest = started.pop()
        assert (dash_m, pytest_name) == ("-m", "pytest")
        return rest

    return run


def test_other_arguments_are_those_of_pytest(words: Callable[..., list[str]]) -> None:
    """In their order; the command's own are one option, which ranks and ``ab`` get, too."""
    own = ["my:Net", "--init", "depth=2", "--init=width=8", "--shrink", "--batch=1,8"]
    given = words(*own, "--precision=fp32,bf16", "-k", "b8", "--baseline=last", "--gate")
    assert words("--shrink", "my:Net", "-x") == ["--gpubench-measure=my:Net --shrink", "-x"]
    assert given[0] == f"--gpubench-measure={shlex.join(own)}"
    assert given[1:] == ["--precision=fp32,bf16", "-k", "b8", "--baseline=last", "--gate"]


def test_a_wrong_word_ends_before_pytest(
    words: Callable[..., list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    """In one line, with the code of a usage error."""
    for arguments in (
        [],
        ["brt"],
        ["-p", "no:doctest", "hf:bert"],
        ["hf:bert", "--batch=none"],
        ["hf:bert", "--compile=fast"],
    ):
        assert main(["measure", *arguments]) == 2
        assert len(capsys.readouterr().err.splitlines()) == 1


def test_a_saved_file_is_what_is_measured(
    words: Callable[..., list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is written once: an existing file stays."""
    monkeypatch.chdir(tmp_path)
    assert words("hf:bert", "--shrink", "--save=test_bert.py", "-x") == ["test_bert.py", "-x"]
    text = (tmp_path / "test_bert.py").read_text()
    assert "def test_bert_infer(gpubench, inference):" in text
    assert main(["measure", "hf:bert", "--save", "test_bert.py"]) == 2
    assert (tmp_path / "test_bert.py").read_text() == text


@pytest.mark.slow
def test_a_session_measures_the_model_alone(project: Project) -> None:
    """As tests are: variants, precisions, a run, notes; nothing else is collected or written."""
    project.write("nets.py", NET)
    project.write("test_other.py", "raise ValueError('imported')")
    project.write(
        "conftest.py",
        """
        def pytest_collection_modifyitems(items):
            items[:] = [item for item in items if "b4" in item.name or "fp32" in item.name]
        """,
    )
    before = {path.name for path in project.path.iterdir()}
    option = "--measure=nets:Net --train --infer --shrink --batch=2,4"

    result = project.run(option, "--precision=fp32,bf16")

    assert result.code == 0, result.out
    after = {path.name for path in project.path.iterdir()}
    assert after - before <= {"results", "__pycache__", ".pytest_cache", ".benchmarks"}
    (directory,) = result.directories
    summary = json.loads((directory / "summary.json").read_text())
    ids = [one["id"] for one in summary["benchmarks"]]
    cases = ("b2-fp32", "b4-fp32", "b4-bf16")
    assert {*ids} == {
        f"test_net.py::test_net_{test}[{case}]" for test in ("train", "infer") for case in cases
    }
    for one in summary["benchmarks"]:
        assert one["outcome"] == "measured"
        assert one["settings"]["model.source"] == "nets:Net"
        assert one["settings"]["model.parameters"] == 2 * (16 * 16 + 16)
        assert one["correctness"]["model"].startswith("nets:Net: 544 parameters; shrunk: ")
    assert result.out.count("nets:Net: 544 parameters") == 1


@pytest.mark.slow
def test_a_wrong_name_is_one_line_and_no_traceback(project: Project) -> None:
    """The benchmark is misconfigured; a wrong word ends the session before anything is imported."""
    result = project.run("--measure=nets:Nothing")
    assert "ModuleNotFoundError" not in result.out
    assert "Traceback" not in result.out
    assert "No module named 'nets'" in result.out
    assert result.code != 0
    refused = project.run("--measure=hf:bert --shrnk")
    assert refused.code == 4
    assert "--shrnk" in refused.err + refused.out


@pytest.mark.slow
def test_a_model_by_its_name_is_trained_and_inferred_in_a_test(project: Project) -> None:
    """Without a batch its own is drawn; with one, that is used."""
    project.write("nets.py", NET)
    project.write(
        "test_it.py",
        """
        import torch
        from gpubench_plugin import load

        def test_train(gpubench, precision):
            measured = gpubench.train(load("nets:Net", init={"depth": 2}))
            assert measured.metrics["samples_per_s"].value > 0

        def test_infer(gpubench, precision):
            gpubench.infer(load("nets:Net", shrink=True))

        def test_stated(gpubench):
            batch = torch.ones(3, 16), torch.zeros(3, 16)
            gpubench.train(load("nets:Net"), batch, torch.nn.functional.mse_loss)
        """,
    )
    result = project.run("--precision=fp32,bf16", "--measure.profile=quick")
    assert result.code == 0, result.out
    (directory,) = result.directories
    summary = json.loads((directory / "summary.json").read_text())
    parameters = {b["name"]: b["settings"]["model.parameters"] for b in summary["benchmarks"]}
    layer = 16 * 16 + 16
    assert parameters == {
        "test_train[fp32]": 2 * layer,
        "test_train[bf16]": 2 * layer,
        "test_infer[fp32]": 2 * layer,
        "test_infer[bf16]": 2 * layer,
        "test_stated": 4 * layer,
    }


@pytest.mark.slow
def test_a_folder_of_configurations_is_a_suite_of_models(project: Project) -> None:
    """``model.name`` is the library, ``model.source`` the model."""
    project.write("nets.py", NET)
    for width in (8, 24):
        text = f"model:\n  name: python\n  source: nets:Net\n  init:\n    width: {width}\n"
        project.write(f"configs/net{width}.yaml", text)
    project.write(
        "test_models.py",
        """
        from pathlib import Path
        import pytest

        names = sorted(path.stem for path in Path(__file__).parent.glob("configs/*.yaml"))

        @pytest.mark.parametrize(
            "name", [pytest.param(n, marks=pytest.mark.gpubench(config=n)) for n in names]
        )
        def test_model(gpubench, inference, name):
            gpubench(inference)
        """,
    )
    result = project.run("--measure.profile=quick")
    assert result.code == 0, result.out
    (directory,) = result.directories
    summary = json.loads((directory / "summary.json").read_text())
    assert {b["name"]: b["settings"]["model.parameters"] for b in summary["benchmarks"]} == {
        "test_model[net8-fp32]": 4 * (8 * 8 + 8),
        "test_model[net24-fp32]": 4 * (24 * 24 + 24),
    }


def test_a_failed_check_is_repeated_from_its_folder(
    words: Callable[..., list[str]], project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder and the command that its message names; the same failure."""
    project.write("nets.py", NET.replace("return self", "return float('nan') * self"))
    monkeypatch.chdir(project.path)
    kept = words("nets:Net", "--repro=kept", "--measure.profile=quick")
    failed = project.run(*kept)
    assert failed.code == 1, failed.out
    command = failed.out.partition("reproduce: gpubench measure ")[2].splitlines()[0]
    again = words(*shlex.split(command), "-p", "no:doctest")
    assert again[-2:] == ["-p", "no:doctest"]
    repeated = project.run(*again)
    assert repeated.code == 1
    line = next(line for line in failed.out.splitlines() if "are not finite" in line)
    assert line.removeprefix("E").strip() in repeated.out
    assert main(["measure", "--repro=nowhere"]) in {2, 4}
