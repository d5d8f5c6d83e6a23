"""A session that is asked to end while a compiler, or whatever else, swallows what is raised."""

from __future__ import annotations

import signal
from collections import Counter

import pytest

from gpubench_plugin.session import interruption
from tests.support.asked_to_end import Moment, asked, write_tests
from tests.support.exhaustive import shown
from tests.support.projects import InlineProject

NAMES = {f"test_{name}": name for name in ("before", "compiled", "after")}


def kept(project: InlineProject, seed: int) -> str:
    """What became of the request of a seed: ``kept``, or how it was lost."""
    folder = project.path / f"{seed}"
    folder.mkdir()
    one = InlineProject(folder)
    write_tests(one)
    run = asked(one, "before or compiled or after", Moment.of_seed(seed))
    ended = (folder / "ended").read_text().split()
    outcomes = run.outcomes
    expected = {name: "measured" if name in ended else "not_measured" for name in NAMES}
    if (run.code, run.summary["status"]) != (2, "interrupted"):
        return f"exit {run.code}, {run.summary['status']}"
    return "kept" if outcomes == expected else f"{outcomes}"


@pytest.mark.slow
@pytest.mark.parametrize("seeds", shown(range(12), exhaustively=[range(12, 200)]))
def test_no_moment_of_a_compiler_loses_a_request(project: InlineProject, seeds: range) -> None:
    """Exit code 2 and an interrupted run, with what had ended and nothing else."""
    write_tests(project)
    assert project.run("-k", "before or compiled or after").code == 0  # and torch is imported
    assert Counter(kept(project, seed) for seed in seeds) == {"kept": len(seeds)}


@pytest.mark.slow
def test_plain_test_that_swallows_a_request_is_the_last(project: InlineProject) -> None:
    """Of a session with benchmarks."""
    write_tests(project)
    run = asked(project, "plain or benchmark", Moment(at_s=0.01))
    assert (run.code, run.summary["status"]) == (2, "interrupted")
    assert run.outcomes == {"test_benchmark": "not_measured"}
    assert not (project.path / "ended").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["endless", "mutex", "lock"])
def test_main_thread_that_does_not_react_is_ended(
    project: InlineProject, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """After a grace period; what was measured is recorded, and the message names the signal."""
    monkeypatch.setattr(interruption, "GRACE_S", 0.2)
    write_tests(project)
    run = asked(project, f"before or {name}", Moment(at_s=0.01))
    assert (run.code, run.summary["status"]) == (2, "interrupted")
    own = {} if name == "lock" else {f"test_{name}": "not_measured"}  # that is a plain test
    assert run.outcomes == {"test_before": "measured", **own}


@pytest.mark.slow
def test_thread_that_keeps_the_interpreters_lock_is_killed(
    project: InlineProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was measured is in the journal, and the terminal says why."""
    terminal = project.path / "terminal"
    monkeypatch.setattr(interruption, "LOCK_GRACE_S", 0.2)
    write_tests(project)
    with terminal.open("w") as stderr:
        monkeypatch.setattr(interruption, "STDERR", stderr.fileno())
        run = asked(project, "before or held", None)
    assert run.code == -signal.SIGKILL
    assert "gpubench: killed: asked to end" in terminal.read_text()
    names = [line["name"] for line in run.journal if line["event"] == "benchmark"]
    assert names == ["test_before"]


@pytest.mark.slow
@pytest.mark.parametrize("left", ["a_loop", "a_session"])
def test_signals_come_to_the_session_again(project: InlineProject, left: str) -> None:
    """After a test that has left them to nobody."""
    write_tests(project)
    run = asked(project, f"left_by_{left} or (test_left and not left_by)", None)
    assert (run.code, run.outcomes) == (0, {"test_left": "measured"}), run.out


@pytest.mark.slow
def test_event_loop_keeps_its_signals(project: InlineProject) -> None:
    """Also one that lives longer than a test."""
    write_tests(project)
    run = asked(project, "loop and not left", None)
    assert (run.code, [*run.outcomes.values()]) == (0, ["measured"] * 2), run.out


@pytest.mark.slow
def test_instruction_without_a_line_may_be_interrupted(project: InlineProject) -> None:
    """Python's compiler leaves some, and pytest looks for the line that was interrupted."""
    write_tests(project)
    run = asked(project, "before or unnumbered", Moment(at_s=0.01))
    assert (run.code, run.summary["status"]) == (2, "interrupted")
    assert run.outcomes == {"test_before": "measured", "test_unnumbered": "not_measured"}


@pytest.mark.slow
def test_signals_of_others_are_no_request(project: InlineProject) -> None:
    """Those of a forked process, and those for which a test has a handler of its own."""
    write_tests(project)
    run = asked(project, "others", None)
    assert (run.code, run.outcomes) == (0, {"test_others": "measured"})
