"""The verdicts of a file, as they were written."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpubench_plugin.core.records import Comparison, Verdict, VerdictPart
from gpubench_plugin.environment import json_files
from gpubench_plugin.results import verdicts

if TYPE_CHECKING:
    from pathlib import Path

PART = VerdictPart(
    metric="step_time_s",
    unit="s",
    better="lower",
    kind="inconclusive",
    base=1.0,
    head=1.1,
    effect=0.1,
    interval=(-math.inf, 0.2),
    limit="2%",
)
VERDICT = Verdict(
    id="test_a.py::test_a",
    metric="step_time_s",
    unit="s",
    better="lower",
    kind="inconclusive",
    method="history",
    base=1.0,
    head=1.1,
    effect=0.1,
    interval=(-0.1, math.inf),
    launches=3,
    smallest_visible_effect=0.2,
    pairs_needed=10,
    runs_needed=7,
    limit="2%",
    reason="too few",
    parts=(PART, PART),
)


def test_a_verdict_is_read_as_it_was_written(tmp_path: Path) -> None:
    """With every field: the parts, unbounded ends, and how many pairs or runs are needed."""
    path = tmp_path / "verdicts.json"
    comparison = Comparison(base="a", head="b", verdicts=(VERDICT,))
    json_files.write_text(path, verdicts.to_text([comparison]))
    assert verdicts.read(path).for_benchmark(VERDICT.id) == (VERDICT,)
