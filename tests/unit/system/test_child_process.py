"""Child processes: waited for, ended with all that they started, and asked for facts."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from gpubench_plugin.system.child_process import (
    Child,
    ChildError,
    child_pids,
    code_text,
    facts_of,
    last_lines,
    running,
)
from tests.support.processes import is_running, wait_until

PARENT = """
import signal, subprocess, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen(["sleep", "600"])
open("new", "w").write(str(child.pid))
__import__("os").rename("new", "grandchild")
time.sleep(600)
"""


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (0, "exited with code 0"),
        (3, "exited with code 3"),
        (-11, "was killed by SIGSEGV"),
        (-9, "was killed by SIGKILL (possibly the out-of-memory killer)"),
        (-40, "was killed by signal 40"),
    ],
)
def test_end_of_a_process_is_named(code: int, said: str) -> None:
    """By its exit code, or by the signal's name where it has one."""
    assert code_text(code) == said


@pytest.mark.slow
def test_wait_gives_the_code_or_none_in_time() -> None:
    """It is exact to the wake-up, and may be asked again; nothing is left open."""
    before = set(Path("/proc/self/fd").iterdir())
    child = Child([sys.executable, "-c", "import os; os.read(0, 1); os._exit(7)"])
    assert child.wait(30) == child.wait() == child.code == 7
    child.close()
    sleeper = Child(["sleep", "600"])
    started = time.monotonic()
    assert sleeper.wait(0.2) is None
    assert 0.2 <= time.monotonic() - started < 5
    assert sleeper.end(30) == -15
    assert set(Path("/proc/self/fd").iterdir()) == before


@pytest.mark.slow
def test_child_that_ignores_sigterm_is_killed_with_what_it_started(tmp_path: Path) -> None:
    """However the block ends in which it runs."""

    def interrupted() -> None:
        with running([sys.executable, "-c", PARENT], grace_s=0.2, cwd=tmp_path):
            wait_until((tmp_path / "grandchild").exists)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()

    grandchild = int((tmp_path / "grandchild").read_text())
    wait_until(lambda: not is_running(grandchild))


@pytest.mark.slow
def test_child_of_this_session_is_killed_alone() -> None:
    """It stays in this process's group, which outlives it."""
    with closing(Child(["sleep", "600"], new_session=False)) as child:
        assert os.getpgid(child.pid) == os.getpgid(0)
        child.kill()
        assert child.wait(30) == -signal.SIGKILL


@pytest.mark.slow
def test_facts_are_the_last_line_and_a_question_is_its_input() -> None:
    """What is printed before, and warnings that are errors here, do no harm."""
    script = "import json, warnings; warnings.warn('x'); print('noise'); print(input())"
    command = [sys.executable, "-c", script]
    environ = {"PYTHONWARNINGS": "error"}
    assert facts_of(command, environ, question={"name": "ö"}) == {"name": "ö"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("import sys; sys.exit('Traceback\\nKeyError: 1')", "KeyError: 1"),
        ("print('hello')", "it printed no facts but 'hello'"),
        ("", "it printed no facts but ''"),
        ("import os, time; os.write(2, b'a warning'); time.sleep(60)", "no answer within 0.5 s"),
    ],
)
def test_child_without_facts_is_one_line(script: str, reason: str) -> None:
    """Its last words, or what it did instead."""
    with pytest.raises(ChildError) as error:
        facts_of([sys.executable, "-c", script], timeout_s=0.5 if "sleep" in script else None)
    assert str(error.value) == reason


def test_last_lines_are_those_with_text(tmp_path: Path) -> None:
    """The last 15, whatever their letters."""
    (tmp_path / "out").write_bytes(b"\n".join(b"%d\n\xff" % n for n in range(100)))
    lines = last_lines(tmp_path / "out")
    assert (len(lines), lines[-2:]) == (15, ("99", "\\xff"))


def test_children_are_those_of_children_too() -> None:
    """Of a shell, whatever it has started; nobody else's."""
    with running(["sh", "-c", "sleep 600; true"], grace_s=0) as shell:
        wait_until(lambda: len(child_pids()) > 1)
        (child,) = child_pids() - {shell.pid}
        assert psutil.Process(child).ppid() == shell.pid
