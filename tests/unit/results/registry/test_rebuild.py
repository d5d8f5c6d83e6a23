"""Tests of ``gpubench db``: filling, checking and making the registry anew."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gpubench_plugin.results.registry.checking import check

from gpubench_plugin.baselines.store import Baselines, merge_files
from gpubench_plugin.cli.main import main
from gpubench_plugin.environment import json_files
from gpubench_plugin.results.journal import Journal
from gpubench_plugin.results.registry import documents, rebuilding
from gpubench_plugin.results.registry.locations import location


@pytest.fixture
def db(backend: Any, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run ``gpubench db`` on the database; return exit code and output."""

    def run(action: str, *more: str) -> tuple[int, str]:
        where = [f"--registry={backend.url}", f"--results-dir={backend.results_dir}"]
        code = main(["db", action, *where, *more])
        output = capsys.readouterr()
        return code, output.out + output.err

    return run


RUN, LATER = "20260101T000000Z_run_000000", "20260102T000000Z_run_000001"


@pytest.mark.slow
def test_upgrade_makes_the_tables(db: Any) -> None:
    """Asked a second time there is nothing to do."""
    assert db("check")[0] == 4
    assert db("upgrade") == (0, "upgraded\n")
    assert db("upgrade") == (0, "already up to date\n")
    code, output = db("check")
    assert (code, output) == (
        0,
        "schema 0002\n0 runs with 0 results\nconsistent with the runs\n",
    )


def test_ingest_stores_what_is_missing(backend: Any, make_run: Any, db: Any) -> None:
    """All runs and the spool; a broken one is named and costs the others nothing."""
    runs = [make_run(day) for day in (1, 2, 3)]
    marker = f"{runs[0].run_id}.{location(backend.url, backend.results_dir).key}.json"
    (backend.results_dir / ".spool").mkdir()
    json_files.write_json(
        backend.results_dir / ".spool" / marker, {"run": f"default/{runs[0].run_id}"}
    )
    assert db("ingest") == (0, "3 stored, 0 already present\n")
    assert list((backend.results_dir / ".spool").iterdir()) == []
    make_run(2, mlp=0.5)
    make_run(4).summary.write_text("{\x1b[31m")
    code, output = db("ingest")
    assert code == 4
    assert output.startswith("1 stored, 2 already present\nnot stored: ")
    assert "summary.json" in output
    assert "\x1b" not in output


def test_run_that_is_being_written_is_left_for_later(make_run: Any, db: Any) -> None:
    """A session that still lives stores its run itself."""
    run = make_run(1)
    with Journal(run.journal):
        assert db("ingest") == (0, "0 stored, 0 already present, 1 still being written\n")
        code, output = db("check")
        assert code == 0
        assert "1 still being written" in output
    assert db("ingest")[1] == "1 stored, 0 already present\n"


def test_check_says_what_differs(backend: Any, make_run: Any, db: Any) -> None:
    """Runs on one side only, runs that changed, and runs that wait."""
    for day in range(1, 4):
        make_run(day)
    db("ingest")
    assert db("check")[0] == 0
    make_run(2, mlp=0.5)
    new = make_run(9)
    broken = make_run(8)
    (broken.path / "tags.json").write_text("[]")
    gone = make_run(1)
    gone.journal.unlink()
    code, output = db("check")
    assert code == 4
    assert f"error: 1 run ({new.run_id}) not stored" in output
    assert "changed since stored" in output
    assert "tags.json" in output
    there = f"1 run ({gone.run_id}) stored"
    assert f"error: {there}" in output if backend.kind == "sqlite" else there in output


def test_tags_given_later_are_no_difference(backend: Any, make_run: Any, db: Any) -> None:
    """A run that was tagged in its folder and in the registry is stored as it is."""
    run = make_run(1)
    db("ingest")
    make_run.tag(run, "b", "a")
    with backend.open() as registry:
        registry.tag(run)
        assert not registry.ingest(run)
    assert db("check")[0] == 0


def test_check_notices_missing_parts(backend: Any, make_run: Any, db: Any) -> None:
    """Deleted rows are reported."""
    make_run(1)
    db("ingest")
    backend.sql("DELETE FROM benchmarks", "DELETE FROM facts", "UPDATE runs SET benchmarks = 2")
    code, output = db("check")
    assert code == 4
    for what in ("benchmark's name", "settings", "units", "all their results"):
        assert what in output
    assert db("rebuild")[0] == 0
    assert db("check")[0] == 0


def test_rebuild_restores_all_that_files_tell(
    backend: Any, make_run: Any, db: Any, tmp_path: Path
) -> None:
    """Runs, tags, verdicts and baselines; what other machines have changed stays."""
    run = make_run(1, regressed=("mlp",))
    make_run.tag(run, "release")
    make_run(2)
    here = Baselines(backend.results_dir)
    here.set("main", [RUN], branch=None)
    here.accept("main", LATER, "test_here", reason="meant")
    (backend.results_dir / "baselines" / "broken.json").write_text("{")
    with backend.open() as registry:
        there = Baselines(tmp_path, registry)
        there.set("elsewhere", [RUN], branch=None)
        there.set("main", [RUN], branch=None)
        there.accept("main", LATER, "test_there", reason="meant")
    code, output = db("rebuild")
    assert code == 4
    assert output.startswith("2 stored, 0 already present\nnot stored: ")
    assert "broken.json" in output
    with backend.open(create=False) as registry:
        rows = registry.runs()
        assert [(row.tags, row.regressed) for row in rows] == [((), False), (("release",), True)]
        stored = Baselines(tmp_path / "nowhere", registry)
        assert stored.names() == ("elsewhere", "main")
        assert {*stored.require("main").acceptances} == {"test_here", "test_there"}
        assert len(stored.require("main").changes) == 4
        assert check(registry).errors == []
    names = {path.name for path in backend.results_dir.iterdir() if path.is_file()}
    assert names <= {"registry.sqlite", "registry.sqlite.lock"}


