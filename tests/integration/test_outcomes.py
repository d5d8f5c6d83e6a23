"""Failure kinds are never merged, and no failure costs what was already measured."""

from __future__ import annotations

import json
import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.support.exhaustive import shown
from tests.support.sessions import written_by

if TYPE_CHECKING:
    from tests.support.projects import Project

KINDS = """
import pytest
from gpubench_plugin import Unsupported

def test_good(gpubench):
    gpubench(lambda: None)

def test_raises_in_the_middle(gpubench):
    calls = iter(range(15))
    gpubench(lambda: next(calls))

def test_fails_after_measuring(gpubench):
    gpubench(lambda: None)
    assert False

def test_teardown_fails(gpubench, broken):
    gpubench(lambda: None)

def test_skipped(gpubench):
    pytest.skip("not today")

def test_unsupported(gpubench):
    raise Unsupported("no such unit here")

def test_oom(gpubench):
    import torch
    def step():
        raise torch.OutOfMemoryError("tried to allocate 20.00 GiB")
    gpubench(step)

def test_called_twice(gpubench):
    gpubench(lambda: None)
    gpubench(lambda: None)

def test_never_called(gpubench):
    pass

def test_bad_amount(gpubench):
    gpubench(lambda: None, samples=10**400)

@pytest.fixture
def broken():
    yield
    raise RuntimeError("at the end")

@pytest.mark.precision("bf16")
def test_other_precision(gpubench):
    gpubench(lambda: None)

@pytest.mark.gpubench(ranks=2)
def test_two_ranks(gpubench):
    gpubench(lambda: None)

@pytest.mark.xfail(strict=True)
def test_unexpectedly_good(gpubench):
    gpubench(lambda: None)

@pytest.mark.xfail(reason="issue 7")
def test_known_to_fail(gpubench):
    gpubench(lambda: None)
    assert False

def test_amount_in_words(gpubench):
    gpubench(lambda: None, samples="8")

@pytest.mark.parametrize("precision", [1e-3])
def test_own_precision(gpubench, precision):
    gpubench(lambda: None)

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
    gpubench(lambda: None)

def test_good_at_the_end(gpubench):
    gpubench(lambda: None)
"""
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
REASONS = {
    "test_unsupported": "no such unit here",
    "test_never_called": "the test did not call gpubench",
    "test_says_nothing": "Mute: <exception str() failed>",
    "test_caught": "gpubench raised ZeroDivisionError: division by zero; "
    "the test caught the exception",
    "test_crashed_elsewhere": "running the test CRASHED with signal 11",
    "test_turned_into_a_failure": "a soft assertion failed",
}


def test_every_kind_of_ending_has_an_outcome_of_its_own(project: Project) -> None:
    """Only a benchmark that passed carries numbers, in every file."""
    project.write("conftest.py", OTHER_PLUGINS)
    project.write("test_kinds.py", KINDS)

    run = project.run("--world-size=1", "--precision=fp32", "--benchmark-json=saved.json")

    assert run.code == 1
    assert {name.partition("[")[0]: outcome for name, outcome in run.outcomes.items()} == {
        "test_good": "measured",
        "test_raises_in_the_middle": "failed",
        "test_fails_after_measuring": "failed",
        "test_teardown_fails": "failed",
        "test_skipped": "skipped",
        "test_unsupported": "unsupported",
        "test_oom": "oom",
        "test_called_twice": "failed",
        "test_never_called": "not_measured",
        "test_bad_amount": "failed",
        "test_other_precision": "unsupported",
        "test_two_ranks": "skipped",
        "test_unexpectedly_good": "failed",
        "test_known_to_fail": "skipped",
        "test_amount_in_words": "failed",
        "test_own_precision": "failed",
        "test_says_nothing": "failed",
        "test_caught": "not_measured",
        "test_crashed_elsewhere": "crashed",
        "test_turned_into_a_failure": "failed",
        "test_good_at_the_end": "measured",
    }
    by_name = {b["name"].partition("[")[0]: b for b in run.summary["benchmarks"]}
    assert [n for n, b in by_name.items() if b["metrics"]] == ["test_good", "test_good_at_the_end"]
    for name, reason in REASONS.items():
        assert by_name[name]["reason"] == reason
    assert "20.00 GiB" in by_name["test_oom"]["reason"]
    assert by_name["test_known_to_fail"]["reason"].startswith("expected to fail (issue 7): ")
    assert "XPASS(strict)" in by_name["test_unexpectedly_good"]["reason"]
    assert "samples='8'; allowed: a number above 0" in by_name["test_amount_in_words"]["reason"]
    digits = f"samples=1{'0' * 39}; allowed: a number above 0"  # more than any float, cut short
    assert digits in by_name["test_bad_amount"]["reason"]
    assert "the parameter 'precision' has a value" in by_name["test_own_precision"]["reason"]
    for file in (project.path / "saved.json", run.directory / "benchmark.json"):
        saved = json.loads(file.read_text())["benchmarks"]
        good = ["test_good[ws1]", "test_good_at_the_end[ws1]"]
        assert [b["name"] for b in saved] == good, file


