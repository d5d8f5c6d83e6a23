"""Failure kinds are never merged, and no failure costs what was already measured."""

from __future__ import annotations

import json
import re
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.exhaustive import shown
from tests.support.messages import mentions
from tests.support.projects import InlineProject
from tests.support.pytest_versions import PYTEST_9
from tests.support.sessions import written_by

if TYPE_CHECKING:
    from tests.support.projects import Project, Run

FILES = {
    "configs/small.yaml": "model: {name: mlp}\ntraining: {batch_size: 4}\n",
    "configs/cnn.yaml": "model: {name: cnn}\ntraining: {batch_size: 4}\n",
    "damaged/latest.json": "{}",
}
BEGINNING = """
import sys
import pytest
import torch
from gpubench_plugin.core.errors import Unsupported

MATRIX = torch.ones(4, 4)
mlp = pytest.mark.gpubench(config="small")
cnn = pytest.mark.gpubench(config="cnn")
keys = pytest.mark.gpubench_set

def work():
    return MATRIX @ MATRIX

def broken(size):
    raise ValueError(f"{size} is mine")
"""
TESTS = """
def test_good(gpubench):
    gpubench(work)

@mlp
def test_result(gpubench, trainer):
    gpubench(trainer.step())

def test_twice(gpubench):
    gpubench(work)
    gpubench(work)

def test_amount(gpubench):
    gpubench(work, samples=-1)

def test_later(gpubench, request):
    gpubench(work)
    request.getfixturevalue("benchmark")(work)

def test_instead(gpubench, request):
    request.getfixturevalue("benchmark").pedantic(work)

def test_rate(gpubench):
    gpubench.record("x", -1, unit="samples/s")
    gpubench(work)

@pytest.mark.parametrize("precision", ["fp32"])
def test_parameter(gpubench, precision):
    gpubench(work)

def test_step(gpubench):
    calls = iter(range(15))
    gpubench(lambda: next(calls) < 14 or broken(3))

def test_compiled(gpubench):
    compiled = torch.compile(broken, backend="eager")
    gpubench(lambda: compiled(4))

def test_cause(gpubench):
    try:
        gpubench(lambda: broken(5))
    except ValueError as error:
        raise RuntimeError("caught") from error

@mlp
@keys("training.resume=damaged")
def test_checkpoint(gpubench, trainer):
    gpubench(trainer)

@keys("training.scheduler=lineer")
def test_own(gpubench):
    gpubench.train(torch.nn.Linear(4, 1), MATRIX, torch.sum)

def test_unused(gpubench):
    pass

def test_fails_after_measuring(gpubench):
    gpubench(work)
    assert False

@pytest.fixture
def raising_teardown():
    yield
    raise RuntimeError("at the end")

def test_teardown_fails(gpubench, raising_teardown):
    gpubench(work)

def test_skipped(gpubench):
    pytest.skip("not today")

def test_oom(gpubench):
    def step():
        raise torch.OutOfMemoryError("tried to allocate 20.00 GiB")
    gpubench(step)

@pytest.mark.gpubench(ranks=2)
def test_two_ranks(gpubench):
    gpubench(work)

@pytest.mark.xfail(strict=True)
def test_unexpectedly_good(gpubench):
    gpubench(work)

@pytest.mark.xfail(reason="issue 7")
def test_known_to_fail(gpubench):
    gpubench(work)
    assert False

class Mute(BaseException):
    def __str__(self):
        raise ValueError
    __repr__ = __str__

def test_says_nothing(gpubench):
    def step():
        raise BaseExceptionGroup("two", [Mute(), Mute()]) from Mute()
    try:
        gpubench(step)
    except BaseExceptionGroup as group:
        raise group.exceptions[0]

def test_caught(gpubench):
    with pytest.raises(ZeroDivisionError):
        gpubench(lambda: 1 / 0)

def test_crashed_elsewhere(gpubench):
    pass

def test_turned_into_a_failure(gpubench):
    gpubench(work)

def test_unsupported(gpubench):
    raise Unsupported("no such unit here")

@cnn
@keys("training.optimizer=adamw")
@pytest.mark.precision("fp16-true")
def test_fp16(gpubench, trainer):
    gpubench(trainer.step)

@cnn
@keys("distributed.parallelism=fsdp2", "distributed.fsdp_param_dtype=bf16")
@pytest.mark.precision("bf16")
def test_sharded_batch_norm(gpubench, trainer):
    gpubench(trainer.step)

@pytest.mark.precision("tf32")
def test_other_precision(gpubench, precision):
    gpubench(work)

@pytest.fixture
def no_transformers(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)

@keys("model.name=vit")
@pytest.mark.gpubench
def test_missing_package(no_transformers, gpubench, trainer):
    gpubench(trainer.step)

@cnn
@keys("model.channels_last=true")
def test_layout(gpubench, model, tmp_path):
    from benchmarks.system.checkpoint_formats import CheckpointIO

    checkpoint = CheckpointIO("safetensors", model.state_dict(), tmp_path)
    checkpoint.verify()
    gpubench(checkpoint.save)

def test_good_at_the_end(gpubench):
    gpubench(work)
"""
BOTH = ["requests both gpubench and pytest-benchmark's benchmark"]
ENDINGS: dict[str, tuple[str, list[str]]] = {
    "good": ("measured", []),
    "result": ("failed", ["None is not callable"]),
    "twice": ("failed", ["gpubench was called twice"]),
    "amount": ("failed", ["samples=-1", "a number above 0"]),
    "later": ("failed", BOTH),
    "instead": ("failed", BOTH),
    "rate": ("failed", ["MeasurementError: x is -1"]),
    "parameter": ("failed", ["fixture or parameter 'precision'"]),
    "step": ("failed", ["ValueError: 3 is mine"]),
    "compiled": ("failed", ["ValueError: 4 is mine"]),
    "cause": ("failed", ["RuntimeError: caught"]),
    "checkpoint": ("misconfigured", ["training.resume: "]),
    "own": ("misconfigured", ["training.scheduler", "'lineer'", "did you mean 'linear'"]),
    "unused": ("not_measured", ["did not call gpubench"]),
    "fails_after_measuring": ("failed", ["assert False"]),
    "teardown_fails": ("failed", ["at the end"]),
    "skipped": ("skipped", ["not today"]),
    "oom": ("oom", ["20.00 GiB"]),
    "two_ranks": ("skipped", ["2 ranks"]),
    "unexpectedly_good": ("failed", ["XPASS(strict)"]),
    "known_to_fail": ("skipped", ["expected to fail (issue 7): "]),
    "says_nothing": ("failed", ["Mute: <exception str() failed>"]),
    "caught": ("not_measured", ["ZeroDivisionError", "the test caught the exception"]),
    "crashed_elsewhere": ("crashed", ["CRASHED with signal 11"]),
    "turned_into_a_failure": ("failed", ["a soft assertion failed"]),
    "unsupported": ("unsupported", ["no such unit here"]),
    "fp16": ("unsupported", ["adamw with fp16", "amp or bf16-true"]),
    "sharded_batch_norm": ("unsupported", ["distributed.fsdp_param_dtype=bf16", "batch norm"]),
    "other_precision": ("unsupported", ["tf32: "]),
    "missing_package": ("unsupported", ["transformers", "pip install 'pytest-gpubench[suite]'"]),
    "layout": ("unsupported", ["safetensors", "set model.channels_last=false"]),
    "good_at_the_end": ("measured", []),
}
ORDINARY = """
def test_ordinary(benchmark, request):
    request.getfixturevalue("gpubench")(work)
"""
"""A test that does not request gpubench is no benchmark."""

