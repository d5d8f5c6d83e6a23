"""What a session says of its gate at its end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gpubench_plugin.reports.text import glyphs_for
from gpubench_plugin.session.gate import report


def last_lines(judgement: Any, *, interrupted: bool) -> list[str]:
    lookup: Any = SimpleNamespace(settings=SimpleNamespace(gate="auto"))
    lines = report.lines(judgement, lookup, 80, glyphs_for("utf-8"), interrupted=interrupted)
    return ["".join(text for text, _ in line) for line in lines]


NOT_DECIDED = (
    "gate: not decided: the session was interrupted; run with --resume=r1 to measure the rest"
)


@pytest.mark.parametrize(
    ("interrupted", "fails", "last"),
    [
        (False, False, "gate: passed"),
        (False, True, "gate: failed"),
        (True, False, NOT_DECIDED),
        (True, True, NOT_DECIDED),
    ],
)
def test_an_interrupted_session_decides_nothing(interrupted: bool, fails: bool, last: str) -> None:
    """A gate that has not seen all benchmarks has neither passed nor failed."""
    judgement: Any = SimpleNamespace(
        comparison=None,
        error_text="said why",
        nothing_measured=fails,
        fails=fails,
        failing_verdicts=(),
        undecided_text="",
        runs_needed=0,
        run_id="r1",
    )

    said = last_lines(judgement, interrupted=interrupted)

    assert said[-1] == last
    assert any("nothing was measured" in line for line in said) == (fails and not interrupted)


def test_a_gate_that_passed_for_nothing_is_in_doubt() -> None:
    """Its last line says so, in the colour of doubt."""
    judgement: Any = SimpleNamespace(
        comparison=None,
        error_text="",
        nothing_measured=False,
        fails=False,
        runs_needed=0,
        undecided_text="nothing was judged: 12 without baseline",
    )
    lookup: Any = SimpleNamespace(settings=SimpleNamespace(gate="auto"))

    lines = list(report.lines(judgement, lookup, 80, glyphs_for("utf-8"), interrupted=False))

    said = "gate: passed, but nothing was judged: 12 without baseline"
    assert lines[-1] == ((said, {"yellow": True}),)


def test_a_gate_that_could_judge_nothing_has_not_passed() -> None:
    """It says how many runs it lacks; its exit code is that of all that is inconclusive."""
    judgement: Any = SimpleNamespace(
        comparison=None,
        error_text="",
        nothing_measured=False,
        fails=False,
        failing_verdicts=(),
        runs_needed=9,
    )

    said = last_lines(judgement, interrupted=False)

    assert said[-1] == "gate: cannot judge yet (the baseline needs 9 more runs)"
