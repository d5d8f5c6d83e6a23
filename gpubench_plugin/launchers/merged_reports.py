"""Merging of the ranks' reports into the reports of one test."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Literal

import pytest

from gpubench_plugin.core.errors import GangError
from gpubench_plugin.core.events import GangNotStartedEvent, RankEndedEvent
from gpubench_plugin.core.records import Json
from gpubench_plugin.launchers.context import state_of
from gpubench_plugin.launchers.outcome import JointVerdict, RankOutcome
from gpubench_plugin.ranks.control_plane import OUT_OF_STEP
from gpubench_plugin.results import report_payload

Section = tuple[str, str]
Phase = Literal["setup", "call", "teardown"]


def merge_phase(
    item: pytest.Item, phase: Phase, outcomes: Sequence[RankOutcome], verdict: JointVerdict
) -> tuple[pytest.TestReport, list[pytest.TestReport]]:
    """Merge a phase into one report with every rank's output as sections.

    Beside it there are the reports of what the phase contains, as of subtests.
    """
    if not verdict.agree:
        return replacement_report(item, phase, outcomes, verdict), []
    present = [outcome for outcome in outcomes if outcome.reports]
    if not present:
        return _report(item, phase), []
    failed = [outcome for outcome in present if outcome.reports[-1].failed]
    # Others were waiting for the rank that failed.
    shown = min(failed or present, key=lambda outcome: OUT_OF_STEP in outcome.reason)
    report = shown.reports[-1]
    beside = [outcome.reports[:-1] for outcome in (shown, *present)]
    others = max(beside, key=lambda reports: any(r.failed for r in reports))
    report.sections = [*_captured(present), *_tracebacks(present, shown.rank)]
    report.duration = max(outcome.reports[-1].duration for outcome in present)
    return report, [*others]


def replacement_report(
    item: pytest.Item, phase: Phase, outcomes: Sequence[RankOutcome], verdict: JointVerdict
) -> pytest.TestReport:
    """Failed report of a phase that did not end alike on all ranks."""
    assert verdict.outcome is not None
    report = _report(item, phase, verdict.reason)
    report.duration = max(sum(r.duration for r in o.reports) + o.duration_s for o in outcomes)
    report.sections = [
        *_tracebacks(outcomes),
        *stack_sections(item, outcomes),
        *_captured(outcomes),
    ]
    report_payload.override(report, verdict.outcome, verdict.reason, [*map(_event, outcomes)])
    return report


def last_reports(
    item: pytest.Item, outcome: RankOutcome, verdict: JointVerdict, logged_phases: Collection[str]
) -> list[pytest.TestReport]:
    """Reports of a test that ends the session, of which the `logged_phases` were reported.

    After its call it is the tear-down that fails: a test that has passed is not counted twice.
    """
    phase: Phase = "teardown" if "call" in logged_phases else "call"
    reports = [replacement_report(item, phase, [outcome], verdict)]
    if "setup" not in logged_phases:
        reports.insert(0, _report(item, "setup"))
    return reports if phase == "teardown" else [*reports, _report(item, "teardown")]


def start_error_report(item: pytest.Item, error: GangError) -> pytest.TestReport:
    """Error report of an `item` whose ranks could not be started."""
    call = _report(item, "call", str(error))
    call.sections = [
        *((f"Stack of rank {rank}", stack) for rank, stack in error.stacks.items()),
        *([("Output of the rank", error.output)] if error.output else []),
    ]
    stacks = {str(rank): stack for rank, stack in error.stacks.items()}
    event = GangNotStartedEvent(stacks=stacks, output=error.output).line()
    report_payload.override(call, "hang" if error.hang else "crashed", str(error), [event])
    return call


def exception_of(report: pytest.TestReport) -> BaseException:
    """What a test raises in the controller whose `report` says that it failed or was skipped."""
    crash = getattr(report.longrepr, "reprcrash", None)
    reason = crash.message if crash else report.longreprtext.strip().rpartition("\n")[2]
    return (pytest.skip if report.skipped else pytest.fail).Exception(reason)


def _event(outcome: RankOutcome) -> Json:
    """Journal event with the outcome of one rank."""
    return RankEndedEvent(
        rank=outcome.rank,
        state=outcome.state,
        outcome=outcome.outcome if outcome.state == "ended" else None,
        reason=outcome.reason or outcome.details,
        stack=outcome.stack,
        output=outcome.output,
    ).line()


def _report(item: pytest.Item, when: Phase, error: str | None = None) -> pytest.TestReport:
    return pytest.TestReport(
        nodeid=item.nodeid,
        location=item.location,
        keywords=dict.fromkeys(item.keywords, 1),
        outcome="passed" if error is None else "failed",
        longrepr=error,
        when=when,
    )


def _captured(outcomes: Sequence[RankOutcome]) -> Iterator[Section]:
    """Captured output of each rank in its last report; for one rank under pytest's titles."""
    for outcome in outcomes:
        suffix = f" [rank {outcome.rank}]" if len(outcomes) > 1 else ""
        for report in outcome.reports[-1:]:
            yield from ((f"{name}{suffix}", text) for name, text in report.sections)


def _tracebacks(
    outcomes: Sequence[RankOutcome], excluded_rank: int | None = None
) -> Iterator[Section]:
    for outcome in outcomes:
        if outcome.failed is not None and outcome.failed.failed and outcome.rank != excluded_rank:
            yield f"Traceback of rank {outcome.rank}", outcome.failed.longreprtext


def stack_sections(item: pytest.Item, outcomes: Sequence[RankOutcome]) -> list[Section]:
    """Stacks of the ranks, then what they wrote outside of tests."""
    state = state_of(item)
    is_single = state is not None and state.case.world_size == 1
    return [
        (title if is_single else f"{title} of rank {outcome.rank}", text)
        for title, attribute in (("Stack", "stack"), ("Output", "output"))
        for outcome in outcomes
        if (text := getattr(outcome, attribute))
    ]
