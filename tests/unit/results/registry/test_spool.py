"""Tests of runs that wait to be stored."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpubench_plugin.results.registry.checking import check

from gpubench_plugin.results.registry import spool
from gpubench_plugin.results.registry.locations import location
from gpubench_plugin.results.registry.registry import Registry

if TYPE_CHECKING:
    import pytest

DOWN = "postgresql+psycopg://127.0.0.1:1/bench"


def test_run_is_stored_and_does_not_wait(results_dir: Path, make_run: Any) -> None:
    """Normally there is no message and no marker is left."""
    run = make_run(1)
    assert spool.store_or_spool("", results_dir, run) is None
    with Registry.open("", results_dir, create=False) as registry:
        assert [row.run_id for row in registry.runs()] == [run.run_id]
    assert list((results_dir / ".spool").iterdir()) == []


def test_no_registry_no_spool(results_dir: Path, make_run: Any) -> None:
    """With ``none`` nothing is written anywhere."""
    assert spool.store_or_spool("none", results_dir, make_run(1)) is None
    assert {path.name for path in results_dir.iterdir()} == {"default"}


def test_marker_waits_for_its_own_database(results_dir: Path, make_run: Any) -> None:
    """A run that waits for one database is not struck off because another took it."""
    run = make_run(1)
    line = spool.store_or_spool(DOWN, results_dir, run, timeout_s=1)
    assert line is not None
    assert line.endswith("the next run or 'gpubench db ingest' stores it")
    assert spool.store_or_spool("", results_dir, make_run(2)) is None
    (marker,) = spool.pending(location(DOWN, results_dir), results_dir)
    assert marker.directory.run_id == run.run_id
    fields = json.loads(marker.file.read_text())
    assert fields["run"] == f"default/{run.run_id}"


def test_markers_without_a_run_are_removed(results_dir: Path, make_run: Any) -> None:
    """A deleted run and a file that is not a marker are skipped; the latter is kept."""
    folder, key = results_dir / ".spool", location("", results_dir).key
    folder.mkdir()
    for name, text in {"a": "", "b": "[]", "c": '{"run": 3}', "d": '{"run": "x/gone"}'}.items():
        (folder / f"{name}.{key}.json").write_text(text)
    (folder / "of-another.0123.json").write_text("")
    (folder / f"link.{key}.json").symlink_to(f"d.{key}.json")
    assert spool.store_or_spool("", results_dir, make_run(1)) is None
    file_names = {
        "of-another.0123.json",
        *(f"{name}.{key}.json" for name in "abc"),
        f"link.{key}.json",
    }
    assert {path.name for path in folder.iterdir()} == file_names


def test_broken_run_does_not_hold_up_others(results_dir: Path, make_run: Any) -> None:
    """A waiting run that cannot be read goes on waiting, the others are stored."""
    key = location("", results_dir).key
    (results_dir / ".spool").mkdir()
    for day in (1, 2):
        name = make_run(day).run_id
        marker = results_dir / ".spool" / f"{name}.{key}.json"
        marker.write_text(json.dumps({"run": f"default/{name}"}))
    make_run(1).summary.write_text("{")
    assert spool.store_or_spool("", results_dir, make_run(3)) is None
    with Registry.open("", results_dir) as registry:
        assert len(registry.runs()) == 2
        assert any("spool" in problem for problem in check(registry).errors)
    assert len(list((results_dir / ".spool").iterdir())) == 1


def test_own_broken_run_is_said(results_dir: Path, make_run: Any) -> None:
    """A run whose summary cannot be read waits, and the line names the file."""
    run = make_run(1)
    run.summary.write_text("{")
    line = spool.store_or_spool("", results_dir, run)
    assert line is not None
    assert "summary.json" in line


def test_backlog_is_not_stored_at_any_price(
    results_dir: Path, make_run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a session takes a share of what waits; the rest waits on."""
    for day in range(1, 4):
        spool.store_or_spool(DOWN, results_dir, make_run(day), timeout_s=1)
    key = location("", results_dir).key
    for file in (results_dir / ".spool").iterdir():
        file.rename(file.with_name(f"{file.name.partition('.')[0]}.{key}.json"))
    monkeypatch.setattr(spool, "_BACKLOG_S", -1.0)
    assert spool.store_or_spool("", results_dir, make_run(4)) is None
    with Registry.open("", results_dir) as registry:
        assert len(registry.runs()) == 1
    assert len(list((results_dir / ".spool").iterdir())) == 3


def test_spool_that_cannot_be_written_is_said(results_dir: Path, make_run: Any) -> None:
    """Where not even a marker can be left, the line says so, and nothing is raised."""
    (results_dir / ".spool").write_text("a file")
    line = spool.store_or_spool("", results_dir, make_run(1))
    assert line is not None
    assert "neither stored nor queued" in line


def test_anything_else_that_goes_wrong_is_said(
    results_dir: Path, make_run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unexpected error does not disturb the end of a session."""

    def fail(*_: object, **__: object) -> None:
        raise ValueError("nobody\nforesaw it")

    monkeypatch.setattr(Registry, "ingest", fail)
    line = spool.store_or_spool("", results_dir, make_run(1))
    assert line is not None
    assert "foresaw" in line
    assert "\n" not in line
