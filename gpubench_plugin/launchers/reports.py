"""The reports of all ranks as the reports of one test, which pytest then logs as its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import pytest

from gpubench_plugin.errors import GangError, Unsupported
from gpubench_plugin.launchers import report_payload

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gpubench_plugin.launchers.outcome import Ending, Verdict
    from gpubench_plugin.records import Json, Outcome

Section = tuple[str, str]
Phase = Literal["setup", "call", "teardown"]
PhaseOutcome = Literal["passed", "failed", "skipped"]


def merged(
    item: pytest.Item, endings: Sequence[Ending], verdict: Verdict
) -> list[pytest.TestReport]:
    """The reports to log for `item`: one per phase, with every rank's output as sections."""
    if not verdict.agree:
        return _overruled(item, endings, verdict)
    first = next((e for e in endings if e.failed is not None), endings[0])
    for report in first.reports:
        alike = [[r for r in e.reports if r.when == report.when] for e in endings]
        report.sections = [*_captured(endings, alike), *_tracebacks(endings, first.rank)]
        report.duration = max(r.duration for part in alike for r in part)
    if first is not endings[0]:
        report_payload.add_events(first.reports[-1], _code_of_root(endings))
    return list(first.reports)


def outcomes_of(reports: Sequence[pytest.TestReport]) -> list[list[str]]:
    """How each phase ended: ``[["setup", "passed"], ["call", "failed"], …]``."""
    return [[str(report.when), report.outcome] for report in reports]


def alike(
    item: pytest.Item, outcomes: Iterable[tuple[Phase, PhaseOutcome]]
) -> list[pytest.TestReport]:
    """Reports of `item` with these outcomes, for counting."""
    return [_report(item, when, outcome, "as on rank 0") for when, outcome in outcomes]


def refused(item: pytest.Item, refusal: BaseException) -> list[pytest.TestReport]:
    """The reports of an `item` that no rank was asked to run."""
    setup = _report(item, "setup", "skipped", f"Skipped: {refusal}")
    kind: Outcome = "unsupported" if isinstance(refusal, Unsupported) else "skipped"
    report_payload.set_outcome(setup, kind, str(refusal))
    return [setup, _report(item, "teardown", "passed")]


def unstarted(item: pytest.Item, error: GangError) -> list[pytest.TestReport]:
    """The reports of an `item` whose gang did not come about."""
    call = _report(item, "call", "failed")
    call.sections = [
        *((f"Stack of rank {rank}", stack) for rank, stack in error.stacks.items()),
        *([("Output of the rank", error.output)] if error.output else []),
    ]
    event = {"event": "gang_not_started", "stacks": dict(error.stacks), "output": error.output}
    report_payload.override(call, "hang" if error.hang else "crashed", str(error), [event])
    return [_report(item, "setup", "passed"), call, _report(item, "teardown", "passed")]


def _overruled(
    item: pytest.Item, endings: Sequence[Ending], verdict: Verdict
) -> list[pytest.TestReport]:
    assert verdict.outcome is not None
    call = _report(item, "call", "failed", verdict.reason)
    call.duration = max((sum(r.duration for r in e.reports) for e in endings), default=0.0)
    call.sections = [
        *_tracebacks(endings),
        *_named(endings, "Stack", "stack"),
        *_named(endings, "Output", "output"),
        *_captured(endings, [ending.reports[-1:] for ending in endings]),
    ]
    events = [*_code_of_root(endings), *(_event(ending) for ending in endings)]
    report_payload.override(call, verdict.outcome, verdict.reason, events)
    return [_report(item, "setup", "passed"), call, _report(item, "teardown", "passed")]


def _code_of_root(endings: Sequence[Ending]) -> list[Json]:
    """What rank zero has loaded: under torchrun it lives on, and tells of it only once."""
    told = (report_payload.read(report) for report in endings[0].reports)
    events = (event for part in told for event in part.get("events", ()))
    return [event for event in events if event["event"] == "code"]


def _event(ending: Ending) -> Json:
    """What became of one rank, for the journal: the terminal scrolls away."""
    return {
        "event": "rank_ended",
        "rank": ending.rank,
        "state": ending.state,
        "outcome": ending.outcome if ending.state == "ended" else None,
        "reason": ending.reason or ending.told,
        "stack": ending.stack,
        "output": ending.output,
    }


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
    endings: Sequence[Ending], reports: Iterable[Sequence[pytest.TestReport]]
) -> Iterator[Section]:
    """What every rank captured up to its `reports`; of a single rank under pytest's own titles."""
    for ending, of_rank in zip(endings, reports, strict=True):
        suffix = f" [rank {ending.rank}]" if len(endings) > 1 else ""
        for report in of_rank:
            yield from ((f"{name}{suffix}", text) for name, text in report.sections)


def _tracebacks(endings: Sequence[Ending], but: int | None = None) -> Iterator[Section]:
    for ending in endings:
        if ending.failed is not None and ending.failed.failed and ending.rank != but:
            yield f"Traceback of rank {ending.rank}", ending.failed.longreprtext


def _named(endings: Sequence[Ending], title: str, attribute: str) -> Iterator[Section]:
    for ending in endings:
        if text := getattr(ending, attribute):
            yield f"{title} of rank {ending.rank}", text
