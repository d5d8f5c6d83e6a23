"""Mistakes of users: each has one message and its kind, and costs no other benchmark."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.support.projects import InlineProject

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.projects import Run

CONFIG = "model: {name: mlp}\ntraining: {batch_size: 4}\n"
BEGINNING = """
    import pytest
    import torch

    MATRIX = torch.ones(4, 4)
    mlp = pytest.mark.gpubench(config="small")
    keys = pytest.mark.gpubench_set


    def work():
        return MATRIX @ MATRIX


    def broken(size):
        raise ValueError(f"{size} is mine")


    @pytest.fixture
    def timer(benchmark):
        return benchmark
"""
HEALTHY = """
    def test_after_{name}(gpubench):
        gpubench(work)
"""
MISTAKES = {
    "result": """
    @mlp
    def test_result(gpubench, trainer):
        gpubench(trainer.step())
""",
    "tensor": """
    def test_tensor(gpubench):
        gpubench(MATRIX @ MATRIX)
""",
    "model": """
    @mlp
    def test_model(gpubench, model):
        gpubench(model)
""",
    "uncalled": """
    @mlp
    def test_uncalled(gpubench, trainer):
        gpubench(lambda: trainer.step)
""",
    "twice": """
    def test_twice(gpubench):
        gpubench(work)
        gpubench(work)
""",
    "amount": """
    def test_amount(gpubench):
        gpubench(work, samples=-1)
""",
    "unit": """
    def test_unit(gpubench):
        gpubench.record("speed", 3.0, unit="furlongs")
        gpubench(work)
""",
    "later": """
    def test_later(gpubench, request):
        gpubench(work)
        request.getfixturevalue("benchmark")(work)
""",
    "instead": """
    def test_instead(gpubench, request):
        request.getfixturevalue("benchmark").pedantic(work)
""",
    "infinite": """
    def test_infinite(gpubench):
        gpubench.record("x", lambda: float("inf"))
        gpubench(work)
""",
    "rate": """
    def test_rate(gpubench):
        gpubench.record("x", -1, unit="samples/s")
        gpubench(work)
""",
    "parameter": """
    @pytest.mark.parametrize("precision", ["fp32"])
    def test_parameter(gpubench, precision):
        gpubench(work)
""",
    "step": """
    def test_step(gpubench):
        gpubench(lambda: broken(3))
""",
    "compiled": """
    def test_compiled(gpubench):
        compiled = torch.compile(broken, backend="eager")
        gpubench(lambda: compiled(4))
""",
    "cause": """
    def test_cause(gpubench):
        try:
            gpubench(lambda: broken(5))
        except ValueError as error:
            raise RuntimeError("caught") from error
""",
    "checkpoint": """
    @mlp
    @keys("training.resume=damaged")
    def test_checkpoint(gpubench, trainer):
        gpubench(trainer)
""",
    "own": """
    @keys("training.scheduler=lineer")
    def test_own(gpubench):
        gpubench.train(torch.nn.Linear(4, 1), MATRIX, torch.sum)
""",
    "part": """
    @mlp
    def test_part(gpubench, moe_layer):
        gpubench(moe_layer("fwd"))
""",
    "size": """
    def test_size(gpubench, collective):
        gpubench(collective("all-reduce", "64 kilo"))
""",
    "unused": """
    def test_unused(gpubench):
        pass
""",
}
ORDINARY = """
    def test_ordinary(benchmark, request):
        request.getfixturevalue("gpubench")(work)
