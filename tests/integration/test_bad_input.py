"""Bad input: exit code 4, one message with names, values and what is allowed, nothing measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.exhaustive import shown
from tests.support.pytest_versions import PYTEST_9

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.projects import Project

PLAIN = """
import pytest
@pytest.mark.gpubench(config="small")
def test_x(gpubench):
    gpubench(lambda: None)
"""
TRAINING = """
import pytest
mlp = pytest.mark.gpubench(config="small")
@mlp
def test_training(gpubench, trainer):
    gpubench(trainer)
def test_other(gpubench):
    gpubench(lambda: None)
"""
KEYS = """
import pytest
@pytest.mark.gpubench(config="small"{ranks})
@pytest.mark.gpubench_set({keys})
def test_x(gpubench, {fixture}):
    gpubench({fixture})
"""
ON_TWO_RANKS = """
import pytest
@pytest.mark.gpubench(ranks=2)
def test_all_reduce(process_group):
    pass
"""
SMALL = "model: {name: mlp}\ntraining: {batch_size: 4}\n"

OPTIONS = {
    "--precision=fp23": ["--precision", "'fp23'", "did you mean 'fp32'", "bf16-true"],
    "--precision=fp16": ["'fp16' (did you mean 'amp' or 'fp16-true'?)"],
    "--precision=": ["--precision"],
    "--preset=tinny": ["--preset", "'tinny'", "did you mean 'tiny'", "full"],
    "--device=gpu": ["--device", "'gpu'", "did you mean 'cuda'", "auto"],
    "--device=cuda:x": ["--device=cuda:x", "number"],
    "--device=cuda": ["--device=cuda: torch ", "available: cpu"],
    "--world-size=0": ["--world-size", "'0'", "positive integer"],
    "--gate": ["--gate", "--baseline"],
    "--baseline=": ["--baseline", "empty", "last"],
    "--table=step,,mfu": ["--table=step,,mfu", "empty name"],
    "--precison=amp": ["unrecognized arguments: --precison", "did you mean: --precision=amp"],
    "--trainin.batch_size=1": ["did you mean: --training.batch_size=1"],
    "--gpubench-presett=x": ["did you mean: --gpubench-preset=x"],
    "--training.batch-size=4": ["unknown key (did you mean 'training.batch_size'?)"],
    "--set=training.batch_size=many": ["training.batch_size", "many", "integer", "auto"],
    "--training.batch_size=-1": ["training.batch_size", "-1", "greater than 0"],
    "--measure.by=guess": ["measure.by", "guess", "ci", "steps", "time"],
    "--measure.throttle=waits": ["did you mean 'wait'", "flag", "fail"],
    "--measure.rounds_file=gone.json": ["gone.json: no such file"],
    "--measure.rounds_file=test_it.py": ["test_it.py is not JSON"],
    "--gate.limits.step_time_s=3": ["gate.limits.step_time_s", "'3'", "3%", "<=0.25"],
    "--precision.name=amp": ["precision.name", "--precision"],
    "--config=missing.yaml": ["missing.yaml"],
    "--experiment=a/b": ["--experiment", "a/b"],
    "--tag=..": ["--tag", ".."],
    "--results-dir=": ["--results-dir", "empty"],
    "--results-dir=test_it.py/results": ["--results-dir"],
    "--benchmark-json=.": ["--benchmark-json=.", "not a folder"],
    "--benchmark-json=missing/x.json": ["--benchmark-json", "missing"],
    "-pno:benchmark": ["-p no:benchmark"],
}
FILES = {
    "training: {batch_sizes: 4}": ["training.batch_sizes", "training.batch_size"],
    "training: {batch_size: four}": ["small.yaml", "training.batch_size", "four"],
    "training: [": ["small.yaml:"],
    "training: {batch_size: 1, batch_size: 2}": ["small.yaml:1:27", "batch_size"],
    "training: !!python/object/apply:os.getcwd []": ["small.yaml:1:11", "python"],
    "trainings: {}": ["trainings", "training"],
    "- a": ["small.yaml"],
}
MARKS = {
    "gpubench(config='smoll')": ["'smoll'", "did you mean 'small'"],
    "gpubench(configs='small')": ["'configs'", "did you mean 'config'"],
    "gpubench(ranks='all')": ["ranks='all'", "'any'", "'>=N'"],
    "gpubench(ranks='>=99999999999999999999')": ["ranks='>=9", "'>=N'"],
    "gpubench(limits={1: '2%'})": ["limits={1: '2%'}", "{metric: limit}"],
    "gpubench(preset=['tiny'])": ["preset=['tiny']", "tiny, full"],
    "gpubench('small')": ["keyword"],
    "precision('fp31')": ["'fp31'", "did you mean 'fp32'"],
    "gpubench_full('bf61')": ["gpubench_full", "'bf61'", "did you mean 'bf16'"],
    "gpubench_full(precision='bf16')": ["only precision names"],
    "gpubench_set('model.channels_last')": ["model.channels_last"],
    "gpubench_set(batch_size=2)": ["'key=value'", "batch_size=2"],
}
COMPONENTS = {
    "--data.source=images": ["data.path=null", "data.source=images", "allowed: cifar-10-binary"],
    "--data.source=images --data.path=confis": [
        *("data.path=confis: no such", "(did you mean 'configs'?)", "allowed: cifar-10")
    ],
    "--data.path=no": ["data.path=no", "data.source=synthetic"],
    "--training.epochs=2": ["training.epochs=2", "no epochs"],
    "--training.evaluate=true": ["training.evaluate=true"],
    "--training.resume=damage": ["training.resume=damage", "did you mean 'damaged'", "allowed"],
    "--training.resume=configs": ["training.resume=configs", "no latest.json"],
    "--training.resume=.": ["training.resume=.", "no latest.json", "did you mean 'damaged'"],
    "--training.optimizer=adam": ["training.optimizer", "'adam'", "did you mean"],
    "--model.compile_backend=eager": ["model.compile_backend=eager", "compilation is off"],
    "--model.compile=default --model.compile_backend=egar": ["'egar'", "did you mean 'eager'"],
    "--model.compile_scope=model": ["model.compile_scope=model", "nothing is compiled"],
}
CONTRADICTIONS = {
    ("model.name=llama", "model.sequence_length=32", "inference.prompt_tokens=40"): (
        "decode",
        ["inference.prompt_tokens=40", "inference.new_tokens=1", "model.sequence_length=32", "41"],
    ),
    ("training.resume=damaged", "training.epochs=2", "training.scheduler=cosine"): (
        "trainer",
        ["training.resume", "training.schedule_steps=null", "training.scheduler=cosine"],
    ),
    ("distributed.parallelism=pipeline", "distributed.pipeline_microbatches=3"): (
        "trainer",
        ["distributed.pipeline_microbatches=3", "1F1B", "2 ranks", "did you mean 2", "2, 4, 8"],
    ),
    ("training.target_loss=0.5",): (
        "convergence",
        ["data.source=synthetic", "no held-out samples", "data.source=digits"],
    ),
    ("distributed.backend=nccl",): ("trainer", ["distributed.backend", "nccl", "gloo"]),
}
TESTS = {
    "both": ("def test_x(gpubench, benchmark): pass\n", ["gpubench", "benchmark"]),
    "through another fixture": (
        """
