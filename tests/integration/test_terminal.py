"""What a person sees: header, status line, table; in narrow, wide and dumb terminals."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING

import pexpect
import pytest

from tests.support.projects import InlineProject
from tests.support.screen import Screen

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.projects import Project, Run

BENCHMARKS = """
import pytest, time

@pytest.mark.parametrize("memory_format", ["channels_last", "contiguous"])
def test_a_benchmark_with_a_rather_long_name(gpubench, precision, memory_format):
    gpubench(lambda: time.sleep(0.001), samples=8, flops=1e6)

def test_skipped(gpubench):
    pytest.skip("not today")
"""

WITHOUT_DOUBTS = """
from dataclasses import replace
import pytest

@pytest.hookimpl(wrapper=True)
def pytest_gpubench_measurement(item, measurement):
    return replace((yield) or measurement, flags=())
"""
"""A machine that is busy has no say in what a table looks like."""


THEIRS = """
def test_theirs(benchmark):
    benchmark(lambda: None)

def test_ordinary():
    pass
"""


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run, Run]:
    """Two verbose sessions, the second beside tests that are not ours, and one without a table."""
    project = InlineProject(tmp_path_factory.mktemp("sessions"))
    project.write("conftest.py", WITHOUT_DOUBTS)
    project.write("test_it.py", BENCHMARKS)
    narrow = {"COLUMNS": "80"}
    first = project.run("-v", env=narrow)
    project.write("results/default/29990101T000000Z_run_000000/metrics.jsonl", "{")
    project.write("results/default/29990101T000000Z_run_000000/summary.json", "[1, 2")
    project.write("test_theirs.py", THEIRS)
    second = project.run("-v", "-rA", "--benchmark-autosave", "--junitxml=unit.xml", env=narrow)
    silent = project.run(
        "--table=none", "--benchmark-columns=min", "-k", "channels_last", env=narrow
    )
    return first, second, silent


def test_the_table_fits_the_terminal(sessions: tuple[Run, Run, Run]) -> None:
    """Header, table and reasons stay within the columns there are, names distinguishable."""
    run = sessions[0]

    ours = run.out[run.out.index("= gpubench =") :]
    assert [line for line in ours.splitlines() if len(line) > 80] == []
    assert "channels_last" in ours
    assert "contiguous" in ours
    assert "samples/s" in ours
    assert "±" in ours
    assert "1 skipped: not today (skipped)" in ours
    assert "2 measured, 1 skipped" in ours
    assert re.search(r"device cpu \(.+\).*precision fp32", run.out.replace("\n         ", ""))


def test_each_result_stands_behind_its_outcome(sessions: tuple[Run, Run, Run]) -> None:
    """With its change from the second run on, unless in doubt; other tests' lines are as ever."""
    first, second, silent = sessions
    number = r"[\d.]+ (?:ms|µs)(?: ±[\d.]+%)?(?: n=\d+)?"
    in_doubt = rf"≈ {number} \?"
    ours = "test_a_benchmark_with_a_rather_long_name"
    assert (first.code, second.code) == (0, 0), second.out + second.err
    assert len(re.findall(rf"{ours}\S+ PASSED (?:{in_doubt}|{number} [✓?]) ", first.out)) == 2
    changed = rf"{number}  ≈?[+-]?[\d.]+% [✓?]"
    assert len(re.findall(rf"{ours}\S+ PASSED (?:{in_doubt}|{changed}) ", second.out)) == 2
    assert re.search(r"test_ordinary PASSED +\[100%\]", second.out)
    assert re.search(r"test_theirs PASSED +\[ ", second.out)
    assert re.search(r"test_skipped SKIPPED \(not today\) +\[", second.out)
    assert re.search(rf"^PASSED test_it.py::{ours}\S+$", second.out, re.MULTILINE)
    assert "✓" not in silent.out


def test_the_table_of_pytest_benchmark_has_only_what_is_not_ours(
    sessions: tuple[Run, Run, Run],
) -> None:
    """Unless one of its display options is used; what it saves is said in any case."""
    first, second, silent = sessions
    assert "benchmark: 2 tests" not in first.out
    assert "Name (time in" not in first.out
    assert "benchmark: 1 tests" in second.out
    theirs = second.out[second.out.index("benchmark: 1 tests") :].partition("Legend")[0]
    assert "test_theirs" in theirs
    assert "rather_long" not in theirs
    assert "Saved benchmark data in" in second.err + second.out
    assert "benchmark: 1 tests" in silent.out
    assert silent.out.partition("= gpubench =")[2].splitlines()[1] == "1 measured"