def test_rebuild_does_not_drop_what_is_elsewhere(backend: Any, make_run: Any, db: Any) -> None:
    """Runs without a directory here are kept unless they are given up in so many words."""
    gone = make_run(1)
    make_run(2)
    db("ingest")
    gone.journal.unlink()
    code, output = db("rebuild")
    assert code == 4
    assert "--drop-missing" in output
    with backend.open() as registry:
        assert len(registry.runs()) == 2
    assert db("rebuild", "--drop-missing")[0] == 0
    with backend.open() as registry:
        assert len(registry.runs()) == 1


def test_rebuild_that_fails_changes_nothing(
    backend: Any, make_run: Any, db: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Either all of it is made anew, or all of it stays."""
    make_run(1)
    db("ingest")
    make_run(2)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(documents, "merge", full)
    Baselines(backend.results_dir).set("main", [RUN], branch=None)
    code, output = db("rebuild")
    assert code == 4
    assert "No space left" in output
    with backend.open() as registry:
        assert len(registry.runs()) == 1
    assert ".new" not in output  # the file that a user has, not the one beside it
    assert not list(backend.results_dir.glob("*.new*"))


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_rebuild_leaves_out_a_stray_file(backend: Any, db: Any) -> None:
    """It is named, and the baselines are stored."""
    Baselines(backend.results_dir).set("main", [RUN], branch=None)
    stray = backend.results_dir / "baselines" / "main copy.json"
    stray.write_text("{")
    code, output = db("rebuild")
    assert code == 0
    assert f"{stray} is ignored" in output
    with backend.open() as registry:
        assert list(registry.documents("baseline")) == ["main"]


def test_rebuild_refuses_a_newer_schema(backend: Any, make_run: Any, db: Any) -> None:
    """What a newer version has stored is not thrown away by an older one."""
    make_run(1)
    db("ingest")
    backend.sql("UPDATE gpubench_schema SET version_num = '9999'")
    code, output = db("rebuild")
    assert code == 4
    assert "newer" in output


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
@pytest.mark.parametrize("content", [b"", b"x" * 5000])
def test_rebuild_replaces_a_damaged_file(
    backend: Any, make_run: Any, db: Any, content: bytes
) -> None:
    """It is rebuilt from the runs; the unreadable file is kept as a backup and named."""
    run = make_run(1)
    file = backend.results_dir / "registry.sqlite"
    for name in ("registry.sqlite", "registry.sqlite-wal", "registry.sqlite.0123abcd.new"):
        (backend.results_dir / name).write_bytes(content)
    if content:
        assert "gpubench db rebuild" in db("check")[1]
    beside = [file.with_name(f"{file.name}.{name}") for name in ("mine.new", "0123.new.txt")]
    for mine in beside:
        mine.write_text("mine")
    code, output = db("rebuild")
    assert code == 0
    assert output.startswith("1 stored, 0 already present\n")
    with backend.open(create=False) as registry:
        assert [row.run_id for row in registry.runs()] == [run.run_id]
    aside = set(file.parent.glob("registry.sqlite.damaged-*"))
    backups = {path for path in aside if not path.name.endswith("-wal")}
    assert [path.read_bytes() for path in backups] == ([content] if content else [])
    assert all(
        f"was damaged (file is not a database) and is kept as {path}" in output for path in backups
    )
    own = {file, file.with_name(f"{file.name}.lock"), *aside, *beside}
    assert set(file.parent.glob("registry*")) <= own
    assert all(mine.exists() for mine in beside)


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_rebuild_of_an_older_schema_keeps_what_is_elsewhere(
    backend: Any, make_run: Any, db: Any
) -> None:
    """The runs of an older version count as well; made anew, the schema is the latest."""
    gone = make_run(1)
    db("ingest")
    backend.sql(
        "DROP TABLE documents", "DROP TABLE tags", "UPDATE gpubench_schema SET version_num = '0001'"
    )
    gone.journal.unlink()
    assert "--drop-missing" in db("rebuild")[1]
    gone.journal.touch()
    assert db("rebuild")[0] == 0
    assert db("check")[0] == 0


@pytest.mark.parametrize("backend", ["sqlite"], indirect=True)
def test_rebuild_waits_for_those_who_have_it_open(
    backend: Any, make_run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that another process has open is not replaced."""
    from gpubench_plugin.core.errors import RegistryError

    make_run(1)
    with backend.open(), pytest.raises(RegistryError, match="another process has it open"):
        rebuilding.rebuild(
            backend.url, backend.results_dir, merge_baselines=merge_files, timeout_s=0.1
        )


def test_unknown_action_is_bad_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """The message names what there is."""
    with pytest.raises(SystemExit) as end:
        main(["db", "mend"])
    assert end.value.code == 2
    assert "rebuild" in capsys.readouterr().err


def test_no_registry_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """With ``none`` there is nothing to look after."""
    assert main(["db", "check", "--registry=none"]) == 4
    assert "the registry is disabled" in capsys.readouterr().err
