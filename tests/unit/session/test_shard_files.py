"""What a shard has written so far: which tests have finished, and which record is theirs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.launchers import report_transport
from gpubench_plugin.results import report_payload
from gpubench_plugin.results.journal import Journal
from gpubench_plugin.results.recorder import Recorder
from gpubench_plugin.results.run_directory import RunDirectory
from gpubench_plugin.session.shards.files import ShardFiles, with_record
from gpubench_plugin.session.shards.shard import REPORTS, RESULTS
from tests.support.phase_reports import phase_report

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gpubench_plugin.core.records import Measurement

ID = "test_x.py::test_x"


class Written:
    """A shard's folder, written as its session does."""

    def __init__(self, config: pytest.Config, folder: Path, record: Measurement):
        self.config, self.folder, self.record = config, folder, replace(record, id=ID)
        self.reports = Journal(folder / REPORTS)
        self.files = ShardFiles(config, folder, lambda benchmark, event: None)

    def session(self) -> Recorder:
        """The run directory of another session in the folder."""
        number = len([*self.folder.glob(f"{RESULTS}/*/*")])
        return Recorder.start(
            RunDirectory.create(
                self.folder / RESULTS, "default", f"20260131T12000{number}Z_run_0a1b2c"
            ),
            command=[],
            environment={"schema_version": 1, "hostname": "here"},
            configurations="{}\n",
            params={ID: {}},
            code={},
        )

    def begin(self) -> None:
        self.reports.append({"event": "test_started", "nodeid": ID})

    def report(self, *outcomes: str) -> None:
        for when, outcome in zip(("setup", "call", "teardown"), outcomes, strict=True):
            encoded = report_transport.encode(self.config, [phase_report(when, outcome)])
            self.reports.append({"event": "test_reported", "report": encoded["reports"][0]})

    def finish(self) -> None:
        line = {"event": "test_finished", "nodeid": ID}
        self.reports.append({**line, "warnings": [], "results": []})

    def read(self, *, is_last: bool = False) -> list[str]:
        """Reasons of the records of the tests that have finished."""
        tests = self.files.read({ID: ID}, is_last=is_last)
        return [test.record.reason if test.record else "none" for test in tests]


@pytest.fixture
def written(
    pytestconfig: pytest.Config, tmp_path: Path, measured: Callable[..., Measurement]
) -> Written:
    return Written(pytestconfig, tmp_path, measured())


def test_reports_wait_for_their_record(written: Written) -> None:
    """Engines copy file by file, so that a journal may be behind."""
    run = written.session()
    written.begin()
    written.report("passed", "passed", "passed")
    written.finish()
    assert written.read() == []
    run.record(replace(written.record, reason="late"))
    assert written.read() == ["late"]


def test_test_whose_record_was_lost_has_not_finished(written: Written) -> None:
    """It was running when its node was lost, as far as anybody can tell."""
    written.session()
    written.begin()
    written.report("passed", "passed", "passed")
    written.finish()
    assert written.read(is_last=True) == []
    assert written.files.running is not None
    assert (written.files.running.nodeid, written.files.running.reports) == (ID, [])


def test_record_of_an_earlier_session_is_not_taken(written: Written) -> None:
    """One requeued measures again what it had not finished; the new journal may be behind."""
    first = written.session()
    written.begin()
    first.record(replace(written.record, reason="old"))
    first.close()
    assert written.read() == []
    second = written.session()
    written.begin()
    written.report("passed", "passed", "passed")
    written.finish()
    assert written.read() == []
    second.record(replace(written.record, reason="new"))
    assert written.read() == ["new"]


def test_record_is_that_of_the_last_try(written: Written) -> None:
    """Of a test that another plugin runs again; an earlier try keeps the outcome of its reports."""
    run = written.session()
    written.begin()
    written.report("passed", "failed", "passed")
    run.record(replace(written.record, reason="first"))
    written.report("passed", "passed", "passed")
    written.finish()
    assert written.read() == []
    run.record(replace(written.record, reason="second"))
    (test,) = written.files.read({ID: ID})
    payloads = [report_payload.read(report) for report in with_record(test)]
    assert [p[report_payload.RECORD].reason for p in payloads[3:]] == ["second"] * 3
    assert not any(report_payload.RECORD in payload for payload in payloads[:3])
    assert payloads[1]["outcome"] == "failed"