OTHER_PLUGINS = """
import pytest
from pytest import TestReport

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item):
    if "crashed_elsewhere" not in item.name:
        return None
    # What pytest-forked logs of a child that died: one report, of no phase.
    hook = item.ihook
    hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    said = "running the test CRASHED with signal 11"
    report = TestReport(item.nodeid, item.location, {}, "failed", said, "???")
    hook.pytest_runtest_logreport(report=report)
    hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True

@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if call.when == "call" and "turned_into_a_failure" in item.name:
        report.outcome, report.longrepr = "failed", "a soft assertion failed"
    return report
"""


def project_of(folder: Any, tests: str) -> InlineProject:
    """A project with these tests."""
    project = InlineProject(folder)
    for name, text in FILES.items():
        project.write(name, text)
    project.write("test_it.py", BEGINNING + tests)
    return project


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One session of all of them, on a CPU."""
    project = project_of(tmp_path_factory.mktemp("project"), TESTS + ORDINARY)
    project.write("conftest.py", OTHER_PLUGINS)
    options = ("--world-size=1", "--device=cpu", "--benchmark-json=saved.json")
    return project.run(*options, "--junitxml=junit.xml")


@pytest.mark.parametrize("name", ENDINGS)
def test_every_kind_of_ending_has_its_outcome_and_reason(name: str, ended: Run) -> None:
    """Only a benchmark that passed carries numbers; the reason has names and values, no id."""
    (benchmark,) = (b for b in ended.summary["benchmarks"] if _name(b) == name)
    outcome, words = ENDINGS[name]
    assert benchmark["outcome"] == outcome, benchmark["reason"]
    assert [word for word in words if word not in benchmark["reason"]] == [], benchmark["reason"]
    assert (benchmark["metrics"] != {}) == (outcome == "measured")
    assert "test_it.py" not in benchmark["reason"]


def test_only_what_was_measured_is_saved(ended: Run) -> None:
    """In every file; beside failures a misconfigured benchmark does not change exit code 1."""
    assert ended.code == 1
    assert "misconfigured benchmark;" not in ended.out
    for file in (ended.results.parent / "saved.json", ended.directory / "benchmark.json"):
        saved = json.loads(file.read_text())["benchmarks"]
        assert [b["name"] for b in saved] == ["test_good", "test_good_at_the_end"], file
    junit = (ended.results.parent / "junit.xml").read_text()
    assert re.search(r'name="test_checkpoint\[[^>]*><failure message="training.resume: ', junit)


@PYTEST_9
def test_short_summary_shows_reasons(ended: Run) -> None:
    """A line of pytest's has the id once, then why."""
    found = re.findall(r"^(?:FAILED|ERROR) test_it.py::test_(\w+).* - (.*)$", ended.out, re.M)
    reasons = dict(found)
    assert [name for name, reason in found if "test_it.py" in reason] == []
    assert reasons["twice"].startswith("gpubench was called")
    assert reasons["step"] == "ValueError: 3 is mine"
    assert reasons["ordinary"].startswith("the test requests both")


