"""Many processes at once, and processes that are killed, on both kinds of database."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpubench_plugin.baselines.store import Baselines
from gpubench_plugin.results.reader import RunReader
from gpubench_plugin.results.registry.registry import Registry
from gpubench_plugin.results.run_directory import tags_of

pytestmark = pytest.mark.slow


WRITERS = Path(__file__).with_name("writers.py")


def writers(job: str, backend: Any, *numbers: int) -> str:
    """Run the program beside this file; what it printed."""
    done = subprocess.run(
        [sys.executable, WRITERS, job, backend.url, backend.results_dir, *map(str, numbers)],
        env={**os.environ, "PYTHONWARNINGS": "error"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def as_stored(registry: Registry) -> dict[str, Any]:
    return {row.run_id: registry.run(row.run_id).results for row in registry.runs()}


def test_eight_processes_make_the_database_at_once(backend: Any) -> None:
    """All succeed, and what they made is whole."""
    writers("create", backend, 8)
    with backend.open(create=False) as registry:
        assert registry.runs() == []


def test_sixteen_processes_write_at_once(backend: Any, make_run: Any) -> None:
    """None fails although all store the same runs and make the database, and no run is doubled."""
    runs = [make_run(day, **{f"b{n}": day / 100 for n in range(5)}) for day in range(1, 9)]
    writers("write", backend, 16)
    with backend.open(create=False) as registry:
        stored = as_stored(registry)
    assert len(stored) == len(runs)
    for run in runs:
        assert stored[run.run_id].keys() == RunReader(run).run().results.keys()


def test_four_processes_accept_and_tag_at_once(backend: Any, make_run: Any) -> None:
    """Each acceptance, in documents and in files, and each tag change is stored."""
    run = make_run(1)
    make_run.tag(run, *(f"old{number}" for number in range(4)))
    url = backend.url or f"sqlite:///{backend.results_dir / 'registry.sqlite'}"
    with backend.open() as registry:
        registry.ingest(run)
        owners = [Baselines(backend.results_dir, registry), Baselines(backend.results_dir)]
        for baselines in owners:
            baselines.set("main", ["run"], branch=None)
    writers("change", replace(backend, url=url), 4)
    with backend.open(create=False) as registry:
        owners = [Baselines(backend.results_dir, registry), Baselines(backend.results_dir)]
        for baseline in (baselines.require("main") for baselines in owners):
            assert {*baseline.acceptances} == {f"test_{number}" for number in range(4)}
            assert len(baseline.changes) == 5
        tags = tuple(f"new{number}" for number in range(4))
        assert [row.tags for row in registry.runs()] == [tags]
        assert tags_of(run) == tags


@pytest.mark.exhaustive
def test_killed_processes_lose_and_double_nothing(backend: Any, make_run: Any) -> None:
    """Fifty are killed while they replace runs: what was stored is there, once and whole."""
    runs = [make_run(day, **{f"b{n}": day / 100 for n in range(5)}) for day in range(1, 13)]
    with backend.open() as registry:
        registry.ingest(runs[0])
    printed_ids = set(writers("kill", backend, 50, 7).split())
    with backend.open() as registry:
        stored = as_stored(registry)
        assert stored.keys() >= printed_ids | {runs[0].run_id}
        assert printed_ids, "no process got so far as to store anything"
        registry.ingest_all()
        stored = as_stored(registry)
    assert len(stored) == len(runs)
    for run in runs:
        assert stored[run.run_id].keys() == RunReader(run).run().results.keys()
