"""What a baseline's changes lead to, and what those of two copies lead to together.

A baseline is replayed from its changes in the order of their times. Two copies that were changed
apart from each other are merged by replaying the changes of both: that is a union of sets, so it
does not matter which copy is merged into which, nor how often. No change is ever lost; but where
two contradict each other, the later one counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpubench_plugin.compare.baselines.baseline import Acceptance, Baseline, Change

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, kw_only=True)
class Merge:
    """The merged `baseline`, and why changes of one copy do not count because of the other's."""

    baseline: Baseline
    overruled: dict[Change, str]


def replayed(name: str, changes: Iterable[Change]) -> Baseline:
    """What `name` stands for after `changes`, in whatever order they come, each counted once."""
    ordered = tuple(sorted({*changes}, key=lambda change: (change.time, change.id, repr(change))))
    baseline = Baseline(name=name, runs=(), branch=None, changed="", removed=True)
    for change in ordered:
        baseline = _after(baseline, change)
    return replace(baseline, changed=ordered[-1].time if ordered else "", changes=ordered)


def merged(one: Baseline, other: Baseline) -> Merge:
    """What two copies of a baseline make together."""
    baseline = replayed(one.name, (*one.changes, *other.changes))
    own = [change for change in one.changes if change not in other.changes]
    others = [change for change in other.changes if change not in one.changes]
    reasons = {}
    if own and others:  # else one of them is all that the other is, and more
        counted = overruled(one, baseline) | overruled(other, baseline)
        reasons = {change: why for change, why in counted.items() if change in {*own, *others}}
    return Merge(baseline=baseline, overruled=reasons)


def overruled(before: Baseline, after: Baseline) -> dict[Change, str]:
    """Why what counted in `before` does not in `after`, which has all its changes and more."""
    counted = [change for change in before.changes if _counts(change, before)]
    return {c: _overruled(c, after) for c in counted if not _counts(c, after)}


def replaced(baseline: Baseline) -> Baseline | None:
    """What the name stood for before it was last set; None where it stood for nothing."""
    last = max((n for n, c in enumerate(baseline.changes) if c.action == "set"), default=0)
    before = replayed(baseline.name, baseline.changes[:last])
    return None if before.removed else before


def _after(baseline: Baseline, change: Change) -> Baseline:
    if change.action == "remove":
        return replace(baseline, runs=(), branch=None, acceptances={}, removed=True)
    if change.action == "set":
        kept = {} if change.reset_accepted else baseline.acceptances
        return replace(
            baseline, runs=change.runs, branch=change.branch, acceptances=kept, removed=False
        )
    if baseline.removed:
        return baseline
    one = Acceptance(
        benchmark=change.benchmark, run=change.runs[0], time=change.time, reason=change.reason
    )
    return replace(baseline, acceptances={**baseline.acceptances, change.benchmark: one})


def _counts(change: Change, baseline: Baseline) -> bool:
    """Whether `baseline` is as `change` wants it."""
    if change.action == "remove" or baseline.removed:
        return baseline.removed == (change.action == "remove")
    if change.action == "set":
        return (baseline.runs, baseline.branch) == (change.runs, change.branch)
    accepted = baseline.acceptances.get(change.benchmark)
    return accepted is not None and accepted.run == change.runs[0]


def _overruled(change: Change, baseline: Baseline) -> str:
    """Why `change` does not count in `baseline`, in one line."""
    what = {
        "set": f"setting it to {', '.join(change.runs)}",
        "accept": f"accepting {change.benchmark} from {', '.join(change.runs)} on",
        "remove": "removing it",
    }[change.action]
    why = f" ({change.reason})" if change.reason else ""
    return (
        f"baseline {baseline.name!r}: {what}{why} does not count: meanwhile, it was "
        f"{_instead(change, baseline)}; its changes keep both"
    )


def _instead(change: Change, baseline: Baseline) -> str:
    accepted = baseline.acceptances.get(change.benchmark)
    if baseline.removed:
        return "removed"
    if accepted is not None:
        return f"accepted from {accepted.run} on ({accepted.reason})"
    if change.action == "accept":
        return "set without the levels accepted before"
    branch = "no branch" if baseline.branch is None else f"branch {baseline.branch}"
    return f"set to {', '.join(baseline.runs)}, {branch}"
