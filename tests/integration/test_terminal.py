"""What a person sees: header, status line, table; in narrow, wide and dumb terminals."""

from __future__ import annotations

import re
import sys
from typing import TYPE_CHECKING

import pexpect
import pytest

if TYPE_CHECKING:
    from tests.support.projects import Project

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


@pytest.mark.parametrize("width", [80, 200])
def test_table_fits_the_terminal(project: Project, width: int) -> None:
    """Header, table and reasons stay within the columns there are, names distinguishable."""
    project.write("conftest.py", WITHOUT_DOUBTS)
    project.write("test_it.py", BENCHMARKS)

    run = project.run("--benchmark-quiet", env={"COLUMNS": str(width)})

    ours = run.out[run.out.index("= gpubench =") :]
    assert [line for line in ours.splitlines() if len(line) > width] == []
    assert "channels_last" in ours
    assert "contiguous" in ours
    assert "samples/s" in ours
    assert "±" in ours
    assert "not today" in ours
    assert "2 measured, 1 skipped" in ours
    assert re.search(r"device cpu \(.+\).*precision fp32", run.out.replace("\n         ", ""))


@pytest.mark.own_process
def test_plain_ascii_where_the_terminal_has_no_more(project: Project) -> None:
    """With an ASCII encoding the signs are spelt, and nothing raises."""
    project.write("conftest.py", WITHOUT_DOUBTS)
    project.write("test_it.py", BENCHMARKS)

    run = project.run("--benchmark-quiet", env={"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})

    assert run.code == 0, run.out + run.err
    assert "+-" in run.out
    assert run.out.isascii()


@pytest.mark.own_process
def test_status_line_shows_progress_on_a_terminal_only(project: Project) -> None:
    """While a benchmark runs, a terminal says how far it is, and afterwards shows none of it."""
    project.write("test_it.py", "def test_x(gpubench):\n    gpubench(lambda: None)\n")
    args = ["-m", "pytest", "--measure.by=time", "--measure.time_s=1"]

    child = pexpect.spawn(
        sys.executable, args, cwd=str(project.path), dimensions=(40, 120), encoding="utf-8"
    )
    child.expect(r"checking and warming up", timeout=60)
    child.expect(r"\d+ rounds", timeout=60)
    child.expect(r"test_it\.py|\x1b\[K", timeout=60)
    child.expect("1 measured", timeout=60)
    child.expect(pexpect.EOF, timeout=60)
    piped = project.run()

    assert "rounds, ±" not in piped.out
    assert "\x1b" not in piped.out
