"""The Python of the documents: what is imported there exists, and each component there is used."""

from __future__ import annotations

import ast
import builtins
import importlib
import json
import os
import re
import sys
from collections.abc import Iterator, Sequence
from configparser import ConfigParser
from pathlib import Path

import pytest

from gpubench_plugin.cli.main import main
from gpubench_plugin.precision.base import Precision
from gpubench_plugin.workloads.base import Workload
from tests.support.documents import CONTRIBUTING, GUIDE, ROOT, blocks, documents, files
from tests.support.projects import InlineProject, Project, Run

BLOCKS = [
    (f"{document.relative_to(ROOT)} {number}", block)
    for document in documents()
    for number, block in enumerate(blocks(document))
    if block.language == "python"
]
COMPONENT = re.compile(
    r"^class \w+\((?:\w+\.)*(?:\w*Workload|ImageClassifier|\w*Precision|Autocast|Parallelism)\b"
    r"|^@(?:metrics|Format)\b",
    re.MULTILINE,
)
OF_THE_READER = {"Cache", "TEXT", "parse", "text_of", "train_one_step"}
OF_A_PROJECT = re.compile(r"(.*/)?(test_\w+|conftest)\.py")

ENTRY_POINTS = """
[gpubench.workloads]
linear = linear:Linear
mean = my_workloads:Mean
[gpubench.precision]
bf16-uncached = bf16_uncached:BF16Uncached
bf16-uncached-mine = my_package.precisions:BF16Uncached
fp32-flushed = my_precisions:FlushedFP32
[gpubench.metrics]
timed_s = duration:timed_length
[gpubench.parallelism]
ddp-fp16 = my_parallelisms:CompressedDDP
ddp-unbucketed = ddp_unbucketed:UnbucketedDDP
[gpubench.formats]
lines = lines:lines
"""
PRECISIONS = ("bf16-uncached", "bf16-uncached-mine", "fp32-flushed")
PARALLELISMS = ("ddp-unbucketed", "ddp-fp16", "tensor", "pipeline")
ON_RANKS = f"""
import pytest

pytestmark = pytest.mark.precision("bf16-uncached")

@pytest.mark.parametrize("parallelism", [
    pytest.param(name, marks=pytest.mark.gpubench_set("distributed.parallelism=" + name))
    for name in {PARALLELISMS}
])
@pytest.mark.gpubench(config="mean", ranks="any")
def test_mean(gpubench, trainer, parallelism):
    gpubench(trainer)

@pytest.mark.gpubench(config="moe", ranks="any")
@pytest.mark.gpubench_set("moe.rank_sorter=heaviest-last")
def test_layer(gpubench, moe_layer):
    gpubench(moe_layer("forward"))
"""
MEAN = "model: {name: mean}\ntraining: {batch_size: 16, learning_rate: 0.1}\n"
FLUSHED = """
import torch

def test_flushed(gpubench, precision):
    gpubench.train(torch.nn.Linear(4, 2), torch.ones(3, 4), lambda output: output.square().sum())
"""


def importable() -> dict[str, str]:
    """The documents' files for an installed distribution, those for our folders without them."""
    return {
        re.sub(r"^gpubench_plugin/(.*/)?", "", file): text
        for document in documents()
        for file, text in files(document).items()
        if file.endswith(".py") and not OF_A_PROJECT.fullmatch(file)
    }


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """All of them are installed for this process and those that it starts."""
    folder = tmp_path_factory.mktemp("installed")
    distribution = Project(folder)
    for name, text in importable().items():
        distribution.write(name, text)
    distribution.write("documented-1.0.dist-info/METADATA", "Name: documented\nVersion: 1.0\n")
    distribution.write("documented-1.0.dist-info/entry_points.txt", ENTRY_POINTS)
    before = os.environ.get("PYTHONPATH", "")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(folder), before))))
        yield
    for name in importable():
        sys.modules.pop(name.removesuffix(".py").replace("/", "."), None)