"""
"""A test that does not request gpubench is no benchmark."""
REASONS = {
    "result": "you passed the result of trainer.step() (None) instead of the step; write gpubench",
    "tensor": "you passed a Tensor of shape (4, 4), which is not callable; pass the step itself",
    "model": "the step is called without arguments, but it needs 'input'; write gpubench(lambda: ",
    "uncalled": "a call of the step returned trainer.step instead of calling it",
    "twice": "gpubench was called twice; one step per test",
    "amount": "samples=-1; allowed: a number above 0",
    "unit": "gpubench.record('speed'): unit: unknown 'furlongs'",
    "later": "the test requests both gpubench and pytest-benchmark's benchmark",
    "instead": "the test requests both gpubench and pytest-benchmark's benchmark",
    "infinite": "gpubench.record('x'): value=inf; allowed: a finite number",
    "rate": "MeasurementError: x is -1",
    "parameter": "the parameter 'precision' has ",
    "step": "ValueError: 3 is mine",
    "compiled": "ValueError: 4 is mine",
    "cause": "RuntimeError: caught",
    "checkpoint": "training.resume: ",
    "part": "part of a MoE layer: unknown 'fwd' (did you mean 'forward'?); allowed: forward, ",
    "size": "message size '64 kilo'; allowed: an integer with B, KiB, MiB, GiB, such as 64KiB",
    "own": "training.scheduler: unknown scheduler 'lineer' (did you mean 'linear'?); allowed: ",
    "unused": "the test did not call gpubench",
}
KINDS = dict.fromkeys(MISTAKES, "failed") | {
    "checkpoint": "misconfigured",
    "own": "misconfigured",
    "unused": "not_measured",
}


def project_of(tmp_path_factory: pytest.TempPathFactory, tests: Mapping[str, str]) -> InlineProject:
    """A project of these tests, each followed by a healthy benchmark."""
    project = InlineProject(tmp_path_factory.mktemp("project"))
    project.write("configs/small.yaml", CONFIG)
    project.write("damaged/latest.json", "{}")
    parts = [part + HEALTHY.format(name=name) for name, part in tests.items()]
    project.write("test_it.py", "\n".join([BEGINNING, *parts]))
    return project


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One session of all mistakes."""
    tests = MISTAKES | {"ordinary": ORDINARY}
    return project_of(tmp_path_factory, tests).run("--junitxml=junit.xml")


@pytest.mark.parametrize("name", MISTAKES)
def test_mistake_has_its_kind_and_reason_and_costs_no_other_benchmark(name: str, run: Run) -> None:
    """The reason names no benchmark, since every line that shows it begins with the name."""
    outcomes = {b["name"].partition("[")[0]: b for b in run.summary["benchmarks"]}
    benchmark = outcomes[f"test_{name}"]
    assert (benchmark["outcome"], benchmark["metrics"]) == (KINDS[name], {}), benchmark["reason"]
    assert benchmark["reason"].startswith(REASONS[name])
    assert outcomes[f"test_after_{name}"]["outcome"] == "measured"


def test_short_summary_shows_reasons(run: Run) -> None:
    """A line of pytest's has the id once, then why."""
    lines = re.findall(r"^(?:FAILED|ERROR) test_it.py::test_(\w+).* - (.*)$", run.out, re.MULTILINE)
    reasons = {name.partition("[")[0]: reason for name, reason in lines}
    assert reasons.keys() == (MISTAKES.keys() - {"unused"}) | {"ordinary"}
    assert [name for name, reason in reasons.items() if "test_it.py" in reason] == []
    assert reasons["twice"].startswith("gpubench was called")
    assert reasons["step"] == "ValueError: 3 is mine"
    assert reasons["rate"].startswith("MeasurementError: x is -1")
    assert reasons["ordinary"].startswith("the test requests both")


def test_tracebacks_have_the_users_lines_only(run: Run) -> None:
    """Of what gpubench, pytest-benchmark or torch's compiler called nothing is left.

    A message about a call has its line.
    """
    failures = run.out.partition(" FAILURES ")[2].partition(" warnings summary ")[0]
    assert "in broken" in failures or "raise ValueError" in failures
    assert "gpubench_plugin/" not in failures
    assert "eval_frame" not in failures
    assert re.search(r"test_it.py:\d+: in test_result\n    gpubench\(trainer.step\(\)\)", failures)


def test_full_trace_has_all_frames(tmp_path_factory: pytest.TempPathFactory) -> None:
    """``--full-trace`` is for those who look into the plugin; local variables are shown, too."""
    project = project_of(tmp_path_factory, {"step": MISTAKES["step"]})

    run = project.run("--full-trace", "--showlocals")

    assert "gpubench_plugin/bench/bench.py" in run.out
    assert re.search(r"^size +=", run.out, re.MULTILINE)


