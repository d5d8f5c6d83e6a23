"""What holds for all tests."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from gpubench_plugin.core.errors import Unsupported
from tests.support.other_plugins import switched_off
from tests.support.projects import InlineProject, Project

# What this session was told by its own pytest-xdist, and by tox, which moves pytest's cache.
OF_THIS_SESSION = ("PYTEST_XDIST", "TOX_")


def pytest_configure(config: pytest.Config) -> None:
    """Tests start sessions of their own: no workers of this one, each with its own cache.

    Where workers run the tests they do this: they are yet to read PYTEST_ADDOPTS.
    """
    if config.getoption("dist", "no") != "no":
        return
    for name in [name for name in os.environ if name.startswith(OF_THIS_SESSION)]:
        del os.environ[name]
    os.environ["PYTEST_ADDOPTS"] = switched_off()


def pytest_sessionfinish() -> None:
    """Let pytest's last collections look through everything."""
    gc.unfreeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a test in which something is unsupported that should not be: to pytest it is a skip."""
    report = yield
    if call.excinfo is not None and call.excinfo.errisinstance(Unsupported):
        report.outcome = "failed"
        report.longrepr = str(call.excinfo.getrepr(style="short"))
    return report


@pytest.fixture(scope="session", autouse=True)
def _signals_are_heard() -> None:
    """By the tests and what they start, also below ``nohup`` and in the background of a shell."""
    for number, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGHUP, signal.SIG_DFL),
    ):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.fixture(scope="module", autouse=True)
def _residents() -> None:
    """Leave what earlier modules loaded out of the collections of this one's tests.

    Each measurement starts with one: with torch and models' libraries loaded, a third of a second.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _coverage_of_processes(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let coverage follow processes where a module is marked ``followed`` only.

    Ranks take a third longer under it, and most run what those of another module have run.
    """
    with pytest.MonkeyPatch.context() as patch:
        if not request.node.get_closest_marker("followed"):
            patch.delenv("COVERAGE_PROCESS_CONFIG", raising=False)
        yield


@pytest.fixture
def in_memory(tmp_path: Path) -> Iterator[Path]:
    """An empty folder, in memory where there is a file system for that."""
    memory = Path("/dev/shm")
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with TemporaryDirectory(dir=memory) as folder:
        yield Path(folder)


@pytest.fixture
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Project:
    """An empty project; its sessions are processes for a test that is marked ``own_process``."""
    path = tmp_path / "project"
    path.mkdir()
    kind = Project if request.node.get_closest_marker("own_process") else InlineProject
    return kind(path)
