"""A session without benchmarks pays nothing: heavy modules stay unimported."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.baselines.store import Baselines
from gpubench_plugin.config.settings import FLAGS
from tests.support.pytest_versions import PYTEST_9
from tests.support.runs_builder import run_id

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.support.projects import Project

HEAVY = ("torch", "transformers", "diffusers", "sqlalchemy", "numpy", "pydantic", "yaml")
READERS = {"pydantic", "yaml"}


def without(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """An environment in which importing one of the modules raises."""
    folder.mkdir()
    for name in names:
        (folder / f"{name}.py").write_text(f"raise SystemExit('{name} was imported')\n")
    return {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}


@pytest.fixture
def poisoned(tmp_path: Path) -> dict[str, str]:
    """An environment in which importing a heavy module raises."""
    return without(tmp_path / "poison", HEAVY)


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


MISTAKES = {
    "--measure.step=3": "--measure.step=3: unknown key (did you mean 'measure.steps'?)",
    "--measure.by=guess": "--measure.by=guess: ",
    "--config=none.yaml": "none.yaml: no such file",
    "--resume=nope": "--resume=nope: no run in ",
    "--baseline=mian": "no baseline named 'mian' (did you mean 'main'?)",
    "--baseline=no/run": "project/no/run: no such folder",
    "--precision=fp23": "--precision: unknown 'fp23' (did you mean 'fp32'?)",
    "--device=cqu": "--device: unknown 'cqu' (did you mean 'cpu'?)",
    "--table=stpe": "--table: unknown 'stpe' (did you mean 'step'?)",
    "--table-sort=-memroy": "--table-sort: unknown 'memroy' (did you mean 'memory'?)",
    "--override-ini=gpubench_precison=fp32": (
        "unknown key 'gpubench_precison' (did you mean 'gpubench_precision'?)"
    ),
    "--results-dir=/proc/nope": "--results-dir: cannot write to /proc/nope",
    "--experiment=a/b": "--experiment: 'a/b' is not a valid folder name",
    "--tag=a/b": "--tag: 'a/b' is not a valid folder name",
    "--benchmark-json=no/x.json --tag=a": "--benchmark-json=no/x.json: not writable",
    "--registry=sqlit:///x": "did you mean 'sqlite'?",
}


@pytest.mark.parametrize(
    "options",
    [pytest.param(o, marks=[PYTEST_9] * o.startswith("--override-ini")) for o in MISTAKES],
)
def test_mistakes_in_options_are_answered_before_torch_is_imported(
    project: Project, tmp_path: Path, options: str
) -> None:
    """One line and exit code 4, although the tests import torch."""
    project.write(
        "test_it.py", "import torch\ndef test_x(gpubench):\n    gpubench(torch.rand, 1)\n"
    )
    Baselines(project.path / "results").set("main", [run_id(0)], branch=None)
    env = without(tmp_path / "poison", set(HEAVY) - READERS)

    run = project.run("-q", *options.split(), env=env, quick=False)

    (line,) = filter(None, (run.out + run.err).splitlines())
    assert (run.code, MISTAKES[options] in line, line[:7]) == (4, True, "ERROR: "), line
    assert [*project.path.rglob("results/*")] == [project.path / "results/baselines"]


def test_an_unknown_workload_is_answered_before_torch_is_imported(
    project: Project, tmp_path: Path
) -> None:
    """Once the tests are known, which may have a workload of their own."""
    project.write("test_it.py", "def test_x(gpubench, workload):\n    gpubench(workload)\n")
    env = without(tmp_path / "poison", set(HEAVY) - READERS)

    run = project.run("-q", "--model.name=restnet50", env=env)

    assert run.code == 4, run.out + run.err
    assert "unknown workload 'restnet50' (did you mean 'resnet50'?)" in run.err
