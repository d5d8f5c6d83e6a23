"""The page that explains one benchmark."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace

import pytest

from gpubench_plugin.core.verdicts import Verdict, VerdictPart
from gpubench_plugin.reports.explanation import (
    Explanation,
    LookVerdicts,
    PlotPoint,
    Recommendation,
    explanation_lines,
)
from gpubench_plugin.reports.markup import painted, plain
from gpubench_plugin.reports.text import width
from gpubench_plugin.system import json_files, stored
from tests.support.screens import in_ascii

COMMAND = "gpubench ab --resume=results/ab/20260101T000000Z_ab_abcdef --pairs=45 --a-long-option=x"
VERDICT = Verdict(
    id="test_a",
    metric="step_time_s",
    unit="s",
    better="lower",
    kind="regressed",
    method="paired",
    effect=0.1,
    interval=(0.05, math.inf),
    limit="2%",
    reason="10% slower, " + "and so on " * 20,
)
WHOLE = Explanation(
    benchmark="benchmarks/test_a.py::test_a[\x1b[31m]",
    subject="comparison 20260101T000000Z_ab_abcdef: base main, head the working tree, as it is now",
    noun="launch",
    points=(
        PlotPoint(
            label="001-base", role="base", values={"step_time_s": 1e-3}, flags=("contended",)
        ),
        PlotPoint(label="002-head", role="head", values={"step_time_s": 1.1e-3}),
    ),
    units={"step_time_s": "s"},
    verdicts=(VERDICT,),
    limits={"step_time_s": "the default"},
    looks=(LookVerdicts(pairs=5, verdicts=(VERDICT,)),),
    facts=("a fact " * 20,),
    unused=("003-head (pair 2): was killed by SIGKILL",),
    notes=("a note " * 20,),
    advice=(Recommendation(text="about 45 pairs in all:", command=COMMAND),),
)


def page(explanation: Explanation, total: int = 80) -> list[str]:
    return [plain(line) for line in explanation_lines(explanation, total)]


@pytest.mark.parametrize("total", [40, 60, 80, 200])
def test_the_page_fits_the_terminal_and_steers_none(total: int) -> None:
    """Except a command and a name, which are uncut on a line for copying."""
    lines = page(WHOLE, total)
    assert f"    {COMMAND}" in lines
    assert max(width(line) for line in lines[1:] if COMMAND not in line) <= total
    assert "\x1b" not in "".join(lines)
    assert in_ascii("".join(lines)).isascii()


def test_the_page_says_what_there_is_and_no_more() -> None:
    """Verdict, limit, plot, flags, looks, unjudged launches, environment, and advice."""
    text = "\n".join(page(WHOLE, 200))
    for part in (
        "step_time_s: regressed: 10% slower",
        "limit 2%: the default",
        "step_time_s of each launch in time order: ○ base  ● head",
        "contended: the measuring threads waited",
        "looks, recomputed from the recorded launches",
        "+5.00% to",
        "003-head (pair 2): was killed by SIGKILL",
        "what helps",
    ):
        assert part in text
    nothing = page(Explanation(benchmark="test_a", subject="run r: skipped: no GPU", noun="round"))
    assert nothing == ["test_a", "run r: skipped: no GPU"]


def test_colours_are_there_for_a_terminal_alone() -> None:
    """A regression is red, and plain text has no escape sequence."""
    lines = list(explanation_lines(WHOLE, 80))

    assert any(painted(line).startswith("\x1b[31mstep_time_s: regressed") for line in lines)
    assert all("\x1b" not in plain(line) for line in lines)


def test_of_a_step_time_all_that_was_judged_is_shown() -> None:
    """Minimum, median and rate each have a limit, a row in each look and an entry in JSON."""
    parts = tuple(
        VerdictPart(
            metric=metric,
            unit="s",
            better="lower",
            kind=kind,
            base=1.0,
            head=1.1,
            effect=effect,
            interval=(0.0, effect),
            limit="2%",
        )
        for metric, kind, effect in (
            ("step_time_min_s", "unchanged", 0.001),
            ("step_time_s", "regressed", 0.1),
        )
    )
    verdict = replace(VERDICT, parts=parts)
    origins = {"step_time_min_s": "the default", "step_time_s": "from --limit"}
    explanation = replace(
        WHOLE,
        verdicts=(verdict,),
        looks=(LookVerdicts(pairs=5, verdicts=(verdict,)),),
        limits=origins,
    )

    text = "\n".join(page(explanation, 200))

    assert "step_time_min_s: limit 2%: the default" in text
    assert "step_time_s: limit 2%: from --limit" in text
    assert re.search(r" 5  step_time_min_s  unchanged +\+0\.10%", text)
    assert re.search(r" 5  step_time_s      regressed +\+10\.0%", text)
    document = json.loads(json_files.text(stored.dump(explanation)))
    (stored_verdict,) = document["verdicts"]
    assert [part["verdict"] for part in stored_verdict["parts"]] == ["unchanged", "regressed"]
    assert stored_verdict["interval"] == [0.05, None], "an unbounded end is null"
