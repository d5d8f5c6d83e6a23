"""Environments without the libraries that some workloads come from."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import gpubench_plugin
from gpubench_plugin.core import catalog
from gpubench_plugin.core.errors import UsageProblem
from tests.support.projects import InlineProject, Project

if TYPE_CHECKING:
    from collections.abc import Callable

REPOSITORY = Path(__file__).parents[2]
EXHAUSTIVE = pytest.mark.exhaustive


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


@pytest.fixture
def suite(tmp_path: Path) -> Project:
    """This repository's benchmarks, recorded elsewhere."""
    for folder in ("configs", "benchmarks"):
        (tmp_path / folder).symlink_to(REPOSITORY / folder)
    project = Project(tmp_path)
    project.write("pytest.ini", "[pytest]\naddopts = --import-mode=importlib\n")
    return project


def test_a_residual_network_trains_with_torch_alone(without: Callable[..., dict[str, str]]) -> None:
    """Nothing that a step of training imports needs transformers or diffusers."""
    script = """\
from tests.support.presets import preset_of, trainer_of
trainer_of(preset_of("resnet50", "tiny", precision__name="amp")).step()
"""
    environ = {**os.environ, **without("transformers", "diffusers")}
    child = subprocess.run(
        [sys.executable, "-c", script],
        check=False,
        cwd=REPOSITORY,
        env=environ,
        capture_output=True,
        text=True,
    )
    assert child.returncode == 0, child.stderr


@pytest.mark.exhaustive
def test_studies_of_compilation_need_torch_alone(
    suite: Project, without: Callable[..., dict[str, str]]
) -> None:
    """Those of the MLP are measured beside all that a study takes of the package."""
    run = suite.run(
        *("benchmarks", "-k", "mlp_compile and gpubench-counting"),
        env=without("transformers", "diffusers"),
    )
    assert run.code == 0, run.out + run.err
    assert [*run.outcomes.values()] == ["measured"]


@pytest.mark.own_process
@pytest.mark.parametrize(
    ("selection", "options", "library"),
    [
        ("unet_denoising and conditional and 1-fp32", (), "diffusers"),
        pytest.param("llama_decode or llama_prefill", (), "transformers", marks=EXHAUSTIVE),
        pytest.param(
            *("llama_compile and aot_eager", ("--measure.profile=full",), "transformers"),
            marks=EXHAUSTIVE,
        ),
    ],
)
def test_every_path_to_a_library_says_what_to_install(
    selection: str,
    options: tuple[str, ...],
    library: str,
    suite: Project,
    without: Callable[..., dict[str, str]],
) -> None:
    """Generation, studies of compilation and pipelines are unsupported, not failed."""
    run = suite.run("benchmarks", "-k", selection, *options, env=without(library))
    assert run.code == 4, run.out + run.err
    assert f"for lack of {library}: pip install 'pytest-gpubench[suite]'" in run.out
    assert "unsupported" in run.outcomes.values()


@pytest.mark.own_process
@pytest.mark.exhaustive
def test_cold_start_without_the_library_is_unsupported(
    tmp_path: Path, without: Callable[..., dict[str, str]]
) -> None:
    """The process that lacks the model's library says so to the one that times it."""
    project = Project(tmp_path)
    for name in ("cold_start.py", "test_cold_start.py"):
        project.write(name, (REPOSITORY / "benchmarks" / "system" / name).read_text())
    project.write("configs/cold-start.yaml", "model: {name: vit}\n")
    run = project.run("-k", "eager", env=without("transformers"))
    assert run.code == 4, run.out + run.err
    (benchmark,) = run.summary["benchmarks"]
    assert benchmark["outcome"] == "unsupported"
    assert re.match(r"vit requires transformers, .*: pip install '[^']*'$", benchmark["reason"])


