"""What a session says of its gate at its end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gpubench_plugin.session.gate import report
from tests.support.messages import mentions

NOT_DECIDED = "gate: not decided: .. --resume=r1"
DOUBT = "nothing was judged: 12 without baseline"


@pytest.mark.parametrize(
    ("judged", "interrupted", "last"),
    [
        ({}, False, "gate: passed"),
        ({"fails": True}, False, "gate: failed"),
        ({"nothing_measured": True, "fails": True}, False, "gate: failed"),
        ({}, True, NOT_DECIDED),
        ({"nothing_measured": True, "fails": True}, True, NOT_DECIDED),
        ({"undecided_text": DOUBT}, False, f"gate: passed, but {DOUBT}"),
        ({"runs_needed": 9}, False, "gate: cannot judge yet (the baseline needs 9 more runs)"),
    ],
)
def test_the_last_line_tells_how_the_gate_ended(
    judged: dict[str, Any], interrupted: bool, last: str
) -> None:
    """One that has not seen all benchmarks has neither passed nor failed; doubts are yellow."""
    usual: dict[str, Any] = {
        "comparison": None,
        "error_text": "said why",
        "nothing_measured": False,
    }
    usual |= {"fails": False, "failing_verdicts": (), "undecided_text": "", "runs_needed": 0}
    lookup = SimpleNamespace(settings=SimpleNamespace(gate="auto"))
    judgement: Any = SimpleNamespace(
        **{**usual, "lookup": lookup, "is_gate": True, "run_id": "r1", **judged}
    )
    lines = list(report.lines(judgement, 80, interrupted=interrupted))
    colours = {"gate: passed": "green", "gate: failed": "red"}
    ((text, markup),) = lines[-1]
    assert mentions(text, *last.split(" .. "))
    assert markup == {colours.get(last, "yellow"): True}
    is_said = any("nothing was measured" in text for line in lines for text, _ in line)
    assert is_said == (judged.get("nothing_measured", False) and not interrupted)