def test_tracebacks_have_the_users_lines_only(ended: Run) -> None:
    """Of what gpubench, pytest-benchmark or torch's compiler called nothing is left.

    A message about a call has its line.
    """
    failures = ended.out.partition(" FAILURES ")[2].partition(" warnings summary ")[0]
    assert "in broken" in failures or "raise ValueError" in failures
    assert "gpubench_plugin/" not in failures
    assert "eval_frame" not in failures
    assert re.search(r"test_it.py:\d+: in test_result\n    gpubench\(trainer.step\(\)\)", failures)


def test_unused_fixture_is_named(ended: Run) -> None:
    """The warning is about the fixture of the test, not about pytest-benchmark's."""
    assert mentions(ended.out, "requests gpubench, but never calls it", "nothing was measured")
    assert "Benchmark fixture was not used" not in ended.out


def test_full_trace_has_all_frames(project: Project) -> None:
    """``--full-trace`` is for those who look into the plugin; local variables are shown, too."""
    project = project_of(
        project.path, "def test_step(gpubench):\n    gpubench(lambda: broken(3))\n"
    )
    run = project.run("--full-trace", "--showlocals")
    assert "gpubench_plugin/bench/bench.py" in run.out
    assert re.search(r"^size +=", run.out, re.MULTILINE)


