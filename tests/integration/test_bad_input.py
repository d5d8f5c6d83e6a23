"""Bad input: exit code 4, one message that says what is allowed, nothing measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.exhaustive import shown

if TYPE_CHECKING:
    from tests.support.projects import Project

BENCHMARK = """
import pytest
@pytest.mark.gpubench(config="small")
def test_x(gpubench):
    gpubench(lambda: None)
"""
ON_TWO_RANKS = """
import pytest
@pytest.mark.gpubench(ranks=2)
def test_all_reduce(process_group):
    pass
"""
SMALL = "training: {batch_size: 4}\n"


@pytest.fixture
def small(project: Project) -> Project:
    """A project with one benchmark and its configuration."""
    project.write("test_it.py", BENCHMARK)
    project.write("configs/small.yaml", SMALL)
    return project


def refused(project: Project, *args: str) -> str:
    """The message with which pytest refuses `args`."""
    run = project.run(*args, quick=False)
    assert run.code == 4, run.out + run.err
    assert "Traceback" not in run.out + run.err
    assert run.directories == []
    return run.err


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--precision=fp23", ["--precision", "'fp23'", "did you mean 'fp32'", "bf16-true"]),
        ("--precision=fp16", ["'fp16' (did you mean 'amp' or 'fp16-true'?)"]),
        ("--precision=", ["--precision"]),
        ("--preset=tinny", ["--preset", "'tinny'", "did you mean 'tiny'", "full"]),
        ("--device=gpu", ["--device: unknown 'gpu' (did you mean 'cuda'?); allowed: auto, cuda"]),
        ("--device=cuda:x", ["--device=cuda:x", "number"]),
        ("--device=cuda", ["--device=cuda: torch ", "available: cpu"]),
        ("--precison=amp", ["unrecognized arguments: --precison", "did you mean: --precision=amp"]),
        ("--worldsize=2", ["unrecognized arguments: --worldsize", "did you mean: --world-size=2"]),
        ("--trainin.batch_size=1", ["did you mean: --training.batch_size=1"]),
        ("--gpubench-presett=x", ["did you mean: --gpubench-preset=x"]),
        ("--presicion=amp", ["arguments: --presicion", "did you mean: --precision=amp"]),
        ("--training.batch-size=4", ["unknown key (did you mean 'training.batch_size'?)"]),
        ("--training.batch_sizes=64", ["training.batch_sizes", "training.batch_size"]),
        ("--set=training.batch_size=many", ["training.batch_size", "many", "integer"]),
        ("--training.batch_size=-1", ["training.batch_size", "-1"]),
        ("--measure.by=guess", ["measure.by", "guess", "ci", "steps", "time"]),
        ("--precision.name=amp", ["precision.name", "--precision"]),
        ("--config=missing.yaml", ["missing.yaml"]),
        ("--experiment=a/b", ["--experiment", "a/b"]),
        ("--tag=..", ["--tag", ".."]),
        ("--results-dir=", ["--results-dir", "empty"]),
        ("--benchmark-json=.", ["--benchmark-json=.", "a folder"]),
        ("--benchmark-json=", ["--benchmark-json", "a folder"]),
        ("--benchmark-json=missing/x.json", ["--benchmark-json", "missing"]),
    ],
)
def test_bad_option_is_refused_before_anything_is_measured(
    small: Project, option: str, said: list[str]
) -> None:
    """The message names option, value and what is allowed; also where warnings are errors."""
    message = refused(small, "-Werror", option)

    assert [word for word in said if word not in message] == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("training: {batch_sizes: 4}", ["training.batch_sizes", "training.batch_size"]),
        ("training: {batch_size: four}", ["training.batch_size", "four"]),
        ("training: [", ["small.yaml:1:12"]),
        ("training: {batch_size: 1, batch_size: 2}", ["small.yaml", "batch_size"]),
        ("training: !!python/object/apply:os.getcwd []", ["small.yaml", "python"]),
        ("trainings: {}", ["trainings", "training"]),
        ("- a", ["small.yaml"]),
    ],
)
def test_bad_configuration_file_is_refused(small: Project, text: str, said: list[str]) -> None:
    """The message names the file, the key and what is allowed."""
    small.write("configs/small.yaml", text)

    message = refused(small)

    assert [word for word in said if word not in message] == []


def test_missing_configuration_names_the_nearest(small: Project) -> None:
    """A benchmark whose configuration is not there is refused with the folders searched."""
    small.write("test_it.py", BENCHMARK.replace('"small"', '"smoll"'))

    message = refused(small)

    assert "'small'" in message


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        ("gpubench(configs='small')", ["'configs'", "did you mean 'config'"]),
        ("gpubench(ranks='all')", ["ranks='all'", "'any'", "'>=N'"]),
        ("gpubench(ranks='>=99999999999999999999')", ["ranks='>=9", "'>=N'"]),
        ("gpubench(limits={1: '2%'})", ["limits={1: '2%'}", "{metric: limit}"]),
        ("gpubench('small')", ["keyword"]),
        ("precision('fp31')", ["'fp31'", "did you mean 'fp32'"]),
        ("gpubench(preset=['tiny'])", ["preset=['tiny']", "tiny, full"]),
        ("gpubench_set('model.channels_last')", ["model.channels_last"]),
        ("gpubench_set(batch_size=2)", ["'key=value'", "batch_size=2"]),
    ],
)
def test_bad_mark_is_refused(small: Project, mark: str, said: list[str]) -> None:
    """The message names the test, the mark and what is allowed."""
    small.write("test_it.py", f"import pytest\n@pytest.mark.{mark}\ndef test_x(gpubench): pass\n")

    message = refused(small)

    assert [word for word in ["test_it.py::test_x", *said] if word not in message] == []


def test_results_below_a_file_are_refused(small: Project) -> None:
    """A results directory that cannot be written is found before the first benchmark."""
    small.write("file", "")

    message = refused(small, "--results-dir=file/results")

    assert "--results-dir" in message


def test_facts_of_a_hook_that_are_no_mapping_are_refused(small: Project) -> None:
    """The message names the hook, its file, and what it returned."""
    small.write("conftest.py", "def pytest_gpubench_environment(config): return ['b7']\n")

    message = refused(small)

    assert "pytest_gpubench_environment (" in message
    assert "conftest.py) returned ['b7']; allowed: a mapping of facts, or None" in message


def test_contradiction_to_a_case_is_refused(small: Project) -> None:
    """A case whose parameter sets a key is not measured with another value of it."""
    small.write(
        "test_it.py",
        BENCHMARK.replace("@", "@pytest.mark.gpubench_set('training.batch_size=2')\n@", 1),
    )

    message = refused(small, "--training.batch_size=3")

    assert "training.batch_size=2" in message


def test_broken_ini_value_is_refused_only_with_benchmarks_or_at_configure(small: Project) -> None:
    """A bad default in the ini file is as bad as a bad flag."""
    small.write("pytest.ini", "[pytest]\ngpubench_precision = fp23\n")

    assert "did you mean 'fp32'" in refused(small)


@pytest.mark.own_process
def test_measuring_beside_neighbours_is_refused(small: Project) -> None:
    """Under pytest-xdist nothing is measured, and one message says why."""
    run = small.run("-n", "2", quick=False)

    assert run.code == 4, run.out + run.err
    assert run.out.count("-n (pytest-xdist)") == 1
    assert "Traceback" not in run.out + run.err
    assert run.directories == []


@pytest.mark.exhaustive
def test_refusals_of_workers_are_printed_by_the_controller(small: Project) -> None:
    """Not as an error within pytest-xdist."""
    small.write("test_bad.py", "def test_bad(gpubench, benchmark): pass")
    run = small.run("-n", "2", "--benchmark-disable", quick=False)

    assert (run.code, run.out.count("ERROR: test_bad.py::test_bad")) == (4, 1), run.out + run.err
    assert "INTERNALERROR" not in run.out


@pytest.mark.parametrize("off", shown("--benchmark-disable", exhaustively=("--benchmark-skip",)))
@pytest.mark.own_process
def test_neighbours_are_welcome_where_nothing_is_measured(small: Project, off: str) -> None:
    """With measuring off, pytest-xdist runs benchmarks like any other test, on one rank."""
    small.write("test_ranks.py", ON_TWO_RANKS)
    run = small.run("-n", "2", off, "-p", "no:cacheprovider", "-rs", quick=False)

    assert run.code == 0, run.out + run.err
    assert "needs 2 ranks, not 1" in run.out
    assert run.directories == []


def test_missing_carrier_is_refused(small: Project) -> None:
    """Without pytest-benchmark there is nothing that carries the samples: said, not a traceback."""
    assert "-p no:benchmark" in refused(small, "-p", "no:benchmark")
