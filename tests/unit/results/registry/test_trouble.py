"""Databases that cannot be used: each says why in one line, and nothing is lost."""

from __future__ import annotations

import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpubench_plugin.core.errors import RegistryError
from gpubench_plugin.results.registry.connection import connect, store_run
from gpubench_plugin.results.registry.registry import Registry


def keep(backend: Any, run: Any, **options: Any) -> str | None:
    return store_run(backend.url, backend.results_dir, run, **{"timeout_s": 0.3, **options})


def test_file_that_is_not_to_be_made(results_dir: Path) -> None:
    """Where only a look was asked for, nothing is made, and the message says how."""
    with pytest.raises(RegistryError, match="gpubench db ingest"):
        Registry.open("", results_dir, create=False)
    assert list(results_dir.iterdir()) == []


def test_a_run_that_cannot_be_stored_is_named(results_dir: Path, make_run: Any) -> None:
    """Whoever reads the registry learns which run it lacks, and why."""
    store_run("", results_dir, make_run(1))
    broken = make_run(2)
    broken.summary.write_text("{")
    with connect("", results_dir) as found:
        (note,) = found.notes
    assert note.startswith(f"skipped: {broken.summary} is not JSON")


@contextmanager
def locked(backend: Any) -> Iterator[Any]:
    """Inside it somebody else holds a lock, until the connection commits."""
    from sqlalchemy import create_engine

    backend.open().close()
    engine = create_engine(backend.url or f"sqlite:///{backend.results_dir / 'registry.sqlite'}")
    with engine.connect() as other:
        other.exec_driver_sql(
            "UPDATE runs_1 SET tags = '[]'"
            if backend.kind == "sqlite"
            else "LOCK TABLE runs_1 IN EXCLUSIVE MODE"
        )
        yield other
    engine.dispose()


@pytest.mark.slow
def test_locked_database_costs_no_run(backend: Any, make_run: Any) -> None:
    """A lock held for too long is reported; the next session stores both runs."""
    first, second = make_run(1), make_run(2)
    with locked(backend):
        line = keep(backend, first)
    assert "another process is writing it" in line
    assert "\n" not in line
    assert keep(backend, second) is None
    with backend.open() as registry:
        assert [row.run_id for row in registry.runs()] == [second.run_id, first.run_id]


@pytest.mark.slow
def test_lock_that_ends_in_time_is_waited_for(backend: Any, make_run: Any) -> None:
    """A writer who is done within the patience is no trouble at all."""
    with locked(backend) as other:
        release = threading.Timer(0.3, other.commit)
        release.start()
        try:
            assert keep(backend, make_run(1), timeout_s=20) is None
        finally:
            release.join()


@pytest.mark.parametrize("timeout_s", [30.0, 0.1])
def test_who_is_about_to_write_is_waited_for(results_dir: Path, timeout_s: float) -> None:
    """By who makes the tables in the same file, as long as for any other lock."""
    file = sqlite3.connect(results_dir / "registry.sqlite", check_same_thread=False)
    file.execute("BEGIN IMMEDIATE")
    release = threading.Timer(0.3, file.rollback)
    release.start()
    try:
        if timeout_s < 0.3:
            with pytest.raises(RegistryError, match="another process is writing it"):
                Registry.open("", results_dir, timeout_s=timeout_s)
        else:
            Registry.open("", results_dir, timeout_s=timeout_s).close()
    finally:
        release.join()
        file.close()