OF_TORCH = """
    import pytest


    def test_plain(gpubench):
        gpubench(sorted, [3, 1, 2])


    def test_variants(gpubench):
        gpubench.compare({"a": lambda: sum(range(9)), "b": lambda: sum([*range(9)])})


    def test_precision(gpubench, precision):
        gpubench(lambda: None)


    def test_train(gpubench):
        gpubench.train(None, None)


    @pytest.mark.gpubench(config="resnet50")
    def test_trainer(gpubench, trainer):
        gpubench(trainer)


    @pytest.mark.gpubench(ranks=2)
    def test_ranks(gpubench):
        gpubench(lambda: None)


    def test_adopted(benchmark):
        benchmark(sorted, [3, 1, 2])
"""


@pytest.mark.own_process
@pytest.mark.parametrize("options", [(), pytest.param(("--isolate",), marks=EXHAUSTIVE)])
def test_without_torch_the_rest_is_measured(
    tmp_path: Path, without: Callable[..., dict[str, str]], options: tuple[str, ...]
) -> None:
    """In this process and in one of their own; what needs torch says how to install it."""
    environ, project = without("torch"), Project(tmp_path)
    project.write("test_it.py", OF_TORCH)
    run = project.run("--adopt", "--world-size=1,2", *options, env=environ)
    assert run.code == 0, run.out + run.err
    measured = {"test_plain", "test_variants", "test_adopted"}
    assert {id for id, outcome in run.outcomes.items() if outcome == "measured"} == measured
    lacking = {
        f"test_{name}" for name in ("precision[fp32]", "train", "trainer[fp32]", "ranks[ranks2]")
    }
    said = "torch is not installed: pip install 'pytest-gpubench[torch]'"
    assert {b["name"] for b in run.summary["benchmarks"] if b["reason"] == said} >= lacking
    run = project.run("-k", "trainer", "--device=cuda", env=environ)
    assert run.code == 4, run.out + run.err
    assert "for lack of torch: pip install 'pytest-gpubench[torch]'" in run.out


@pytest.mark.own_process
def test_a_module_of_the_projects_own_is_not_torch(tmp_path: Path) -> None:
    """It is not asked for torch's facts, and what needs torch is unsupported."""
    project = Project(tmp_path)
    project.write("torch.py", "VERSION = 1\n")
    project.write("test_it.py", OF_TORCH.replace("pytest\n", "pytest, torch\n", 1))
    run = project.run("--adopt", "-k", "plain or adopted or precision", env={"PYTHONPATH": "."})
    assert run.code == 0, run.out + run.err
    outcomes = {"test_plain": "measured", "test_adopted": "measured"}
    assert run.outcomes == {**outcomes, "test_precision[fp32]": "unsupported"}