@PYTEST_9
def test_misuse_by_an_ordinary_test_has_one_line(project: Project) -> None:
    """Also in a session without a benchmark."""
    run = project_of(project.path, ORDINARY).run()
    assert (run.code, "gpubench_plugin/" in run.out) == (1, False)
    assert "test_ordinary - the test requests both" in run.out


def test_session_exits_with_4_if_nothing_but_configurations_failed(project: Project) -> None:
    """The other benchmarks are measured; ``--resume`` measures the misconfigured one again."""
    tests = """
@mlp
@keys("training.resume=damaged")
def test_checkpoint(gpubench, trainer):
    gpubench(trainer)

def test_after(gpubench):
    gpubench(work)
"""
    project = project_of(project.path, tests)

    run = project.run()
    again = project.run(f"--resume={run.directory.name}")

    assert (run.code, again.code) == (4, 4)
    assert "ERROR: 1 misconfigured benchmark" in run.out
    assert sorted(run.outcomes.values()) == ["measured", "misconfigured"]
    assert run.summary["status"] == "failed"
    assert "1 already measured, 1 remaining" in again.out


def test_fixtures_of_the_project_are_not_asked(project: Project) -> None:
    """A project's own data need not follow the configuration."""
    tests = """
@pytest.fixture
def model():
    return torch.nn.Linear(4, 4)

@mlp
@keys("model.compile_backend=eager")
def test_training(gpubench, model):
    gpubench(lambda: model(MATRIX))
"""
    run = project_of(project.path, tests).run()
    assert run.code == 0, run.out + run.err


def test_a_removed_working_directory_is_one_line(project: Project) -> None:
    """The next benchmark is measured, in a directory that exists."""
    tests = """
import os

@pytest.fixture(scope="module", autouse=True)
def elsewhere(tmp_path_factory):
    before = os.getcwd()
    os.chdir(tmp_path_factory.mktemp("elsewhere"))
    yield
    os.chdir(before)

def test_removes(gpubench):
    gpubench(work)
    os.rmdir(os.getcwd())

def test_next(gpubench):
    gpubench(work)
"""
    run = project_of(project.path, tests).run()
    assert (run.code, "Traceback" in run.out, "gpubench_plugin/" in run.out) == (1, False, False)
    assert "\nthe benchmark removed its working directory, /" in run.out
    assert run.outcomes["test_next"] == "measured"


def test_nothing_measured_is_said(project: Project) -> None:
    """A selection in which nothing was measured says so plainly."""
    project.write("test_it.py", "def test_x(gpubench): pass\n")

    run = project.run()

    assert "nothing was measured" in run.out
    assert run.outcomes == {"test_x": "not_measured"}


def test_unsupported_stays_a_skip_where_warnings_are_errors(project: Project) -> None:
    """A fixture that has measured nothing, because its test was skipped, warns of nothing."""
    project.write("test_it.py", "def test_x(gpubench, precision): gpubench(lambda: None)\n")

    run = project.run("--precision=tf32", "--device=cpu", "-W", "error")

    assert run.code == 0, run.out + run.err
    assert run.outcomes == {"test_x[tf32]": "unsupported"}


def _name(benchmark: dict[str, Any]) -> str:
    return str(benchmark["name"]).partition("[")[0].removeprefix("test_")


