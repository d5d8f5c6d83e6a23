"""Databases of both kinds to store runs in, and run directories to store."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpubench_plugin.core.records import LaunchSample, Measurement, Metric, RunRecord, Work
from gpubench_plugin.core.verdicts import Comparison, Verdict
from gpubench_plugin.results import verdicts as verdict_document
from gpubench_plugin.results.registry.registry import Registry
from gpubench_plugin.results.run_directory import RunDirectory, change_tags
from gpubench_plugin.results.summary import write_summary
from gpubench_plugin.system import json_files

VARIABLE = "GPUBENCH_TEST_POSTGRESQL"


class Unavailable(Exception):
    """There is none, and none can be started, and why."""


@contextmanager
def server() -> Iterator[str]:
    """The URL of a server: as superuser, its database holds nothing of ours."""
    if given := os.environ.get(VARIABLE):
        yield given
        return
    programs = _programs()
    with tempfile.TemporaryDirectory(prefix="pg", dir="/tmp") as name:
        folder = Path(name)
        user = _unprivileged(folder)
        data = folder / "data"
        options = ["-U", "postgres", "--auth=trust", "--no-sync", "--encoding=UTF8", "--no-locale"]
        _run(user, [programs / "initdb", "-D", data, *options])
        # Its socket is a file in the folder: no port that two servers could fight over.
        settings = (
            f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off "
            "-c max_connections=60"
        )
        start = [programs / "pg_ctl", "-D", data, "-l", folder / "log", "-w", "-o", settings]
        _run(user, [*start, "start"])
        try:
            yield f"postgresql+psycopg://postgres@/postgres?host={folder}"
        finally:
            _run(user, [programs / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop"])


def _programs() -> Path:
    initdb = shutil.which("initdb")
    folders = [Path(initdb).resolve().parent] if initdb else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for folder in folders:
        if (folder / "initdb").exists() and (folder / "pg_ctl").exists():
            return folder
    raise Unavailable(f"initdb is not installed, and {VARIABLE} names no server")


def _unprivileged(folder: Path) -> tuple[str, ...]:
    """What a command starts with so that it does not run as root, which PostgreSQL refuses."""
    if os.geteuid() != 0:
        return ()
    for name in ("postgres", "nobody"):
        try:
            shutil.chown(folder, name)
        except LookupError:
            continue
        if shutil.which("setpriv"):
            return ("setpriv", f"--reuid={name}", "--clear-groups", f"--regid={_group(name)}")
    raise Unavailable("root may not run it, and there is no other user to run it as")


def _group(name: str) -> int:
    return pwd.getpwnam(name).pw_gid


def _run(user: Sequence[str], command: Sequence[object]) -> None:
    try:
        subprocess.run(
            [*user, *map(str, command)],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,  # a pipe would stay open as long as the server
            stderr=subprocess.DEVNULL,
            cwd="/",
            timeout=60,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Unavailable(str(error)) from error


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """The URL of a real PostgreSQL server that the tests may fill."""
    try:
        with server() as url:
            yield url
    except Unavailable as reason:
        pytest.skip(f"no PostgreSQL: {reason}")


@dataclass(frozen=True, kw_only=True)
class Backend:
    """An empty database and an empty folder for runs."""

    kind: str
    url: str
    results_dir: Path

    def open(self, **options: Any) -> Registry:
        return Registry.open(self.url, self.results_dir, **{"timeout_s": 20.0, **options})

    def sql(self, *statements: str) -> None:
        """Run statements on a separate connection."""
        from sqlalchemy import create_engine

        url = self.url or f"sqlite:///{self.results_dir / 'registry.sqlite'}"
        engine = create_engine(url)
        with engine.begin() as connection:
            for statement in statements:
                connection.exec_driver_sql(statement)
        engine.dispose()


@pytest.fixture
def results_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "results"
    folder.mkdir()
    return folder


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgresql", marks=pytest.mark.slow),
    ]
)
def backend(request: pytest.FixtureRequest, results_dir: Path) -> Iterator[Backend]:
    """Each kind of database in turn."""
    if request.param == "sqlite":
        yield Backend(kind="sqlite", url="", results_dir=results_dir)
        return
    with database(request.getfixturevalue("postgresql")) as url:
        yield Backend(kind="postgresql", url=url, results_dir=results_dir)


class database:  # noqa: N801 # a context manager
    """A new database on the server at `url`, dropped in the end."""

    def __init__(self, url: str):
        self._server = url
        self._name = f"gpubench_{secrets.token_hex(6)}"

    def __enter__(self) -> str:
        self._run(f"CREATE DATABASE {self._name}")
        from sqlalchemy import make_url

        named = make_url(self._server).set(database=self._name)
        return named.render_as_string(hide_password=False)

    def __exit__(self, *_: object) -> None:
        self._run(f"DROP DATABASE {self._name} WITH (FORCE)")

    def _run(self, statement: str) -> None:
        import psycopg

        plain = self._server.replace("postgresql+psycopg://", "postgresql://")
        with closing(psycopg.connect(plain, autocommit=True)) as connection:
            connection.execute(statement)


@pytest.fixture
def make_run(results_dir: Path) -> Runs:
    """Writes run directories."""
    return Runs(results_dir)


class Runs:
    """Writes run directories below `folder`."""

    def __init__(self, folder: Path):
        self.folder = folder

    def __call__(
        self,
        day: int = 1,
        *,
        experiment: str = "default",
        run_id: str = "",
        branch: str | None = "main",
        dirty: bool | None = False,
        status: Any = "complete",
        regressed: tuple[str, ...] = (),
        cpu: str = "fast",
        **benchmarks: Any,
    ) -> RunDirectory:
        """A run of that day of January 2026; `benchmarks` are step times, or whole records."""
        run_id = run_id or f"202601{day:02}T120000Z_run_{day:06x}"
        directory = RunDirectory(path=self.folder.resolve() / experiment / run_id)
        directory.path.mkdir(parents=True, exist_ok=True)
        git = {"commit": f"c{day}", "branch": branch, "dirty": dirty}
        record = RunRecord(
            run_id=run_id,
            experiment=experiment,
            status=status,
            started=f"2026-01-{day:02}T12:00:00.000000Z",
            finished=f"2026-01-{day:02}T12:00:09.000000Z",
            command=(),
            environment={"cpu": {"model": cpu}, "git": git, "hostname": "here"},
            benchmarks=tuple(
                value if isinstance(value, Measurement) else self.measured(name, value)
                for name, value in (benchmarks or {"mlp": 0.01}).items()
            ),
        )
        directory.journal.touch()
        write_summary(directory.summary, record)
        if regressed:
            self.judge(directory, *regressed)
        return directory

    @staticmethod
    def id(name: str) -> str:
        return f"benchmarks/test_{name}.py::test_{name}"

    def measured(self, name: str, value: Any, **more: Any) -> Measurement:
        values = value if isinstance(value, tuple) else (value,)
        step = [Metric(name="step_time_s", value=v, unit="s", better="lower") for v in values]
        rate = Metric(name="samples_per_s", value=8 / values[0], unit="samples/s", better="higher")
        launches = tuple(
            LaunchSample(samples=None, metrics={"step_time_s": m}, flags=()) for m in step
        )
        record = {
            "id": self.id(name),
            "name": name,
            "params": {},
            "world_size": 1,
            "launches": len(values),
            "outcome": "measured",
            "timer": "perf_counter",
            "settings": {"training.batch_size": 8},
            "limits": {"step_time_s": "3%"},
            "work": Work(samples=8.0, flops=1e6),
            "metrics": {"step_time_s": step[0], "samples_per_s": rate},
            "per_launch": launches if len(values) > 1 else (),
        }
        return Measurement(**{**record, **more})

    def judge(self, directory: RunDirectory, *regressed: str) -> None:
        verdicts = tuple(
            Verdict(id=self.id(name), metric="step_time_s", kind="regressed") for name in regressed
        )
        comparison = Comparison(base="main", head="this", verdicts=verdicts)
        json_files.write_text(directory.verdicts, verdict_document.to_text([comparison]))

    @staticmethod
    def tag(directory: RunDirectory, *tags: str) -> None:
        (directory.path / "tags.json").unlink(missing_ok=True)
        change_tags(directory, add=tags)
