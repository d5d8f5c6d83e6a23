"""Whoever opens the registry stores what it lacks; documents outlive run directories."""

from __future__ import annotations

import os
import shutil
import socket
from typing import TYPE_CHECKING, Any

from gpubench_plugin.cli.main import main
from gpubench_plugin.results.registry import connection as access
from gpubench_plugin.results.registry.connection import connect, store_run
from gpubench_plugin.results.registry.registry import Registry

if TYPE_CHECKING:
    import pytest


def ids(registry: Any) -> list[int]:
    return [int(run.run_id[6:8]) for run in registry.runs()]


def test_run_is_stored_without_a_message(results_dir: Any, make_run: Any) -> None:
    """With ``none`` nothing is written anywhere."""
    run = make_run(1)
    assert store_run("none", results_dir, run) is None
    assert {path.name for path in results_dir.iterdir()} == {"default"}
    assert store_run("", results_dir, run) is None
    with Registry.open("", results_dir, create=False) as registry:
        assert ids(registry) == [1]


def test_run_that_was_not_stored_is_stored_by_the_next_opener(
    backend: Any, make_run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Be it a session or a command; whatever went wrong is said in one line."""
    backend.open().close()

    def fail(*_: object, **__: object) -> None:
        raise ValueError("nobody\nforesaw it")

    with monkeypatch.context() as patched:
        patched.setattr(Registry, "ingest", fail)
        line = store_run(backend.url, backend.results_dir, make_run(1))
    assert "foresaw" in str(line)
    assert "\n" not in str(line)
    assert store_run(backend.url, backend.results_dir, make_run(2)) is None
    make_run(3)
    with connect(backend.url, backend.results_dir) as reached:
        assert ids(reached.registry) == [3, 2, 1]
        assert (reached.error, reached.notes) == ("", ())


def test_run_that_changed_while_the_database_was_down_is_stored_again(
    backend: Any, make_run: Any
) -> None:
    """As one that was resumed or judged; a copy that is older changes nothing."""
    run = make_run(1)
    with backend.open() as registry:
        registry.ingest_all()
        copy = backend.results_dir.with_name("older")
        shutil.copytree(run.path, copy)
        make_run.judge(run, "mlp")
        assert registry.ingest_all().stored == 1
        for path in (copy / "metrics.jsonl", copy):
            os.utime(path, (0, 0))
        shutil.rmtree(run.path)
        copy.rename(run.path)
        os.utime(run.path, (0, 0))
        assert registry.ingest_all().stored == 0
        assert [row.regressed for row in registry.runs()] == [True]


def test_missing_runs_are_not_stored_at_any_price(
    results_dir: Any, make_run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An opener takes a limited time for the others; what is left is said."""
    for day in range(1, 4):
        make_run(day)
    monkeypatch.setattr(access, "_CATCH_UP_S", -1.0)
    assert store_run("", results_dir, make_run(4)) is None
    with connect("", results_dir) as reached:
        assert ids(reached.registry) == [4]
        assert "lacks 3 runs; 'gpubench db ingest' stores them" in reached.notes[0]


def test_broken_run_costs_the_others_nothing(results_dir: Any, make_run: Any) -> None:
    """A session whose own run cannot be read names the file."""
    make_run(1).summary.write_text("{")
    assert store_run("", results_dir, make_run(2)) is None
    with connect("", results_dir) as reached:
        assert ids(reached.registry) == [2]
    broken = make_run(3)
    broken.summary.write_text("{")
    assert "summary.json" in str(store_run("", results_dir, broken))


def test_document_is_all_that_is_needed(backend: Any, make_run: Any) -> None:
    """After its directory is gone a run is listed, judged by and tagged as before."""
    directory = make_run(1, regressed=("mlp",), mlp=0.01)
    make_run.tag(directory, "release")
    with backend.open() as registry:
        registry.ingest(directory)
        expected = registry.run(directory.run_id)
        shutil.rmtree(directory.path)
        backend.sql("DELETE FROM results_1", "DELETE FROM runs_1")
        registry.ingest_all()
        (row,) = registry.runs()
        assert (row.tags, row.regressed, row.state) == (("release",), True, "complete")
        found = registry.run(directory.run_id)
        assert found.results == expected.results
        assert found.path is None
        registry.tag(directory.run_id, add=["late"], remove=["release"])
        assert registry.runs()[0].tags == ("late",)


def test_prune_alone_removes_documents(
    backend: Any, make_run: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """That of a run without a directory here only if asked for it, and no protected one."""
    where = [f"--registry={backend.url}", f"--results-dir={backend.results_dir}"]
    for day in range(1, 6):
        make_run(day)
    with backend.open() as registry:
        registry.ingest_all()
    for day in (2, 3):
        shutil.rmtree(make_run(day).path)
    assert main(["runs", "tag", "20260103", "keep", *where]) == 0
    prune = ["runs", "prune", "--runs", "--keep-last=2", *where]
    assert main([*prune, "--dry-run"]) == main(prune) == 0
    with backend.open() as registry:
        assert ids(registry) == [5, 4, 3, 2]
    assert main(["db", "rebuild", *where]) == 0
    with backend.open() as registry:
        assert ids(registry) == [5, 4, 3, 2]
    capsys.readouterr()
    assert main([*prune, "--registered"]) == 0
    output = capsys.readouterr().out
    with backend.open() as registry:
        assert ids(registry) == [5, 4, 3]
    assert "20260102T120000Z_run_000002" in output
    assert "tagged keep" in output


def test_server_that_is_down_costs_no_run(results_dir: Any, make_run: Any) -> None:
    """Nobody listens at the port: one line, without the password."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    url = f"postgresql+psycopg://me:hunter2@127.0.0.1:{port}/bench?password=hunter2"
    line = store_run(url, results_dir, make_run(1), timeout_s=1)
    assert "refused" in str(line)
    assert "stores the run" in str(line)
    assert "hunter2" not in str(line)
