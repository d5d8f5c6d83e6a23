"""The reports of all ranks as those of one test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.core.errors import GangError
from gpubench_plugin.launchers import merged_reports as merging
from gpubench_plugin.launchers.outcome import JointVerdict, RankOutcome, judge
from gpubench_plugin.ranks.control_plane import OUT_OF_STEP
from gpubench_plugin.results import report_payload
from tests.support.phase_reports import subtest_report

if TYPE_CHECKING:
    from collections.abc import Callable

    EndedMaker = Callable[..., RankOutcome]
    ReportMaker = Callable[..., pytest.TestReport]
    Merge = Callable[..., tuple[pytest.TestReport, list[pytest.TestReport]]]


@pytest.fixture
def merge(request: pytest.FixtureRequest) -> Merge:
    """Merges how ranks ended the call as a report of this very test."""
    return lambda *endings: merging.merge_phase(request.node, "call", endings, judge(endings))


def test_agreeing_ranks_have_one_report(
    merge: Merge, reported: ReportMaker, came_to_end: EndedMaker
) -> None:
    """It has the output of every rank under its number, and lasts as long as the slowest."""

    def ended(rank: int, text: str, seconds: float) -> RankOutcome:
        call = reported(sections=[("Captured stdout call", text)], duration=seconds)
        return came_to_end(rank, call)

    report, others = merge(ended(0, "one", 1.0), ended(1, "two", 2.0))

    assert (report.when, report.outcome, report.duration, others) == ("call", "passed", 2.0, [])
    assert report.sections == [
        ("Captured stdout call [rank 0]", "one"),
        ("Captured stdout call [rank 1]", "two"),
    ]
    alone, _ = merge(ended(0, "one", 1.0))
    assert alone.sections == [("Captured stdout call", "one")], "as in any session"


def test_what_a_phase_of_a_plain_test_reports_is_there_once(
    request: pytest.FixtureRequest, reported: ReportMaker, came_to_end: EndedMaker
) -> None:
    """Subtests, too, of one rank: one that failed, else the first; nothing at all is a pass."""

    def merge(*endings: RankOutcome) -> tuple[pytest.TestReport, list[pytest.TestReport]]:
        return merging.merge_phase(request.node, "call", endings, JointVerdict())

    subtests = [reported(nodeid=f"test_x.py::test_x [{rank}]") for rank in range(2)]
    passed, failed = reported(), reported(outcome="failed", reason="no")
    one = came_to_end(0, subtests[0], passed)
    assert merge(one, came_to_end(1, subtests[1], reported())) == (passed, [subtests[0]])
    assert merge(one, came_to_end(1, subtests[1], failed)) == (failed, [subtests[1]])
    report, others = merge(RankOutcome(rank=0, state="absent"))
    assert (report.when, report.outcome, others) == ("call", "passed", [])


@pytest.mark.parametrize("outcome", ["failed", "skipped"])
def test_a_subtest_changes_no_outcome(
    merge: Merge, reported: ReportMaker, came_to_end: EndedMaker, outcome: str
) -> None:
    """Of one rank only: rank zero's report, which has the measurement, stands, beside a failure."""
    own, part = reported(), subtest_report(outcome)
    report, others = merge(came_to_end(0, own), came_to_end(1, part, reported()))
    assert (report, others) == (own, [part] if outcome == "failed" else [])
    assert came_to_end(1, part, reported()).passed


def test_failure_on_all_ranks_shows_the_first_and_the_others_tracebacks(
    merge: Merge, reported: ReportMaker, came_to_end: EndedMaker
) -> None:
    """The outcome is what they agree on, each traceback is there once."""
    bad = [reported(outcome="failed", longrepr=f"trace {n}", reason="no") for n in (0, 1)]

    report, _ = merge(came_to_end(0, bad[0]), came_to_end(1, bad[1]))

    assert (report.outcome, report.longrepr) == ("failed", "trace 0")
    assert report_payload.read(report)["outcome"] == "failed"
    assert report.sections == [("Traceback of rank 1", "trace 1")]


def test_failure_that_waited_for_another_is_not_the_one_that_is_shown(
    merge: Merge, reported: ReportMaker, came_to_end: EndedMaker
) -> None:
    """Whichever rank it is of."""
    waited = reported(outcome="failed", reason=f"MeasurementError: {OUT_OF_STEP}: rank 1 is at")
    cause = reported(outcome="failed", reason="ValueError: no luck")
    report, _ = merge(came_to_end(0, waited), came_to_end(1, cause))
    assert report is cause


def test_verdict_outranks_what_the_ranks_say(
    merge: Merge, reported: ReportMaker, came_to_end: EndedMaker
) -> None:
    """A phase that did not end on all ranks fails, with all that is known in sections."""
    bad = reported(
        outcome="failed", longrepr="trace", reason="no", sections=[("Captured log call", "logged")]
    )
    stuck = RankOutcome(
        rank=1,
        state="stuck",
        details="did not end",
        stack="in all_reduce",
        output="bye",
        duration_s=7.0,
    )
    report, others = merge(came_to_end(0, bad), stuck)

    assert (report.when, report.outcome, others) == ("call", "failed", [])
    assert report.duration == 7.0
    assert report.longrepr == "rank 0: no; then rank 1 did not end"
    payload = report_payload.read(report)
    assert payload["outcome"] == "failed"
    assert [(e["rank"], e["state"], e["reason"]) for e in payload["events"]] == [
        (0, "ended", "no"),
        (1, "stuck", "did not end"),
    ]
    assert report.sections == [
        ("Traceback of rank 0", "trace"),
        ("Stack of rank 1", "in all_reduce"),
        ("Output of rank 1", "bye"),
        ("Captured log call [rank 0]", "logged"),
    ]


def test_ranks_that_did_not_start_fail_the_call(request: pytest.FixtureRequest) -> None:
    """A hang is told from a crash; the stacks and the output are there to read."""
    error = GangError("rank 1 did not join", "no licence", hang=True, stacks={1: "in sleep"})
    report = merging.start_error_report(request.node, error)
    assert (report.when, report.outcome) == ("call", "failed")
    assert report.sections == [
        ("Stack of rank 1", "in sleep"),
        ("Output of the rank", "no licence"),
    ]
    assert report_payload.read(report)["outcome"] == "hang"
    crashed = merging.start_error_report(request.node, GangError("rank 1 exited"))
    assert report_payload.read(crashed)["outcome"] == "crashed"


def test_hang_after_a_pass_is_counted_as_one_of_the_tear_down(
    request: pytest.FixtureRequest,
) -> None:
    """Phases that were reported are not reported again, and the failure is not lost."""
    stuck = RankOutcome(rank=0, state="stuck", details="timed out")

    def remaining(*logged: str) -> list[tuple[str | None, str]]:
        reports = merging.last_reports(request.node, stuck, judge([stuck]), logged)
        return [(report.when, report.outcome) for report in reports]

    whole = [("setup", "passed"), ("call", "failed"), ("teardown", "passed")]
    assert remaining() == whole
    assert remaining("setup") == whole[1:]
    assert remaining("setup", "call") == [("teardown", "failed")]