TRAINED = """
import pytest
@pytest.mark.gpubench(config="mlp")
def test_x(gpubench, trainer):
    gpubench(trainer.step, samples=trainer.samples_per_step)
"""


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("--training.learning_rate=1e30", "loss"),
        ("--training.loss_drop=1e-9", "training.loss_drop"),
    ],
)
def test_wrong_training_fails_instead_of_being_measured(
    project: Project, override: str, said: str
) -> None:
    """A loss that is not finite, or does not fall as configured, fails the benchmark."""
    project.write("test_it.py", TRAINED)
    run = project.run("--preset=tiny", override)

    (benchmark,) = run.summary["benchmarks"]
    assert benchmark["outcome"] == "failed"
    assert benchmark["reason"].startswith("CorrectnessError")
    assert said in benchmark["reason"]


@pytest.mark.parametrize("override", ["training.learning_rate=2e-3", "training.steps=3"])
def test_course_of_ones_own_ends_the_loss_drop_of_the_preset(
    project: Project, override: str
) -> None:
    """Everyday overrides are measured; that the check lapsed stands in the record and below."""
    project.write("test_it.py", TRAINED)
    run = project.run("--preset=tiny", f"--{override}", env={"COLUMNS": "200"})

    (benchmark,) = run.summary["benchmarks"]
    assert benchmark["outcome"] == "measured", benchmark["reason"]
    reason = benchmark["correctness"]["loss_drop_lapsed"]
    assert f"{override.partition('=')[0]} (--{override})" in reason
    assert "loss_drop=0.5 from" in run.out


@pytest.mark.parametrize(
    "number", shown(signal.SIGTERM, exhaustively=[signal.SIGINT, signal.SIGHUP])
)
@pytest.mark.own_process
def test_interruption_keeps_what_was_measured(project: Project, number: signal.Signals) -> None:
    """Ctrl-C, a scheduler or a closed terminal: the first is recorded, the status says it.

    The same signal again, as from ``timeout``, neither kills the session nor disturbs its writing.
    Where warnings are errors, none of an unused fixture is one of the session's end.
    """
    project.write("pytest.ini", "[pytest]\nfilterwarnings = error\n")
    project.write(
        "conftest.py",
        f"""
        import os
        def again():
            os.kill(os.getpid(), {int(number)})
        def pytest_keyboard_interrupt():
            again()
        def pytest_benchmark_generate_commit_info():  # while benchmark.json is being written
            again()
        """,
    )
    project.write(
        "test_it.py",
        """
        import pathlib, pytest, time
        short = pytest.mark.gpubench_set("measure.by=steps", "measure.steps=20")
        @short
        def test_a(gpubench):
            gpubench(lambda: None)
        @pytest.mark.gpubench_set("measure.by=time", "measure.time_s=600")
        def test_b(gpubench):
            pathlib.Path("started").touch()
            gpubench(lambda: time.sleep(0.01))
        @short
        def test_c(gpubench):
            gpubench(lambda: None)
        """,
    )
    process = project.start()
    deadline = time.monotonic() + 120
    while not (project.path / "started").exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.3)
    process.send_signal(number)
    out, err = written_by(process, within_s=120)

    (directory,) = (project.path / "results").glob("*/*")
    summary = json.loads((directory / "summary.json").read_text())
    assert process.returncode == 2, out + err
    assert "error at the end of the session" not in out
    assert summary["status"] == "interrupted"
    assert [(b["name"][:6], b["outcome"], b["reason"]) for b in summary["benchmarks"]] == [
        ("test_a", "measured", ""),
        ("test_b", "not_measured", "interrupted"),
        ("test_c", "not_measured", "interrupted"),
    ]
    assert (directory / "benchmark.json").exists()


@pytest.mark.exhaustive
@pytest.mark.own_process
def test_ctrl_c_in_a_teardown_keeps_the_number(project: Project) -> None:
    """A benchmark that is measured stays measured, whatever happens to its teardown."""
    project.write(
        "test_it.py",
        """
        import pytest
        @pytest.fixture
        def interrupted():
            yield
            raise KeyboardInterrupt
        def test_x(gpubench, interrupted):
            gpubench(lambda: None)
        """,
    )

    run = project.run()

    assert run.code == 2
    assert run.summary["status"] == "interrupted"
    assert run.outcomes == {"test_x": "measured"}


