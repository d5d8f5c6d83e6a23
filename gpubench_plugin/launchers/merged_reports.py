"""Merging of the ranks' reports into the reports of one test."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Literal

import pytest

from gpubench_plugin.core.errors import GangError, Unsupported
from gpubench_plugin.core.events import GangNotStartedEvent, RankEndedEvent
from gpubench_plugin.core.records import Json, Outcome
from gpubench_plugin.launchers import report_payload
from gpubench_plugin.launchers.context import state_of
from gpubench_plugin.launchers.outcome import JointVerdict, RankOutcome

Section = tuple[str, str]
Phase = Literal["setup", "call", "teardown"]
PhaseOutcome = Literal["passed", "failed", "skipped"]


def merge_reports(
    item: pytest.Item, outcomes: Sequence[RankOutcome], verdict: JointVerdict
) -> list[pytest.TestReport]:
    """Merge into one report per phase, with every rank's output as sections."""
    if not verdict.agree:
        return _replacement_reports(item, outcomes, verdict)
    first_failed = next((o for o in outcomes if o.failed is not None), outcomes[0])
    for report in first_failed.reports:
        same_phase = [[r for r in o.reports if r.when == report.when] for o in outcomes]
        report.sections = [
            *_captured(outcomes, same_phase),
            *_tracebacks(outcomes, first_failed.rank),
        ]
        report.duration = max(r.duration for part in same_phase for r in part)
    return list(first_failed.reports)


def remaining_reports(
    reports: Sequence[pytest.TestReport], logged_phases: Collection[str]
) -> list[pytest.TestReport]:
    """`reports` of a test of which the `logged_phases` were reported already.

    A failure in one of these is reported as one of the tear-down: a test that has passed is not
    counted a second time.
    """
    remaining = [report for report in reports if report.when not in logged_phases]
    failed = [report for report in reports if report.failed and report not in remaining]
    for report in failed:
        report.when = "teardown"
    return [r for r in remaining if not (failed and r.when == "teardown")] + failed


def outcomes_of(reports: Sequence[pytest.TestReport]) -> list[list[str]]:
    """Outcome of each phase: ``[["setup", "passed"], ["call", "failed"], …]``."""
    return [[str(report.when), report.outcome] for report in reports]


def placeholder_reports(
    item: pytest.Item, outcomes: Iterable[tuple[Phase, PhaseOutcome]]
) -> list[pytest.TestReport]:
    """Reports of `item` with rank zero's outcomes, so that all ranks count the same."""
    return [_report(item, when, outcome, "same as on rank 0") for when, outcome in outcomes]


def skip_reports(item: pytest.Item, skip: BaseException) -> list[pytest.TestReport]:
    """Skip reports of an `item` that no rank runs."""
    setup = _report(item, "setup", "skipped", f"Skipped: {skip}")
    kind: Outcome = "unsupported" if isinstance(skip, Unsupported) else "skipped"
    report_payload.set_outcome(setup, kind, str(skip))
    return [setup, _report(item, "teardown", "passed")]


def start_error_reports(item: pytest.Item, error: GangError) -> list[pytest.TestReport]:
    """Error reports of an `item` whose gang could not be started."""
    call = _report(item, "call", "failed")
    call.sections = [
        *((f"Stack of rank {rank}", stack) for rank, stack in error.stacks.items()),
        *([("Output of the rank", error.output)] if error.output else []),
    ]
    stacks = {str(rank): stack for rank, stack in error.stacks.items()}
    event = GangNotStartedEvent(stacks=stacks, output=error.output).line()
    report_payload.override(call, "hang" if error.hang else "crashed", str(error), [event])
    return [_report(item, "setup", "passed"), call, _report(item, "teardown", "passed")]


def _replacement_reports(
    item: pytest.Item, outcomes: Sequence[RankOutcome], verdict: JointVerdict
) -> list[pytest.TestReport]:
    assert verdict.outcome is not None
    call = _report(item, "call", "failed", verdict.reason)
    call.duration = max((sum(r.duration for r in o.reports) for o in outcomes), default=0.0)
    call.sections = [
        *_tracebacks(outcomes),
        *_sections(item, outcomes, "Stack", "stack"),
        *_sections(item, outcomes, "Output", "output"),
        *_captured(outcomes, [outcome.reports[-1:] for outcome in outcomes]),
    ]
    report_payload.override(call, verdict.outcome, verdict.reason, [*map(_event, outcomes)])
    return [_report(item, "setup", "passed"), call, _report(item, "teardown", "passed")]


def _event(outcome: RankOutcome) -> Json:
    """Journal event with the outcome of one rank."""
    event = RankEndedEvent(
        rank=outcome.rank,
        state=outcome.state,
        outcome=outcome.outcome if outcome.state == "ended" else None,
        reason=outcome.reason or outcome.details,
        stack=outcome.stack,
        output=outcome.output,
    )
    return event.line()


def _report(
    item: pytest.Item, when: Phase, outcome: PhaseOutcome, text: str | None = None
) -> pytest.TestReport:
    path, line, _ = item.location
    return pytest.TestReport(
        nodeid=item.nodeid,
        location=item.location,
        keywords=dict.fromkeys(item.keywords, 1),
        outcome=outcome,
        longrepr=(path, (line or 0) + 1, text or "") if outcome == "skipped" else text,
        when=when,
    )


def _captured(
    outcomes: Sequence[RankOutcome], reports: Iterable[Sequence[pytest.TestReport]]
) -> Iterator[Section]:
    """Captured output of each rank up to its `reports`; for one rank under pytest's titles."""
    for outcome, rank_reports in zip(outcomes, reports, strict=True):
        suffix = f" [rank {outcome.rank}]" if len(outcomes) > 1 else ""
        for report in rank_reports:
            yield from ((f"{name}{suffix}", text) for name, text in report.sections)


def _tracebacks(
    outcomes: Sequence[RankOutcome], excluded_rank: int | None = None
) -> Iterator[Section]:
    for outcome in outcomes:
        if outcome.failed is not None and outcome.failed.failed and outcome.rank != excluded_rank:
            yield f"Traceback of rank {outcome.rank}", outcome.failed.longreprtext


def _sections(
    item: pytest.Item, outcomes: Sequence[RankOutcome], title: str, attribute: str
) -> Iterator[Section]:
    state = state_of(item)
    is_single = state is not None and state.case.world_size == 1
    for outcome in outcomes:
        if text := getattr(outcome, attribute):
            yield title if is_single else f"{title} of rank {outcome.rank}", text