def test_nothing_measured_is_said(project: Project) -> None:
    """A selection in which nothing was measured says so plainly."""
    project.write("test_it.py", "def test_x(gpubench): pass\n")

    run = project.run()

    assert "nothing was measured" in run.out
    assert run.outcomes == {"test_x[ws1]": "not_measured"}


def test_tf32_on_a_cpu_is_unsupported_with_the_reason(project: Project) -> None:
    """A precision the device lacks is no pass and no failure."""
    project.write("test_it.py", "def test_x(gpubench, precision):\n    gpubench(lambda: None)\n")

    run = project.run("--precision=tf32", "--device=cpu")

    (benchmark,) = run.summary["benchmarks"]
    assert benchmark["outcome"] == "unsupported"
    assert benchmark["reason"].startswith("tf32: ")
    assert run.code == 0


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
    project.write(
        "test_it.py",
        """
        import pytest
        @pytest.mark.gpubench(config="mlp")
        def test_x(gpubench, trainer):
            gpubench(trainer.step, samples=trainer.samples_per_step)
        """,
    )

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
    project.write(
        "test_it.py",
        """
        import pytest
        @pytest.mark.gpubench(config="mlp")
        def test_x(gpubench, trainer):
            gpubench(trainer.step, samples=trainer.samples_per_step)
        """,
    )

    run = project.run("--preset=tiny", f"--{override}", env={"COLUMNS": "200"})

    (benchmark,) = run.summary["benchmarks"]
    assert benchmark["outcome"] == "measured", benchmark["reason"]
    reason = benchmark["correctness"]["loss_drop_lapsed"]
    assert f"is ignored: {override.partition('=')[0]} (--{override}) overrides" in reason
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
    assert run.outcomes == {"test_x[ws1]": "measured"}


def test_unsupported_stays_a_skip_where_warnings_are_errors(project: Project) -> None:
    """A carrier that carries nothing, because its test was skipped, warns of nothing."""
    project.write("test_it.py", "def test_x(gpubench, precision): gpubench(lambda: None)\n")

    run = project.run("--precision=tf32", "--device=cpu", "-W", "error")

    assert run.code == 0, run.out + run.err
    assert run.outcomes == {"test_x[tf32-ws1]": "unsupported"}


def test_saving_that_fails_at_the_end_costs_nothing_of_ours(project: Project) -> None:
    """Where pytest-benchmark cannot save, our files and tables are there, and exit code 1."""
    project.write("test_it.py", "def test_x(gpubench): gpubench(lambda: None)\n")
    project.write("file", "")

    run = project.run("--benchmark-autosave", "--benchmark-storage=file:///proc/nope")

    assert run.code == 1, run.out + run.err
    assert "INTERNALERROR" not in run.out + run.err
    assert "ERROR: error at the end of the session" in run.out
    assert "1 measured" in run.out
    assert run.outcomes == {"test_x[ws1]": "measured"}
    assert (run.directory / "benchmark.json").exists()


@pytest.mark.own_process
def test_full_disk_stops_the_session_and_leaves_earlier_files_intact(project: Project) -> None:
    """When the journal cannot grow, the error is clear, and earlier lines are whole."""
    project.write(
        "test_it.py",
        """
        import resource, signal
        def test_a(gpubench):
            gpubench(lambda: None)
        def test_b(gpubench):
            gpubench(lambda: None)
            # From here on no file may grow: what a full disk does, for any user.
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
        def test_c(gpubench):
            gpubench(lambda: None)
        """,
    )

    project.write(
        "conftest.py",
        """
        import resource
        def pytest_unconfigure():  # what watches this process may write again
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        """,
    )

    run = project.run("-p", "no:cacheprovider")

    assert run.code == 1, run.out + run.err
    assert "cannot write " in run.out
    assert "Traceback" not in run.out + run.err
    events = [line["event"] for line in run.journal if line["event"] not in {"phase", "progress"}]
    assert events == ["run_started", "benchmark"]
    assert not (run.directory / "summary.json").exists()


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