def test_saving_that_fails_at_the_end_costs_nothing_of_ours(project: Project) -> None:
    """Where pytest-benchmark cannot save, our files and tables are there, and exit code 1."""
    project.write("test_it.py", "def test_x(gpubench): gpubench(lambda: None)\n")
    project.write("file", "")

    run = project.run("--benchmark-autosave", "--benchmark-storage=file:///proc/nope")

    assert run.code == 1, run.out + run.err
    assert "INTERNALERROR" not in run.out + run.err
    assert "ERROR: error at the end of the session" in run.out
    assert "1 measured" in run.out
    assert run.outcomes == {"test_x": "measured"}
    assert (run.directory / "benchmark.json").exists()


def test_session_that_loses_a_benchmark_is_not_complete(project: Project) -> None:
    """A benchmark that another plugin kept from running costs the session its success."""
    project.write(
        "conftest.py",
        """
        import pytest
        @pytest.hookimpl(tryfirst=True)
        def pytest_runtest_protocol(item):
            return True if "lost" in item.name else None
        """,
    )
    project.write(
        "test_it.py",
        """
        def test_there(gpubench): gpubench(lambda: None)
        def test_lost(gpubench): gpubench(lambda: None)
        """,
    )

    run = project.run()

    assert run.code == 1
    assert run.summary["status"] == "failed"
    assert list(run.outcomes.values()) == ["measured", "not_measured"]


SUBTESTS = """
import unittest
import pytest

any_ranks = pytest.mark.gpubench(ranks="any")

def check(subtests):
    with subtests.test("skipped"):
        pytest.skip("no device")
    with subtests.test("expected"):
        pytest.xfail("known")

@pytest.fixture
def checked(subtests):
    check(subtests)
    yield
    check(subtests)

@any_ranks
def test_around(gpubench, checked):
    gpubench(lambda: None)

@any_ranks
def test_inside(gpubench, subtests):
    check(subtests)
    gpubench(lambda: None)
    check(subtests)

@any_ranks
def test_failed(gpubench, subtests):
    with subtests.test("before"):
        assert False
    gpubench(lambda: None)
    with subtests.test("after"):
        assert False

@any_ranks
def test_itself(gpubench, subtests):
    gpubench(lambda: None)
    check(subtests)
    pytest.skip("no more")

def test_theirs(benchmark, subtests):
    check(subtests)
    benchmark(sum, [1])
    check(subtests)

class TestCase(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def requested(self, gpubench):
        self.gpubench = gpubench

    def test_unit(self):
        with self.subTest(i=1):
            self.skipTest("no device")
        self.gpubench(lambda: None)
        with self.subTest(i=2):
            self.skipTest("no device")
"""


@PYTEST_9
@pytest.mark.parametrize(
    "way", [(), pytest.param(("--world-size=2",), marks=pytest.mark.exhaustive)], ids=["here", "2"]
)
def test_a_subtest_decides_nothing(project: Project, way: tuple[str, ...]) -> None:
    """The outcome is that of the test's own reports; only pytest counts what failed."""
    project.write("test_it.py", SUBTESTS)
    run = project.run("--adopt", *way, "-k=not unit" if way else "-v")
    suffix = "[ranks2]" if way else ""
    assert run.code == 1
    assert run.outcomes == {
        f"test_around{suffix}": "measured",
        f"test_inside{suffix}": "measured",
        f"test_failed{suffix}": "measured",
        f"test_itself{suffix}": "skipped",
        "test_theirs": "measured",
        **({} if way else {"test_unit": "measured"}),
    }, run.out + run.err
    assert "FixtureAlreadyUsed" not in run.out
    saved = json.loads((run.directory / "benchmark.json").read_text())["benchmarks"]
    names = {benchmark["name"] for benchmark in saved}
    assert names == {name for name, ended in run.outcomes.items() if ended == "measured"}