import pytest
@pytest.fixture
def timer(benchmark): pass
def test_x(gpubench, timer): pass
""",
        ["'timer'", "gpubench", "benchmark"],
    ),
    "contradiction of a case": (
        PLAIN.replace("@", "@pytest.mark.gpubench_set('training.batch_size=2')\n@", 1),
        ["training.batch_size=2", "training.batch_size=3"],
    ),
}


def rows() -> Iterator[object]:
    """Files, arguments, and words of the message of every bad input."""
    for option, said in OPTIONS.items():
        yield pytest.param({}, [option], said, id=option)
    for text, said in FILES.items():
        yield pytest.param({"configs/small.yaml": text}, [], said, id=text)
    for mark, said in MARKS.items():
        test = f"import pytest\n@pytest.mark.{mark}\ndef test_x(gpubench): pass\n"
        yield pytest.param({"test_it.py": test}, [], ["test_it.py::test_x", *said], id=mark)
    for options, said in COMPONENTS.items():
        words = ["test_it.py::test_training[fp32]", *said]
        yield pytest.param({"test_it.py": TRAINING}, options.split(), words, id=options)
    for keys, (fixture, said) in CONTRADICTIONS.items():
        ranks = ", ranks=2" if "pipeline" in keys[0] else ""
        test = KEYS.format(keys=", ".join(map(repr, keys)), fixture=fixture, ranks=ranks)
        options = ["--data.source=digits"] if "resume" in keys[0] else []
        yield pytest.param({"test_it.py": test}, options, said, id=keys[-1])
    for name, (test, said) in TESTS.items():
        options = ["--training.batch_size=3"] if "case" in name else []
        yield pytest.param({"test_it.py": PLAIN, "test_bad.py": test}, options, said, id=name)
    ini = "[pytest]\ngpubench_precision = fp23\n"
    yield pytest.param({"pytest.ini": ini}, [], ["gpubench_precision", "'fp32'"], id="ini key")
    hook = "def pytest_gpubench_environment(config): return ['b7']\n"
    words = ["pytest_gpubench_environment (", "conftest.py", "['b7']", "a mapping"]
    yield pytest.param({"conftest.py": hook}, [], words, id="hook")


@pytest.mark.parametrize(("files", "args", "said"), [*rows()])
def test_bad_input_is_refused_before_anything_is_measured(
    project: Project, files: dict[str, str], args: list[str], said: list[str]
) -> None:
    """The message has what was given and what is allowed; also where warnings are errors."""
    usual = {"test_it.py": PLAIN, "configs/small.yaml": SMALL, "damaged/latest.json": "{}"}
    for name, text in (usual | files).items():
        project.write(name, text)

    run = project.run("-Werror", *args, quick=False)

    assert run.code == 4, run.out + run.err
    assert [word for word in said if word not in run.err] == [], run.err
    assert "Traceback" not in run.out + run.err
    assert run.directories == []


def test_one_reason_of_many_benchmarks_is_said_once(project: Project) -> None:
    """The message names the first and counts the others; a deselected one is not asked."""
    project.write("configs/small.yaml", SMALL)
    tests = TRAINING.replace("(gpubench)", "(gpubench, process_group)")
    project.write("test_it.py", tests + tests.replace("test_", "test_second_"))
    run = project.run("--distributed.backend=nccl", "--device=cpu", quick=False)
    assert run.code == 4
    assert "(and 3 more benchmarks)" in run.err
    others = project.run("--training.optimizer=adam", "-k", "other", quick=True)
    assert (others.code, set(others.outcomes.values())) == (0, {"measured"})


@pytest.mark.own_process
def test_measuring_beside_neighbours_is_refused(project: Project) -> None:
    """Under pytest-xdist nothing is measured, and one message says why."""
    project.write("test_it.py", "def test_x(gpubench): pass\n")
    run = project.run("-n", "2", quick=False)
    assert run.code == 4, run.out + run.err
    assert run.out.count("-n (pytest-xdist)") == 1
    assert "Traceback" not in run.out + run.err
    assert run.directories == []


@pytest.mark.exhaustive
def test_refusals_of_workers_are_printed_by_the_controller(project: Project) -> None:
    """Not as an error within pytest-xdist."""
    project.write("test_bad.py", "def test_bad(gpubench, benchmark): pass")
    run = project.run("-n", "2", "--benchmark-disable", quick=False)
    assert (run.code, run.out.count("ERROR: test_bad.py::test_bad")) == (4, 1), run.out + run.err
    assert "INTERNALERROR" not in run.out


@pytest.mark.parametrize("off", shown("--benchmark-disable", exhaustively=("--benchmark-skip",)))
@pytest.mark.own_process
def test_neighbours_are_welcome_where_nothing_is_measured(project: Project, off: str) -> None:
    """With measuring off, pytest-xdist runs benchmarks like any other test, on one rank."""
    project.write("test_it.py", "def test_x(gpubench): gpubench(lambda: None)\n")
    project.write("test_ranks.py", ON_TWO_RANKS)
    run = project.run("-n", "2", off, "-p", "no:cacheprovider", "-rs", quick=False)
    assert run.code == 0, run.out + run.err
    assert "needs 2 ranks, not 1" in run.out
    assert run.directories == []


NAMED = """
import pytest
@pytest.mark.parametrize("size", ["big", "small"])
def test_work(gpubench, precision, size):
    gpubench(lambda: None)
@pytest.mark.gpubench(ranks=(1, 2))
def test_ranks(gpubench):
    gpubench(lambda: None)
@pytest.mark.parametrize("size", ["big"])
def test_plain(size):
    pass
"""


@PYTEST_9
@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("test_work[big]", " (did you mean 'test_work[big-fp32]'?)"),
        ("test_work[smal-fp32-ranks1]", " (did you mean 'test_work[small-fp32]'?)"),
        ("test_ranks[ranks1]", " (did you mean 'test_ranks'?)"),
        ("test_plain[bg]", ""),
    ],
)
def test_a_benchmark_that_is_not_found_has_a_near_id(
    project: Project, given: str, meant: str
) -> None:
    """With the parameters that no line of its test names; other tests are pytest's own affair."""
    project.write("test_it.py", NAMED)
    ended = project.run(f"test_it.py::{given}")
    assert ended.code == 4
    assert f"::{given.partition('[')[0]}{meant}\n" in ended.err
