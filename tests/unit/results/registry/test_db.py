"""Tests of ``gpubench db``: filling, rebuilding and cleaning the registry."""

from __future__ import annotations

from typing import Any

import pytest

from gpubench_plugin.cli.main import main
from gpubench_plugin.results.journal import Journal


@pytest.fixture
def db(backend: Any, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run ``gpubench db`` on the database; return exit code and output."""

    def run(action: str, *more: str) -> tuple[int, str]:
        where = [f"--registry={backend.url}", f"--results-dir={backend.results_dir}"]
        code = main(["db", action, *where, *more])
        output = capsys.readouterr()
        return code, output.out + output.err

    return run


def test_ingest_stores_what_is_missing_or_changed(make_run: Any, db: Any) -> None:
    """A broken run is named and costs the others nothing."""
    for day in (1, 2, 3):
        make_run(day)
    assert db("ingest") == (0, "3 stored, 0 already present\n")
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
    assert db("ingest")[1] == "1 stored, 0 already present\n"


def test_rebuild_derives_the_index_from_documents_and_directories(
    backend: Any, make_run: Any, db: Any
) -> None:
    """Whatever was in its tables; runs without a directory stay, with tags and verdicts."""
    gone = make_run(1, regressed=("mlp",))
    make_run.tag(gone, "release")
    make_run(2)
    db("ingest")
    gone.journal.unlink()
    make_run(3)
    backend.sql("DELETE FROM results_1", "DELETE FROM facts_1", "UPDATE runs_1 SET tags = '[]'")
    assert db("rebuild") == (0, "1 stored, 1 already present\n")
    with backend.open() as registry:
        rows = registry.runs()
        assert [(row.tags, row.regressed) for row in rows] == [
            ((), False),
            ((), False),
            (("release",), True),
        ]
        assert len(registry.points(make_run.id("mlp"), "step_time_s")) == 3


def test_document_that_cannot_be_read_blocks_nothing(backend: Any, make_run: Any, db: Any) -> None:
    """It is made again from the run's folder; without one it is named, and listed as broken."""
    here, gone = make_run(1), make_run(2)
    db("ingest")
    with backend.open() as registry:
        text = registry.document("run", gone.run_id)
        newer = text.replace('"summary": {"schema_version": ', '"summary": {"schema_version": 9')
        for run, other in ((here, '{"x": 1}'), (gone, newer)):
            stored = registry.document("run", run.run_id)
            assert registry.swap_document("run", run.run_id, stored, other)
        gone.journal.unlink()
        assert registry.tag(here.run_id, here, add=["good"]) == ("good",)
        assert registry.tag(gone.run_id, add=["newer"]) == ("newer",)
    make_run(3)
    for action, stored in (("ingest", 2), ("rebuild", 0)):
        code, output = db(action)
        assert (code, output.startswith(f"{stored} stored")) == (4, True)
        (line,) = (line for line in output.splitlines() if line.startswith("not stored: "))
        assert gone.run_id in line
        assert "schema_version 91" in line
    with backend.open() as registry:
        assert registry.ingest_all().errors == []  # it is tried again only if it changes
        states = [(row.state, row.tags) for row in registry.runs(prefix="2026")]
        assert states == [("complete", ()), ("complete", ("good",)), ("broken", ())]


def test_no_registry_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    """With ``none`` there is nothing to look after."""
    assert main(["db", "ingest", "--registry=none"]) == 4
    assert "the registry is disabled" in capsys.readouterr().err