@pytest.mark.slow
def test_server_that_does_not_answer_is_not_waited_for_long(
    results_dir: Path, make_run: Any
) -> None:
    """A port that takes the connection and then says nothing is a server that is down."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        port = mute.getsockname()[1]
        url = f"postgresql+psycopg://me@127.0.0.1:{port}/bench"
        assert "timeout" in str(store_run(url, results_dir, make_run(1), timeout_s=1))


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("backend", ["postgresql"], indirect=True)
def test_connection_that_breaks_is_an_error_of_the_registry(
    postgresql: str, backend: Any, make_run: Any
) -> None:
    """A server that stops while it is used takes nothing along."""
    with backend.open() as registry:
        registry.ingest(make_run(1))
        import psycopg

        plain = postgresql.replace("postgresql+psycopg://", "postgresql://")
        name = backend.url.rpartition("/")[2].partition("?")[0]
        with psycopg.connect(plain, autocommit=True) as other:
            query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
            other.execute(query, [name])
        with pytest.raises(RegistryError):
            registry.ingest(make_run(2))
        registry.ingest(make_run(2))  # the next attempt connects anew


@pytest.mark.slow
def test_wrong_database_name_is_said(postgresql: str, results_dir: Path, make_run: Any) -> None:
    """A server without that database answers so."""
    url = postgresql.replace("/postgres?", "/no_such_database?")
    if url == postgresql:
        pytest.skip("the server's URL names its database elsewhere")
    assert "no_such_database" in str(store_run(url, results_dir, make_run(1), timeout_s=5))


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0", b"x" * 5000])
def test_file_that_is_no_database(results_dir: Path, make_run: Any, content: bytes) -> None:
    """An empty file becomes a registry; a damaged one is named with what repairs it."""
    (results_dir / "registry.sqlite").write_bytes(content)
    line = store_run("", results_dir, make_run(1), timeout_s=1)
    assert line is None if not content else "gpubench db ingest" in str(line)


def test_damaged_page_is_noticed(results_dir: Path, make_run: Any) -> None:
    """A file that was overwritten in the middle is damaged, not empty."""
    with Registry.open("", results_dir) as registry:
        for day in range(1, 9):
            registry.ingest(make_run(day, **{f"b{n}": 0.1 for n in range(9)}))
    file = results_dir / "registry.sqlite"
    size = file.stat().st_size
    with file.open("r+b") as damaged:
        damaged.seek(4096 * 2)
        damaged.write(b"\xff" * (size - 4096 * 4))

    def look() -> None:
        with Registry.open("", results_dir, create=False) as registry:
            registry.runs()

    with pytest.raises(RegistryError, match="move it away"):
        look()


@pytest.mark.slow
def test_full_disk_costs_no_run(
    small_disk: Path, results_dir: Path, make_run: Any, fill_up: Any
) -> None:
    """A registry without room says so, the run waits, and room again stores it."""
    url = f"sqlite:///{small_disk / 'registry.sqlite'}"
    Registry.open(url, results_dir).close()
    fill_up(small_disk)
    many = make_run(1, **{f"b{n}": 0.1 for n in range(50)})
    assert "disk is full" in str(store_run(url, results_dir, many, timeout_s=1))
    (small_disk / "filler").unlink()
    assert store_run(url, results_dir, make_run(2), timeout_s=1) is None
    with Registry.open(url, results_dir) as registry:
        assert len(registry.runs()) == 2


def test_file_that_may_not_grow_costs_no_run(
    results_dir: Path, make_run: Any, files_end_at: Any
) -> None:
    """A limit on the size of files is as good as a full disk."""
    Registry.open("", results_dir).close()
    many = make_run(1, **{f"b{n}": 0.1 for n in range(200)})
    with files_end_at(50_000):
        line = store_run("", results_dir, many, timeout_s=1)
    assert "disk is full" in str(line)
    with Registry.open("", results_dir) as registry:
        assert registry.runs() == []
        assert registry.ingest(many)


@pytest.mark.slow
def test_read_only_registry_is_read_and_costs_no_run(
    small_disk: Path, results_dir: Path, make_run: Any
) -> None:
    """On a read-only disk it can be asked, and a run waits."""
    url = f"sqlite:///{small_disk / 'registry.sqlite'}"
    with Registry.open(url, results_dir) as registry:
        registry.ingest(make_run(1))
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with Registry.open(url, results_dir) as registry:
        assert len(registry.runs()) == 1
    line = str(store_run(url, results_dir, make_run(2), timeout_s=1))
    assert "read-only" in line
    with connect(url, results_dir) as reached:
        assert len(reached.registry.runs()) == 1  # type: ignore[union-attr] # it is open
        assert "read-only" in reached.notes[0]


def test_missing_driver_is_said(
    results_dir: Path, make_run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without psycopg the line says how to install it."""
    monkeypatch.setitem(sys.modules, "psycopg", None)
    line = str(store_run("postgresql://host/db", results_dir, make_run(1), timeout_s=1))
    assert "pip install 'pytest-gpubench[postgresql]'" in line


@pytest.mark.parametrize(
    ("url", "said"),
    [("sqlite:///no/where.sqlite", "folder is missing"), ("mysql://host/db", "mysql")],
)
def test_bad_url_costs_no_run(results_dir: Path, make_run: Any, url: str, said: str) -> None:
    """Where a session was started with one anyhow, its end says so in one line."""
    assert said in str(store_run(url, results_dir, make_run(1)))


def test_readers_are_not_blocked_by_a_writer(results_dir: Path, make_run: Any) -> None:
    """They see the state before its transaction."""
    with Registry.open("", results_dir) as registry, Registry.open("", results_dir) as other:
        registry.ingest(make_run(1))
        with other.database.writing() as connection:
            connection.exec_driver_sql("DELETE FROM results_1")
            assert len(registry.points(make_run.id("mlp"), "step_time_s")) == 1
