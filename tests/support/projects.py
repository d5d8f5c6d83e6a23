"""Temporary projects with the plugin installed, whose pytest runs in processes, or in this one."""

from __future__ import annotations

import gc
import io
import json
import os
import subprocess
import sys
import textwrap
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import cpuinfo
import pytest
from _pytest import unraisableexception

from tests.support.other_plugins import switched_off
from tests.support.sessions import TookTooLongError, alarm, surroundings, torchrun, written_by

QUICK = ("--measure.by=steps", "--measure.steps=20", "--measure.warmup_s=0.001")
"""Options that keep a measurement short: what it says is not the point here."""

READ_AS_PYTHON_STARTS = ("PYTHON", "OMP_", "COVERAGE_")
"""Variables that a process reads before it could be told others."""

LONGEST_S = 240
"""After which a session is ended, and its test fails."""

Changes = Mapping[str, str | None]
"""Variables of a session that are other than this process', by name; None: not set."""

PYTEST = """
import atexit, gc, sys
import pytest
from _pytest import unraisableexception

class FewCollections:
    def pytest_configure(self, config):
        if key := getattr(unraisableexception, "gc_collect_iterations_key", None):
            config.stash[key] = 0

atexit.register(gc.freeze)
sys.exit(pytest.main(plugins=[FewCollections()]))
"""
"""pytest and Python look through all objects several times as they end: most of a second where
torch is loaded. Sessions that tests start do without."""


