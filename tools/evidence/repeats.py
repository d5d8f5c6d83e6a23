"""What measuring disturbed pairs again does to verdicts: the page docs/evidence/repeats.md.

    python tools/evidence/repeats.py

Takes a few minutes. The draws are seeded: the numbers are the same each time.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.append(str(Path(__file__).resolve().parents[2]))

import numpy as np
from scipy import stats

from tests.support.disturbed import NOISE, Disturbed, Outcome, judged
from tests.support.simulation import BENCHMARKS, rates
from tools.evidence.pages import Table, write

if TYPE_CHECKING:
    from collections.abc import Mapping

SILENT_SUITES = 40_000
SUITES = 4_000
AT_ONCE = 2_000
"""Suites whose launches are in memory."""

INTRODUCTION = f"""# Disturbed launches that are measured again

Written by `python tools/evidence/repeats.py`. Suites of {BENCHMARKS} benchmarks whose launches vary
by {100 * NOISE:g}%, judged as `gpubench ab` does, up to 15 pairs. A disturbed launch flags all
benchmarks and takes longer in each, by 30% ± 15% where nothing else is said. Of two numbers the
first one is that without repeats, in the same launches.

*Alarms*: suites in which a benchmark that is no slower is called `regressed`, with its upper bound
at 95%. *Decided*: benchmarks that are not `inconclusive`. *Caught* and *unchanged*: how often the
one that is slower is called `regressed`, `unchanged`. *Repeats*: pairs of a suite measured again.
"""

CONCLUSION = """## What the tables say

- Which pair is repeated depends on flags alone, and both sides of it are new: alarms stay as they
  are.
- Where a few launches are disturbed, more benchmarks are decided, and caught, by the same number of
  pairs. Where most pairs are, nothing helps but a quiet machine, and nothing is repeated.
- A head that raises flags in most of its launches is judged as ever: nothing is repeated, or one
  pair before it is known for it.
- A head that is slow in a few launches only, and raises a flag in these alone, looks like a machine
  that was disturbed once, and one of its slow launches may be replaced. So where only the head was
  ever disturbed, and a pair was replaced, nothing is called `unchanged` until five pairs later.
"""


@dataclass(frozen=True)
class Case:
    """A machine and a head, and in how many suites they are judged."""

    disturbed: Disturbed
    suites: int


def counted(case: Case) -> Mapping[str, str]:
    """The cells of a row: without repeats, then with them."""
    without, repeated = (_judged(case, repeating=one) for one in (False, True))
    effect = case.disturbed.effect or case.disturbed.flagged_effect
    cells = {
        "alarms": f"{_alarms(without, effect)}, {_alarms(repeated, effect)}",
        "repeats": f"{repeated.repeats.mean():.2f}",
    }
    for title, kinds in (("caught", "regressed"), ("unchanged", "unchanged")):
        shares = [(one.kinds[:, 0] == kinds).mean() for one in (without, repeated)]
        cells[title] = f"{shares[0]:.1%}, {shares[1]:.1%}"
    decided = [(one.kinds != "inconclusive").mean() for one in (without, repeated)]
    return {**cells, "decided": f"{decided[0]:.1%}, {decided[1]:.1%}"}


def _judged(case: Case, *, repeating: bool) -> Outcome:
    parts = [
        judged(case.disturbed, AT_ONCE, seed, repeating=repeating)
        for seed in range(case.suites // AT_ONCE)
    ]
    return Outcome(
        kinds=np.concatenate([one.kinds for one in parts]),
        repeats=np.concatenate([one.repeats for one in parts]),
    )


def _alarms(outcome: Outcome, effect: float) -> str:
    suites = len(outcome.kinds)
    alarms = round(rates(outcome.kinds, effect).alarms * suites)
    bound = stats.beta.ppf(0.95, alarms + 1, suites - alarms)
    return f"{alarms / suites:.2%} (≤ {bound:.2%})"


def _equal(**machine: float) -> Case:
    return Case(Disturbed(**machine), SILENT_SUITES)


def _slower(**machine: float) -> Case:
    return Case(Disturbed(effect=0.05, **machine), SUITES)


def _own(**head: float) -> Case:
    return Case(Disturbed(**head), SUITES)


TABLES = [
    Table(
        "Equal sides",
        ("alarms", "decided", "repeats"),
        {
            "no launch disturbed": _equal(),
            "5% of launches": _equal(share=0.05),
            "10%": _equal(share=0.1),
            "20%": _equal(share=0.2),
            "40%": _equal(share=0.4),
            "10%, four in a row": _equal(share=0.1, burst=4.0),
            "20%, four in a row": _equal(share=0.2, burst=4.0),
            "10%, by 3% slower": _equal(share=0.1, slowdown=0.03),
            "10%, by 200% slower": _equal(share=0.1, slowdown=2.0),
        },
    ),
    Table(
        "The first benchmark of the head is 5% slower",
        ("caught", "decided", "repeats"),
        {
            "no launch disturbed": _slower(),
            "5% of launches": _slower(share=0.05),
            "10%": _slower(share=0.1),
            "20%": _slower(share=0.2),
            "40%": _slower(share=0.4),
            "20%, four in a row": _slower(share=0.2, burst=4.0),
        },
    ),
    Table(
        "Only the head raises flags, by its code",
        ("caught", "unchanged", "repeats"),
        {
            "in all launches, 3% slower": _own(flagged=1.0, effect=0.03),
            "in 60%, 3% slower in all": _own(flagged=0.6, effect=0.03),
            "in 20%, 3% slower in all": _own(flagged=0.2, effect=0.03),
            "in 60%, 5% slower in these": _own(flagged=0.6, flagged_effect=0.05),
            "in 50%, 10% slower in these": _own(flagged=0.5, flagged_effect=0.1),
            "in 20%, 50% slower in these": _own(flagged=0.2, flagged_effect=0.5),
            "in 20%, and 10% of all launches disturbed": _own(share=0.1, flagged=0.2, effect=0.05),
        },
    ),
]


if __name__ == "__main__":
    write("repeats.md", INTRODUCTION, TABLES, counted, CONCLUSION)
