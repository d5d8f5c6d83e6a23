"""Sessions that are asked to end at some moment of a stand-in for torch's compiler.

Each runs in a fork of this process, so that nothing is imported again, and a signal that nobody
handles any more ends no other test.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
import warnings
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from tests.support.projects import QUICK, Run

if TYPE_CHECKING:
    from tests.support.projects import Project

CONFTEST = """
import json, os, pathlib, signal, threading, time
import pytest

def ask():
    time.sleep(float(os.environ["MOMENT_S"]))
    os.kill(os.getpid(), int(os.environ["SIGNAL"]))

@pytest.fixture
def asked():
    if "MOMENT_S" in os.environ:
        threading.Thread(target=ask, daemon=True).start()

def pytest_runtest_logreport(report):
    if report.when == "call" and report.passed:
        with open("ended", "a") as file:
            file.write(report.nodeid.partition("::")[2] + "\\n")
"""
COMPILER = """
import ctypes, time, weakref

class BackendError(Exception): ...

class Traced: ...

class Freed:
    def __del__(self): work()

def work(seconds=0.002):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end: pass

def in_a_callback():
    traced = Traced()
    reference = weakref.ref(traced, lambda _: work())
    del traced

def in_a_destructor():
    Freed()

def in_c():
    ctypes.CDLL(None).usleep(2000)

def in_a_backend():
    try: work()
    except BaseException as error: raise BackendError(repr(error)) from error

def despite_errors():
    try: work()
    except Exception: pass

def despite_everything():
    try: work()
    except: pass

KINDS = (in_a_callback, in_a_destructor, in_c, in_a_backend, despite_errors, despite_everything)

def compile(rounds=2):
    for _ in range(rounds):
        for kind in KINDS: kind()
"""
TESTS = """
import asyncio, contextlib, ctypes, os, pathlib, signal, subprocess, time
import pytest
import compiler

@pytest.fixture
def built(asked):
    compiler.compile()
    yield
    compiler.compile()

def test_before(gpubench): gpubench(lambda: None)
def test_compiled(gpubench, built):
    step = compiler.compile()
    gpubench(lambda: step)
    compiler.compile()
def test_after(gpubench): gpubench(lambda: None)

def test_plain(asked):
    compiler.compile(rounds=6)
def test_benchmark(gpubench): gpubench(lambda: None)

def test_lock(asked):
    mutex = ctypes.create_string_buffer(64)
    for _ in range(2): ctypes.CDLL(None).pthread_mutex_lock(mutex)

def test_held():
    subprocess.Popen(["sh", "-c", f"sleep 0.2; kill {os.getpid()}"])
    sum(range(10**12))

@pytest.fixture(scope="module")
def loop():
    with contextlib.closing(asyncio.new_event_loop()) as loop:
        loop.received = []
        loop.add_signal_handler(signal.SIGUSR1, loop.received.append, 1)
        yield loop

@pytest.mark.parametrize("number", range(2))
def test_loop(gpubench, loop, number):
    gpubench(lambda: None)
    signal.raise_signal(signal.SIGUSR1)
    loop.run_until_complete(asyncio.sleep(0.1))
    assert len(loop.received) == number + 1

def test_left_by_a_loop():
    with contextlib.closing(asyncio.new_event_loop()) as loop:
        loop.add_signal_handler(signal.SIGTERM, print)
        loop.remove_signal_handler(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL

def test_left_by_a_session():
    pathlib.Path("inner.py").write_text("def test_it(gpubench): gpubench(list)")
    assert pytest.main(["inner.py", "-p", "no:cacheprovider", "--results-dir=inner"]) == 0

def test_left(gpubench):
    assert signal.getsignal(signal.SIGTERM).__name__ == "_handle"
    gpubench(lambda: None)

def test_others(gpubench):
    for _ in range(20):
        child = os.fork()
        if not child:
            time.sleep(10)
            os._exit(0)
        os.kill(child, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
    ours = signal.signal(signal.SIGTERM, lambda *_: None)
    signal.raise_signal(signal.SIGTERM)
    time.sleep(0.05)
    signal.signal(signal.SIGTERM, ours)
    gpubench(lambda: None)

def test_endless(gpubench, asked):
    while True:
        compiler.despite_everything()

def unnumbered():
    while True: pass
unnumbered.__code__ = unnumbered.__code__.replace(co_linetable=b"")

def test_unnumbered(gpubench, asked):
    unnumbered()

def test_mutex(gpubench, asked):
    mutex = ctypes.create_string_buffer(64)
    for _ in range(2): ctypes.CDLL(None).pthread_mutex_lock(mutex)
"""
SPAN_S = 0.12
"""In which `test_compiled` comes from its set-up to its tear-down, or later on a loaded machine."""


@dataclass(frozen=True, kw_only=True)
class Moment:
    """When a session is asked to end, and by which signal."""

    at_s: float
    number: signal.Signals = signal.SIGTERM

    @classmethod
    def of_seed(cls, seed: int) -> Moment:
        """A moment in which `test_compiled` runs."""
        random = Random(seed)
        number = random.choice((signal.SIGTERM, signal.SIGTERM, signal.SIGHUP, signal.SIGINT))
        return cls(at_s=random.uniform(0, SPAN_S), number=number)


def write_tests(project: Project) -> None:
    """Write the tests that are asked to end."""
    project.write("conftest.py", CONFTEST)
    project.write("compiler.py", COMPILER)
    project.write("test_it.py", TESTS)


def asked(project: Project, tests: str, moment: Moment | None) -> Run:
    """What the `tests` left that were asked to end at a moment, if at all."""
    env = {} if moment is None else {"MOMENT_S": f"{moment.at_s}", "SIGNAL": f"{moment.number:d}"}
    with warnings.catch_warnings():
        # Threads that this process may have, of torch for example, are not needed in the other.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        _run(project, tests, env)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    output = (project.path / "output").read_text()
    return Run(code, output, "", project.path / "results")


def _run(project: Project, tests: str, env: dict[str, str]) -> None:
    code = 1
    try:
        sys.settrace(None)
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with (project.path / "output").open("wb", buffering=0) as output:
            for standard in (1, 2):
                os.dup2(output.fileno(), standard)
        code = project.run(*QUICK, "--measure.timeout_s=60", "-k", tests, env=env).code
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(code)