def write(project: Project, document: Path, **further: str) -> None:
    """A folder with the files of `document` for a project, their configurations at the root."""
    for name, text in files(document).items():
        if name.startswith("configs/"):
            project.write(name, text)
        elif OF_A_PROJECT.fullmatch(name):
            project.write(f"{document.stem}/{name}", text)
    for name, text in further.items():
        project.write(f"{document.stem}/{name}.py", text)


@pytest.fixture(scope="module")
def trained(installed: None, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of what concerns several ranks on two."""
    project = InlineProject(tmp_path_factory.mktemp("project"))
    write(project, CONTRIBUTING)
    write(project, GUIDE / "moe.md", test_it=ON_RANKS)
    project.write("configs/mean.yaml", MEAN)
    project.write("configs/moe.yaml", (ROOT / "configs/moe.yaml").read_text(encoding="utf-8"))
    run = project.run(f"--precision={','.join(PRECISIONS)}", "--preset=tiny", "--world-size=2")
    assert run.code == 0, run.out + run.err
    return run


@pytest.mark.parametrize("name", [name for name, _ in BLOCKS])
def test_a_block_imports_what_there_is(name: str) -> None:
    """It is Python, what it takes from this package exists, and a component names its file.

    A test runs as it was pasted: names that it does not import are those of the reader's own code.
    """
    block = dict(BLOCKS)[name]
    nodes = [*ast.walk(ast.parse(block.text))]
    assert "def test_" not in block.text or unbound(nodes) <= OF_THE_READER
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("gpubench_plugin."):
            exec(ast.unparse(node), {})
    assert block.file or not COMPONENT.search(block.text)


def unbound(nodes: Sequence[ast.AST]) -> set[str]:
    """The names that are read there, but neither built in nor bound anywhere in it."""
    names = [node for node in nodes if isinstance(node, ast.Name)]
    bound = {name.id for name in names if not isinstance(name.ctx, ast.Load)}
    for node in nodes:
        if isinstance(node, ast.alias):
            bound.add((node.asname or node.name).partition(".")[0])
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            bound.add(node.name)
    return {name.id for name in names} - bound - {*dir(builtins)}


def test_every_component_is_installed() -> None:
    """Here by the entry points of the page, if it has any."""
    modules = {name.replace(".", "/") for name in re.findall(r" = ([\w.]+):", ENTRY_POINTS)}
    components = {file for file, text in importable().items() if COMPONENT.search(text)}
    assert {f"{module}.py" for module in modules} == components
    for text in filter(None, (files(document).get("pyproject.toml") for document in documents())):
        (line,) = re.findall(r'^[\w-]+ = "[\w.]+:\w+"$', text, re.MULTILINE)
        assert line.replace('"', "") in ENTRY_POINTS.splitlines()


def test_paths_of_documents_exist() -> None:
    """Of modules, names and files."""
    for document in documents():
        text = document.read_text(encoding="utf-8")
        names = {*re.findall(r"\bgpubench_plugin(?:\.\w+)+", text)}
        assert {name for name in names if not exists(name)} == set(), document
        paths = {*re.findall(r"(?<![\w/-])(?:tests|tools|docs)/[\w/.-]+\.\w+", text)}
        paths -= {*files(document)}
        assert {path for path in paths if not (ROOT / path).is_file()} == set(), document
        ours = {ROOT / path for path in files(document) if path.startswith("gpubench_plugin/")}
        assert {file for file in ours if not file.parent.is_dir()} == set(), document


def exists(path: str) -> bool:
    module, _, name = path.rpartition(".")
    try:
        return hasattr(importlib.import_module(module), name) or bool(importlib.import_module(path))
    except ImportError:
        return False


@pytest.mark.usefixtures("installed")
def test_components_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """``gpubench list`` has a line for each, of formats when asked, as its docstring says."""
    rows: list[dict[str, str]] = []
    for kinds in ((), ("formats",)):
        assert main(["list", "--format=json", *kinds]) == 0
        rows += json.loads(capsys.readouterr().out)["components"]
    listed = {(row["kind"], row["name"]): row for row in rows}
    points = ConfigParser()
    points.read_string(ENTRY_POINTS)
    documented = "".join(importable().values())
    for group in points.sections():
        for name in points[group]:
            assert listed[group.removeprefix("gpubench."), name]["meaning"] in documented
    assert listed["precision", "fp32-flushed"]["where"] == "cpu"


def test_components_train_together(trained: Run) -> None:
    """In each precision, by each parallelism; a metric is in the record, and experts are sorted."""
    outcomes = trained.outcomes
    assert {*outcomes.values()} == {"measured", "unsupported"}
    assert {name for name, outcome in outcomes.items() if outcome == "measured"} == {
        *(f"test_linear_train[{precision}-ranks2]" for precision in PRECISIONS),
        *(f"test_mean[{parallelism}-bf16-uncached-ranks2]" for parallelism in PARALLELISMS),
        "test_layer[bf16-uncached-ranks2]",
    }
    records = {record["name"]: record for record in trained.summary["benchmarks"]}
    linear = records["test_linear_train[bf16-uncached-ranks2]"]
    assert linear["configuration"]["model"]["name"] == "linear"
    assert linear["correctness"]["reference"]["loss_error"] > 0  # bf16 rounds
    assert linear["metrics"]["timed_s"]["value"] > 0
    assert linear["metrics"]["timed_s"]["unit"] == "s"
    mean = records["test_mean[ddp-fp16-bf16-uncached-ranks2]"]["correctness"]
    assert mean["differs_from_one_process"] == "gradients are exchanged in fp16"
    layer = records["test_layer[bf16-uncached-ranks2]"]["correctness"]
    assert layer["experts_of_rank"] != [0, 1, 2, 3]


@pytest.mark.usefixtures("installed")
def test_a_format_and_a_metric_are_compared(
    trained: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    """``gpubench compare`` judges the metric by a limit, and prints in the format."""
    run = str(trained.directory)
    options = ["--limit=timed_s=<=99", "--format=lines", "--registry=none", "--allow-doubt"]
    assert main(["compare", run, run, *options]) == 0
    name = "CONTRIBUTING/benchmarks/training/test_linear.py::test_linear_train[fp32-flushed-ranks2]"
    assert f"unchanged {name} timed_s" in capsys.readouterr().out.splitlines()


@pytest.mark.usefixtures("installed")
def test_models_and_hooks_of_a_project(project: InlineProject) -> None:
    """The guides to models of one's own and to writing benchmarks, in one project."""
    write(project, GUIDE / "own-model.md", test_flushed=FLUSHED)
    write(
        project, GUIDE / "writing-benchmarks.md", test_plain="def test_it(gpubench): gpubench(str)"
    )

    run = project.run("--precision=fp32,fp32-flushed", "--import-mode=importlib")

    assert {*run.outcomes.values()} == {"measured"}, run.out
    assert {name.partition("[")[0] for name in run.outcomes} == {
        *("test_my_model", "test_my_model_forward", "test_sizes", "test_sort", "test_it"),
        *("test_points_train", "test_points_infer", "test_flushed"),
    }
    by_name = {b["name"]: b for b in run.summary["benchmarks"]}
    points = by_name["test_points_train[fp32]"]["configuration"]["model"]
    assert (points["name"], points["width"]) == ("points", 64)
    flushed = by_name["test_flushed[fp32-flushed]"]["settings"]
    assert flushed["precision.name"] == "fp32-flushed"
    assert run.summary["environment"]["rack"] == "b7"
    calls = by_name["test_it"]["metrics"]["calls"]
    assert calls == {"value": 20.0, "unit": "1", "better": "none"}
    assert "in_rack_b7" in by_name["test_it"]["flags"]


def test_the_tables_of_methods_have_every_one() -> None:
    """Of the two classes to be subclassed, their public names."""
    text = (GUIDE / "own-model.md").read_text(encoding="utf-8")
    for kind in (Workload, Precision):
        names = {name for name in (*vars(kind), *kind.__annotations__) if not name.startswith("_")}
        names -= {"tokens", "memory_format", "section", "where", "unlike_any"}
        missing = {name for name in names if not re.search(rf"`{name}\b", text)}
        assert not missing, kind