def test_a_busy_machine_is_told_once_while_the_session_can_be_changed(tmp_path: Path) -> None:
    """After the third contended benchmark: what each costs, and the profile that shortens it."""
    project = InlineProject(tmp_path)
    project.write("conftest.py", WITHOUT_DOUBTS.replace("flags=()", 'flags=("contended",)'))
    step = "gpubench(lambda: None)"
    project.write("test_it.py", "".join(f"def test_{n}(gpubench): {step}\n" for n in range(5)))
    told = (
        r"gpubench: other processes use the CPU: each benchmark takes about \d+ s; "
        r"--measure\.profile=quick measures for 0\.5 s at most\n"
    )
    short = ("--measure.min_time_s=0.01", "--measure.warmup_s=0.01")
    out = project.run(*short, quick=False).out
    assert re.search(rf"^test_it.py \.\.\.\n{told}test_it.py \.\.  ", out, re.MULTILINE)
    assert out.count("profile=quick") == 1
    out = project.run("-q", *short, quick=False).out
    assert re.search(rf"^\.\.\.\n{told}\.\.  ", out, re.MULTILINE)
    out = project.run("-v", *short, quick=False).out
    assert re.search(rf"{told}\ntest_it.py::test_3 ", out)
    assert "halves" not in project.run(*short, "--measure.profile=quick", quick=False).out


@pytest.mark.own_process
def test_plain_ascii_where_the_terminal_has_no_more(project: Project) -> None:
    """With an ASCII encoding the signs are spelt, and nothing raises."""
    project.write("conftest.py", WITHOUT_DOUBTS)
    project.write("test_it.py", BENCHMARKS)

    run = project.run("--benchmark-quiet", env={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})

    assert run.code == 0, run.out + run.err
    assert "+-" in run.out
    assert run.out.isascii()


PRINTS = """
import pytest
@pytest.mark.parametrize("long", ["a name that is wider than this terminal has columns, and wraps"])
def test_x(gpubench, long):
    print("captured")
    gpubench(lambda: None)
def test_y(gpubench):
    gpubench(lambda: None)
    assert False
"""


@pytest.mark.own_process
def test_status_line_stays_below_until_the_result_is_there(project: Project) -> None:
    """On a terminal a row says how far the benchmark is; pytest's lines are as without it."""
    project.write("test_it.py", PRINTS)
    args = ["-m", "pytest", "-v", "--measure.by=time", "--measure.time_s=1.3", "--color=no"]
    env = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "CI"}}
    child = pexpect.spawn(
        sys.executable, args, cwd=str(project.path), dimensions=(12, 60), encoding="utf-8", env=env
    )
    screen, below = Screen(12, 60), []

    while True:
        try:
            text = child.read_nonblocking(4096, timeout=60)
        except pexpect.EOF:
            break
        for character in text:
            screen.feed(character)
            if not below or below[-1] != screen.below:
                below.append(screen.below)

    rows = [row for row in below if row.startswith(("[1/2] ", "[2/2] "))]
    whole = [row for row in rows if re.fullmatch(r"\[./2\] [a-z-]+(, \d+ rounds.*)?", row)]
    phases = [*dict.fromkeys(row.split(",")[0] for row in whole)]
    wanted = [f"[{n}/2] {phase}" for n in (1, 2) for phase in ("build", "warm-up", "measure")]
    assert [phase for phase in phases if phase in wanted] == wanted, phases
    assert any(re.search(r"measure, \d+ rounds", row) for row in whole)
    lines = "\n".join(screen.lines)
    assert not re.search(r"\[./2\]", lines), "none of it is left"
    assert re.search(r"and wraps\] PASSED +.*\[ 50%\]", lines.replace("\n", "")), lines
    assert re.search(r"^test_it\.py::test_y FAILED +.*\[100%\]$", lines, re.MULTILINE), lines


def test_log_of_a_ci_job_has_plain_lines_about_progress(project: Project) -> None:
    """Where ``CI`` is set a line tells what runs, though pytest captures; else there is none."""
    project.write("test_it.py", PRINTS)

    run = project.run("-v", "-k", "test_y", env={"CI": "true"})
    silent = project.run("-v", "-k", "test_y")

    line = "gpubench: [1/1] test_y: build"
    assert f"test_it.py::test_y \n{line}\ntest_it.py::test_y FAILED" in run.out
    assert run.out.count("gpubench: [") == 1, "the next is due 10 s later"
    assert "gpubench: [" not in silent.out
    assert "\x1b" not in run.out + silent.out


@pytest.mark.parametrize("failing", [True, False])
def test_pytest_may_lack_its_own_plugins(project: Project, failing: bool) -> None:
    """Without terminal, capture, live logs and debugger, and so without their options."""
    project.write("test_it.py", PRINTS)
    plugins = [f"-pno:{name}" for name in ("terminal", "capture", "logging", "debugging")]
    run = project.run(*plugins, "-k", "test_y" if failing else "test_x")
    assert run.code == failing
    assert [*run.outcomes.values()] == ["failed" if failing else "measured"]