@pytest.mark.own_process
def test_run_raises_where_every_benchmark_lacks_a_package(
    tmp_path: Path, without: Callable[..., dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of other usage errors the message is the exception's; one that measures returns a run."""
    monkeypatch.setenv("PYTHONPATH", without("torch")["PYTHONPATH"], prepend=os.pathsep)
    Project(tmp_path).write("test_it.py", "def test_it(gpubench):\n    gpubench(sum, [1])\n")
    with pytest.raises(UsageProblem, match=r"^nothing was measured: torch is not installed: pip "):
        gpubench_plugin.run("test_it.py", world_size=2, cwd=tmp_path, quiet=True)
    run = gpubench_plugin.run("test_it.py", world_size=[1, 2], cwd=tmp_path, quiet=True)
    assert run.status == "complete"
    assert [benchmark.outcome for benchmark in run.benchmarks] == ["measured", "unsupported"]


def test_without_torch_components_are_listed(without: Callable[..., dict[str, str]]) -> None:
    """Those that import torch by name alone."""
    listed = subprocess.run(
        [sys.executable, "-m", "gpubench_plugin", "list", "workloads", "precision", "metrics"],
        check=True,
        env={**os.environ, **without("torch")},
        capture_output=True,
        text=True,
    ).stdout
    workloads = listed.partition("\n\nprecision\n")[0].splitlines()[1:]
    assert [line.split() for line in workloads] == [
        [name, "with", "torch"] for name in catalog.choices("workloads")
    ]
    assert "fp16 autocast with a gradient scaler" in listed


BENCHMARKS = """
    import pytest

    benchmark = pytest.mark.gpubench(ranks="any")
    full_only = pytest.mark.gpubench_full


    @benchmark
    @pytest.mark.gpubench_set("model.name=vit", "model.image_size=32")
    def test_vit(gpubench, trainer):
        gpubench(trainer)


    @benchmark
    @pytest.mark.gpubench_set("model.name=unet2d")
    def test_unet(gpubench, inference):
        gpubench(inference)


    @full_only
    @benchmark
    @pytest.mark.gpubench_set("model.name=vit")
    def test_left_out(gpubench, trainer):
        gpubench(trainer)


    @benchmark
    def test_measured(gpubench):
        gpubench(lambda: None)


    @pytest.mark.precision("tf32")
    @benchmark
    def test_tf32(gpubench, precision):
        gpubench(lambda: None)


    @benchmark
    def test_skipped(gpubench):
        pytest.skip("the user's reason")


    @benchmark
    def test_failing(gpubench):
        assert False


    def test_ordinary():
        pass
"""
TRANSFORMERS = "ERROR: nothing was measured, for lack of transformers: pip install '{}'"
BOTH = TRANSFORMERS.replace("transformers", "diffusers and transformers")
SUITE = "pytest-gpubench[suite]"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    """Benchmarks that need transformers or diffusers, and others."""
    project = InlineProject(tmp_path)
    project.write("test_it.py", BENCHMARKS)
    return project


@pytest.fixture
def _not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("transformers", "diffusers"):
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.usefixtures("_not_installed")
@pytest.mark.parametrize(
    ("selection", "line"),
    [
        ("vit", TRANSFORMERS.format(SUITE)),
        ("vit or unet", BOTH.format(SUITE)),
        ("vit or left_out", TRANSFORMERS.format(SUITE)),
    ],
)
def test_selection_that_only_lacks_packages_is_a_usage_error(
    project: Project, selection: str, line: str
) -> None:
    """The exit code is 4, and one line names the packages and how to install them."""
    run = project.run("-k", selection)
    assert (run.code, run.out.count(line)) == (4, 1), run.out + run.err
    assert "measured" not in run.outcomes.values()
    assert run.summary["status"] == "complete"


@pytest.mark.usefixtures("_not_installed")
@pytest.mark.parametrize(
    ("selection", "options", "code"),
    [
        ("vit or measured", (), 0),
        ("vit or tf32", (), 0),
        ("vit or skipped", (), 0),
        ("vit or ordinary", (), 0),
        ("left_out", (), 0),
        ("vit or failing", (), 1),
        ("vit", ("--benchmark-disable",), 0),
    ],
)
def test_selection_with_another_outcome_ends_as_before(
    project: Project, selection: str, options: tuple[str, ...], code: int
) -> None:
    """Something measured, unsupported or skipped otherwise, failed, or no benchmark at all.

    Nor is a package needed where nothing is measured anyway.
    """
    run = project.run("-k", selection, *options)
    assert run.code == code, run.out + run.err
    assert "for lack of" not in run.out


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("options", "ranks", "code"),
    [(("--world-size=2",), 0, 4), (("--isolate",), 0, 4), ((), 2, 1)],
    ids=["gang", "isolated", "torchrun"],
)
def test_ranks_end_alike(
    project: Project,
    without: Callable[..., dict[str, str]],
    options: tuple[str, ...],
    ranks: int,
    code: int,
) -> None:
    """Ranks of their own say the same; torchrun's exit code is 1 for any failing rank."""
    run = project.run("-k", "vit", *options, env=without("transformers"), ranks=ranks)
    assert (run.code, run.out.count(TRANSFORMERS.format(SUITE))) == (code, 1), run.out + run.err
    assert set(run.outcomes.values()) == {"unsupported"}