@dataclass(frozen=True)
class Run:
    """What a finished pytest left: exit code, output, and the run directories."""

    code: int
    out: str
    err: str
    results: Path

    @property
    def directory(self) -> Path:
        """The one run directory."""
        (found,) = self.directories
        return found

    @property
    def directories(self) -> list[Path]:
        """All run directories, oldest first, also of those that began in the same second."""
        return sorted(self.results.glob("*/*"), key=_begun)

    @property
    def summary(self) -> dict[str, Any]:
        """The run's summary.json."""
        loaded: dict[str, Any] = json.loads((self.directory / "summary.json").read_text())
        return loaded

    @property
    def outcomes(self) -> dict[str, str]:
        """Each benchmark's outcome by name."""
        return {b["name"]: b["outcome"] for b in self.summary["benchmarks"]}

    @property
    def journal(self) -> list[dict[str, Any]]:
        """The journal's lines."""
        lines = (self.directory / "metrics.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


def _begun(run: Path) -> tuple[str, int]:
    facts = run / "system.json"
    return run.name.partition("_")[0], facts.stat().st_mtime_ns if facts.exists() else 0


class Project:
    """A folder with tests and configurations, and ways to run pytest in it."""

    def __init__(self, path: Path):
        self.path = path
        self.write("pytest.ini", "[pytest]\n")

    def write(self, name: str, text: str) -> Path:
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))
        return file

    def start(
        self, *args: str, env: Changes | None = None, ranks: int = 0
    ) -> subprocess.Popen[str]:
        """Start pytest, or with `ranks` torchrun with that many ranks of it."""
        command = ("-m", "torch.distributed.run", *_ranks(ranks)) if ranks else ("-c", PYTEST)
        return subprocess.Popen(
            [sys.executable, *command, *args],
            cwd=self.path,
            env=_environment(env or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(
        self,
        *args: str,
        env: Changes | None = None,
        ranks: int = 0,
        quick: bool = True,
    ) -> Run:
        """Run pytest to its end; with `quick`, measurements are short."""
        process = self.start(*args, *(QUICK if quick else ()), env=env, ranks=ranks)
        try:
            out, err = written_by(process, LONGEST_S)
        except TookTooLongError as error:
            pytest.fail(f"pytest did not end\n{error}")
        return Run(process.returncode, out, err, self.path / "results")


def _ranks(ranks: int) -> tuple[str, ...]:
    return (f"--nproc-per-node={ranks}", "--standalone", "-m", "pytest")


def _environment(changes: Changes) -> dict[str, str]:
    """This process' environment, less what describes its own pytest, terminal and ranks."""
    dropped = ("PYTEST", "COLUMNS", "FORCE_COLOR", "RANK", "WORLD_SIZE", "LOCAL_RANK", "CI")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
    # A registry costs each session half a second; a test that is about it sets the variable to "".
    own = {"OMP_NUM_THREADS": "1", "GPUBENCH_REGISTRY": "none", "PYTEST_ADDOPTS": switched_off()}
    changed = {**kept, **own, **changes}
    return {name: value for name, value in changed.items() if value is not None}


class InlineProject(Project):
    """A project whose sessions run within this process: only ranks are processes of their own.

    pytest's own ``pytester`` has a process forget the modules that a session imported, and torch
    cannot be imported a second time. Here those of the project itself are forgotten.
    """

    def run(
        self,
        *args: str,
        env: Changes | None = None,
        ranks: int = 0,
        quick: bool = True,
    ) -> Run:
        """Run pytest to its end; with `quick`, measurements are short."""
        if any(name.startswith(READ_AS_PYTHON_STARTS) for name in env or {}):
            return super().run(*args, env=env, ranks=ranks, quick=quick)
        args = (*args, *(QUICK if quick else ()))
        with self._as_its_own(env or {}):
            ended = _torchrun(ranks, args) if ranks else _session(args)
        return Run(*ended, self.path / "results")

    @contextmanager
    def _as_its_own(self, env: Changes) -> Iterator[None]:
        """The folder, variables, warnings and modules that a process of its own would have."""
        path = [*sys.path]
        with surroundings(self.path, _environment(env)), warnings.catch_warnings():
            warnings.simplefilter("default")  # errors they are in this session, not in that one
            try:
                yield
            finally:
                sys.path[:] = path
                own = f"{self.path}{os.sep}"
                modules = {name: [*_places(module)] for name, module in [*sys.modules.items()]}
                for name, places in modules.items():
                    if any(str(place).startswith(own) for place in places):
                        del sys.modules[name]


def _places(module: object) -> Iterator[str]:
    """File of a module, and folders of one that has no file, a namespace package."""
    spec = getattr(module, "__spec__", None)
    yield str(getattr(module, "__file__", None))
    yield from getattr(spec, "submodule_search_locations", None) or ()


def _torchrun(ranks: int, args: tuple[str, ...]) -> tuple[int, str, str]:
    """Ranks with a session each: torchrun's exit code, and what all of them wrote."""
    return torchrun(*_ranks(ranks), *args, within_s=LONGEST_S)


def _session(args: tuple[str, ...]) -> tuple[int, str, str]:
    """A session of pytest within this process: its exit code, and what it wrote."""
    out, err = _Written(), _Written()
    with redirect_stdout(out), redirect_stderr(err), alarm(LONGEST_S), _without_collections():
        code = int(pytest.main([*args], plugins=[_FewCollections()]))
    return code, out.text(), err.text()


class _FewCollections:
    """Keeps a session from five collections at its end, as pytest's ``pytester`` does.

    They look through all that this process has loaded, and took a quarter of the session's time.
    """

    def pytest_configure(self, config: pytest.Config) -> None:
        if key := getattr(unraisableexception, "gc_collect_iterations_key", None):  # of pytest 9
            config.stash[key] = 0


_sessions = count(1)


@contextmanager
def _without_collections() -> Iterator[None]:
    """Leave out of collections what this process has loaded; a session lets it in as it ends."""
    if next(_sessions) % 20 == 0:  # what sessions have left is freed now and then
        gc.unfreeze()
        gc.collect()
    gc.freeze()
    with patch.object(gc, "unfreeze"), patch.object(cpuinfo, "get_cpu_info", _processor):
        yield


_processor = cache(cpuinfo.get_cpu_info)
"""What pytest-benchmark asks at the end of a session, by a process that takes 0.2 s."""


class _Written(io.TextIOWrapper):
    """What a session writes: text with bytes below it, as a standard stream has them."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", newline="", write_through=True)

    def text(self) -> str:
        """All of it."""
        self.seek(0)
        return self.read()
