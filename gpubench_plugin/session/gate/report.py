"""Gate reports: terminal lines, and in a GitHub job its summary and annotations."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from gpubench_plugin.compare.threshold import LABEL
from gpubench_plugin.core.format import counted
from gpubench_plugin.environment.redaction import redacted_command
from gpubench_plugin.reports import github as page
from gpubench_plugin.reports.markup import BAD, CAUTION, GOOD, Line
from gpubench_plugin.reports.names import name_room
from gpubench_plugin.reports.text import printable
from gpubench_plugin.reports.verdict_table import verdict_lines
from gpubench_plugin.session.gate.judgement import NOTHING_MEASURED, GateJudgement

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pytest

    from gpubench_plugin.core.verdicts import Comparison
    from gpubench_plugin.session.gate.lookup import BaselineLookup


def report_to_github(
    judgement: GateJudgement, locations: Mapping[str, tuple[str, int]], config: pytest.Config
) -> Iterator[str]:
    """Append to the job summary; yield lines to print: annotations and errors.

    `locations` are file, relative to the runner's workspace, and line of each benchmark by id.
    """
    comparison = judgement.comparison
    if comparison is None:
        return
    arguments = [str(argument) for argument in config.invocation_params.args]
    annotations, error = page.publish(
        comparison,
        locations,
        reproduce=["pytest", *redacted_command(arguments)],
        accept=judgement.accept_command,
    )
    yield from filter(None, (error, *annotations))


_KINDS: Final = {
    "history": "history",
    "threshold": LABEL,
    "last": f"the last comparable run on this machine; {LABEL}",
    "missing": "none",
}


def header(lookup: BaselineLookup) -> list[str]:
    """Header: baseline, kind of judgement, and gate policy."""
    settings = lookup.settings
    text = f"baseline: {printable(settings.baseline)} ({_KINDS[lookup.kind]})"
    if settings.gate:
        text += (
            f"; gate: missing={settings.gate_missing}, inconclusive={settings.gate_inconclusive}"
        )
    return [text, *(f"baseline: {printable(note)}" for note in lookup.notes)]


def lines(judgement: GateJudgement, width: int, *, interrupted: bool) -> Iterator[Line]:
    """Changed verdicts, counts, and the gate's result, undecided if the session was interrupted."""
    comparison = judgement.comparison
    is_gate = judgement.is_gate
    if comparison is None:
        yield ((f"judging failed: {printable(judgement.error_text)}", BAD),)
    else:
        yield from _changes(comparison, judgement.lookup, width)
        for note in judgement.policy.undecided_notes() if is_gate else ():
            yield ((note, BAD if ": fail (" in note else CAUTION),)
    if is_gate and interrupted:
        advice = f"run with --resume={judgement.run_id} to measure the rest"
        yield ((f"gate: not decided: the session was interrupted; {advice}", CAUTION),)
    elif is_gate:
        yield from _result(judgement)


def _changes(comparison: Comparison, lookup: BaselineLookup, width: int) -> Iterator[Line]:
    if lookup.kind == "last":  # a note already covers a first run
        verdicts = [v for v in comparison.verdicts if v.metric or v.kind != "no_baseline"]
        comparison = replace(comparison, verdicts=tuple(verdicts))
    yield from verdict_lines([comparison], width, only_changed=True, longest_name=name_room(width))


def _result(judgement: GateJudgement) -> Iterator[Line]:
    if judgement.nothing_measured:
        yield ((NOTHING_MEASURED, BAD),)
    if judgement.fails:
        failing_count = len({verdict.id for verdict in judgement.failing_verdicts})
        count_text = f": {counted(failing_count, 'benchmark')}" if failing_count else ""
        yield ((f"gate: failed{count_text}", BAD),)
    elif runs := judgement.runs_needed:
        runs_text = counted(runs, "more run")
        yield ((f"gate: cannot judge yet (the baseline needs {runs_text})", CAUTION),)
    elif undecided_text := judgement.undecided_text:
        yield ((f"gate: passed, but {undecided_text}", CAUTION),)
    else:
        yield (("gate: passed", GOOD),)
