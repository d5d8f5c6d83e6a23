"""The reports of all ranks as those of one test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.core.errors import Unsupported
from gpubench_plugin.launchers import merged_reports as merging
from gpubench_plugin.launchers import report_payload
from gpubench_plugin.launchers.outcome import RankOutcome, judge

if TYPE_CHECKING:
    from collections.abc import Callable

    EndedMaker = Callable[..., RankOutcome]
    ReportMaker = Callable[..., pytest.TestReport]


@pytest.fixture
def merge(request: pytest.FixtureRequest) -> Callable[..., list[pytest.TestReport]]:
    """Merges endings as reports of this very test."""

    def merged(*endings: RankOutcome) -> list[pytest.TestReport]:
        return merging.merge_reports(request.node, endings, judge(endings))

    return merged


def phases(report: ReportMaker, text: str, seconds: float) -> list[pytest.TestReport]:
    return [
        report(when, sections=[("Captured stdout call", text)], duration=seconds)
        for when in ("setup", "call", "teardown")
    ]


def test_agreeing_ranks_have_one_report_per_phase(
    merge: Callable[..., list[pytest.TestReport]], reported: ReportMaker, came_to_end: EndedMaker
) -> None:
    """It has the output of every rank under its number, and lasts as long as the slowest."""
    reports = merge(
        came_to_end(0, *phases(reported, "one", 1.0)), came_to_end(1, *phases(reported, "two", 2.0))
    )

    assert [(r.when, r.outcome, r.duration) for r in reports] == [
        ("setup", "passed", 2.0),
        ("call", "passed", 2.0),
        ("teardown", "passed", 2.0),
    ]
    assert reports[1].sections == [
        ("Captured stdout call [rank 0]", "one"),
        ("Captured stdout call [rank 1]", "two"),
    ]
    (_, alone, _) = merge(came_to_end(0, *phases(reported, "one", 1.0)))
    assert alone.sections == [("Captured stdout call", "one")], "as in any session"


def test_failure_on_all_ranks_shows_the_first_and_the_others_tracebacks(
    merge: Callable[..., list[pytest.TestReport]], reported: ReportMaker, came_to_end: EndedMaker
) -> None:
    """The outcome is what they agree on, each traceback is there once."""
    bad = [reported(outcome="failed", longrepr=f"trace {n}", reason="no") for n in (0, 1)]

    (report,) = merge(came_to_end(0, bad[0]), came_to_end(1, bad[1]))

    assert (report.outcome, report.longrepr) == ("failed", "trace 0")
    assert report_payload.read(report)["outcome"] == "failed"
    assert report.sections == [("Traceback of rank 1", "trace 1")]


def test_verdict_outranks_what_the_ranks_say(
    merge: Callable[..., list[pytest.TestReport]], reported: ReportMaker, came_to_end: EndedMaker
) -> None:
    """A test that did not end on all ranks fails, with all that is known in sections."""
    bad = reported(
        outcome="failed", longrepr="trace", reason="no", sections=[("Captured log call", "logged")]
    )
    reports = merge(
        came_to_end(0, bad),
        RankOutcome(
            rank=1, state="stuck", details="did not end", stack="in all_reduce", output="bye"
        ),
    )

    assert [(r.when, r.outcome) for r in reports] == [
        ("setup", "passed"),
        ("call", "failed"),
        ("teardown", "passed"),
    ]
    assert reports[1].longrepr == "rank 0: no; then rank 1 did not end"
    assert report_payload.read(reports[1])["outcome"] == "failed"
    assert reports[1].sections == [
        ("Traceback of rank 0", "trace"),
        ("Stack of rank 1", "in all_reduce"),
        ("Output of rank 1", "bye"),
        ("Captured log call [rank 0]", "logged"),
    ]


def test_refused_benchmark_is_skipped_with_the_reason(request: pytest.FixtureRequest) -> None:
    """Pytest's terminal finds the place of the skip, the record its kind."""
    item = request.node
    skipped = merging.skip_reports(item, pytest.skip.Exception("not on 2"))
    unsupported = merging.skip_reports(item, Unsupported("no fp8 here"))

    assert [(r.when, r.outcome) for r in skipped] == [("setup", "skipped"), ("teardown", "passed")]
    path, line, _ = item.location
    assert skipped[0].longrepr == (path, line + 1, "Skipped: not on 2")
    assert report_payload.read(skipped[0])["outcome"] == "skipped"
    assert report_payload.read(unsupported[0])["outcome"] == "unsupported"


def test_hang_after_a_pass_is_counted_as_one_of_the_tear_down(
    merge: Callable[..., list[pytest.TestReport]],
) -> None:
    """Phases that were reported are not reported again, and the failure is not lost."""
    stuck = RankOutcome(rank=0, state="stuck", details="timed out")

    def remaining(*logged: str) -> list[tuple[str | None, str]]:
        reports = merging.remaining_reports(merge(stuck), logged)
        return [(report.when, report.outcome) for report in reports]

    whole = [("setup", "passed"), ("call", "failed"), ("teardown", "passed")]
    assert remaining() == whole
    assert remaining("setup") == whole[1:]
    assert remaining("setup", "call") == [("teardown", "failed")]