def test_misuse_by_an_ordinary_test_has_one_line(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Also in a session without a benchmark."""
    project = project_of(tmp_path_factory, {"ordinary": ORDINARY})

    run = project.run("-k", "ordinary and not after")

    assert (run.code, "gpubench_plugin/" in run.out) == (1, False)
    assert "test_ordinary - the test requests both" in run.out


def test_unused_fixture_is_named(run: Run) -> None:
    """The warning is about the fixture of the test, not about pytest-benchmark's."""
    assert "the test requests gpubench, but never calls it: nothing was measured" in run.out
    assert "Benchmark fixture was not used" not in run.out


def test_session_exits_with_1_if_anything_failed(run: Run) -> None:
    """Beside failures a misconfigured benchmark changes nothing; junit has its reason."""
    assert run.code == 1
    assert "misconfigured benchmark" not in run.out
    junit = (run.results.parent / "junit.xml").read_text()
    assert re.search(r'name="test_checkpoint\[[^>]*><failure message="training.resume: ', junit)


def test_session_exits_with_4_if_nothing_but_configurations_failed(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The other benchmarks are measured; ``--resume`` measures the misconfigured one again."""
    project = project_of(tmp_path_factory, {"checkpoint": MISTAKES["checkpoint"]})

    run = project.run()

    assert run.code == 4
    said = "ERROR: 1 misconfigured benchmark; nothing else failed, so the exit code is 4"
    assert said in run.out
    assert sorted(run.outcomes.values()) == ["measured", "misconfigured"]
    assert run.summary["status"] == "failed"

    again = project.run(f"--resume={run.directory.name}")

    assert again.code == 4
    assert "1 already measured, 1 remaining" in again.out


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> InlineProject:
    """A project of a training, an inference and a benchmark without a model."""
    tests = {
        "training": """
    @mlp
    def test_training(gpubench, trainer):
        gpubench(trainer)
""",
        "inference": """
    @mlp
    def test_inference(gpubench, inference):
        gpubench(inference)
""",
    }
    return project_of(tmp_path_factory, tests)


_TRAINING = "--deselect='test_it.py::test_training[fp32-ws1]'"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--data.source=images"], "data.source=images: data.path is required"),
        (["--data.source=images", "--data.path=no"], "data.path: no does not exist; allowed: "),
        (["--data.path=no"], "data.path=no: not used by data.source=synthetic"),
        (["--training.epochs=2"], "training.epochs=2: this data source has no epochs; use "),
        (["--training.evaluate=true"], "training.evaluate=true: Synthetic: this data source has"),
        (
            ["--training.resume=damage/latest.json"],
            "training.resume=damage/latest.json: no such file or folder; allowed: a checkpoint of ",
        ),
        (
            ["--training.resume=damage"],
            "training.resume=damage: no such file or folder (did you mean 'damaged'?); allowed: a ",
        ),
        (
            ["--training.resume=configs"],
            "training.resume=configs: this folder has no latest.json; allowed: a checkpoint of an ",
        ),
        (
            ["--training.resume=."],
            "training.resume=.: this folder has no latest.json; allowed: ",
        ),
        (["--training.optimizer=adam"], "training.optimizer: unknown optimizer 'adam' (did you "),
        (["--model.compile_backend=eager"], "model.compile_backend=eager: compilation is off"),
        (
            ["--model.compile=default", "--model.compile_backend=egar"],
            "model.compile_backend: unknown 'egar' (did you mean 'eager'?); allowed: ",
        ),
        (["--model.compile_scope=model"], "model.compile_scope=model: nothing is compiled with"),
    ],
)
def test_configuration_of_components_is_refused_before_anything_is_measured(
    usual: InlineProject, options: list[str], message: str
) -> None:
    """One message, which says how to run the benchmarks that it does not concern."""
    run = usual.run(*options)

    assert run.code == 4
    assert f"ERROR: test_it.py::test_training[fp32-ws1]: {message}" in run.err
    assert f"to run the others, add {_TRAINING}" in run.err
    assert "Traceback" not in run.out + run.err
    assert run.directories == []


def test_a_second_measurement_is_refused_before_anything_is_measured(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Of a test that requests pytest-benchmark's fixture as well, itself or through another."""
    tests = {
        "both": """
    def test_both(gpubench, benchmark):
        gpubench(work)
""",
        "indirect": """
    def test_indirect(timer, gpubench):
        gpubench(work)
""",
    }

    project = project_of(tmp_path_factory, tests)
    run = project.run()

    assert (run.code, run.directories) == (4, [])
    both = "requests both gpubench and pytest-benchmark's benchmark, but a test has one measurement"
    assert f"ERROR: test_it.py::test_both[ws1]: the test {both}" in run.err
    assert f"test_it.py::test_indirect[ws1]: with the fixture 'timer' the test {both}" in run.err
    ways_out = [f"--deselect=test_it.py::test_{name}[ws1]" for name in tests]
    assert [way_out for way_out in ways_out if way_out not in run.err.replace("'", "")] == []
    others = project.run(*ways_out)
    assert (others.code, set(others.outcomes.values())) == (0, {"measured"})


def test_keys_that_contradict_each_other_are_refused_before_anything_is_measured(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Each in one line with its benchmark, the values, and what is allowed."""
    tests = {
        "tokens": """
    @pytest.mark.gpubench(config="small")
    @keys("model.name=llama", "model.sequence_length=32", "inference.prompt_tokens=40")
    def test_tokens(gpubench, decode):
        gpubench(decode)
""",
        "schedule": """
    @mlp
    @keys("training.resume=damaged", "training.epochs=2", "training.scheduler=cosine")
    @keys("data.source=digits")
    def test_schedule(gpubench, trainer):
        gpubench(trainer)
""",
        "pipeline": """
    @pytest.mark.gpubench(config="small", ranks=2)
    @keys("distributed.parallelism=pipeline", "distributed.pipeline_microbatches=3")
    def test_pipeline(gpubench, trainer):
        gpubench(trainer)
""",
        "synthetic": """
    @mlp
    @keys("training.target_loss=0.5")
    def test_synthetic(gpubench, convergence):
        gpubench(convergence, setup=convergence.restart)
""",
    }
    reasons = {
        "tokens[fp32-ws1]": "inference.prompt_tokens=40 and inference.new_tokens=1 together exceed "
        "model.sequence_length=32; allowed: 32 together at most, or model.sequence_length of at "
        "least 41",
        "schedule[fp32-ws1]": "training.schedule_steps=null beside training.resume: where "
        "training.scheduler=cosine ends depends on the steps before the checkpoint, too; allowed: "
        "the steps of the whole training, or training.scheduler=constant",
        "pipeline[fp32-ws2]": "distributed.pipeline_microbatches=3 is not supported by 1F1B with a "
        "batch of 8 samples on 2 ranks (did you mean 2?); allowed: 2, 4, 8",
        "synthetic[fp32-ws1]": "data.source=synthetic: this data source has no held-out samples "
        "for evaluation; allowed: data.source=digits, diabetes, text, or images with a test part",
    }

    run = project_of(tmp_path_factory, tests).run("--world-size=1,2")

    assert run.code == 4
    for name, reason in reasons.items():
        assert f"test_it.py::test_{name}: {reason}\n" in run.err
    assert run.directories == []


def test_configuration_of_all_benchmarks_is_refused_once(usual: InlineProject) -> None:
    """The message names the first and counts the others, and there are none to be run."""
    run = usual.run("--distributed.backend=nccl", "--device=cpu")

    assert run.code == 4
    said = "distributed.backend='nccl' requires cuda, not cpu; allowed: auto, gloo"
    assert f"{said} (and 3 more benchmarks)" in run.err
    assert "to run the others" not in run.err


def test_fixtures_of_the_project_are_not_asked(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A project's own data need not follow the configuration; neither does what is deselected."""
    project = project_of(
        tmp_path_factory,
        {
            "training": """
    @pytest.fixture
    def model():
        return torch.nn.Linear(4, 4)

    @mlp
    @keys("model.compile_backend=eager")
    def test_training(gpubench, model):
        gpubench(lambda: model(MATRIX))

    @keys("model.compile_backend=nothing", "model.compile=default")
    @mlp
    def test_other(gpubench, inference):
        gpubench(inference)
"""
        },
    )

    run = project.run("--deselect=test_it.py::test_other")

    assert run.code == 0, run.out + run.err
