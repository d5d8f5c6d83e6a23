"""One verdict from what became of a benchmark on every rank.

In this order, since the first is the cause of those after it:

1. a rank's process ended: ``crashed``, whatever its peers say of the lost connection;
2. a rank ran out of memory: ``oom``, though its peers may wait for it;
3. a rank did not collect the benchmark: ``mismatched_ranks``;
4. a rank never came to the end: the failure of another one if there is one, else
   ``mismatched_ranks`` if another one skipped it, else a ``hang``;
5. the ranks ended differently: ``mismatched_ranks``.

Otherwise all ranks agree, and what they say is the verdict.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from gpubench_plugin.launchers import report_payload

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import pytest

    from gpubench_plugin.records import Json, Outcome


@dataclass(frozen=True, kw_only=True)
class Ending:
    """What became of one benchmark on one rank.

    `told` says how its process ended, why it was given up, or why it does not know the benchmark.
    `stack` is where it was when it was given up, `output` what it had written outside of tests,
    `exit` why the test asked to end the whole session, if it did, with `exit_code`.
    """

    rank: int
    state: Literal["ended", "died", "stuck", "absent"]
    reports: tuple[pytest.TestReport, ...] = ()
    told: str = ""
    stack: str = ""
    output: str = ""
    warnings: tuple[Json, ...] = ()
    exit: str | None = None
    exit_code: int | None = None

    @property
    def passed(self) -> bool:
        """Whether the rank came to the end without anything to say against going on."""
        return self.state == "ended" and self.failed is None and self.exit is None

    @property
    def unharmed(self) -> bool:
        """Whether the rank came to the end without any failure, not even an expected one."""
        return self.state == "ended" and not any(
            report.failed or hasattr(report, "wasxfail") for report in self.reports
        )

    @property
    def failed(self) -> pytest.TestReport | None:
        """The first report that is not a pass."""
        return next((report for report in self.reports if not report.passed), None)

    @property
    def outcome(self) -> str:
        """``passed``, or the kind of the first report that is not a pass."""
        if self.failed is None:
            return "passed"
        kind: str = report_payload.read(self.failed).get("outcome", self.failed.outcome)
        return kind

    @property
    def skipped(self) -> bool:
        """Whether the rank did not run it, and nothing is wrong with that."""
        return self.outcome in ("skipped", "unsupported")

    @property
    def reason(self) -> str:
        """Why it did not pass."""
        return "" if self.failed is None else report_payload.read(self.failed).get("reason", "")


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What is said of all ranks together: an outcome and why, or nothing, since they `agree`."""

    outcome: Outcome | None = None
    reason: str = ""

    @property
    def agree(self) -> bool:
        """Whether what each rank reported stands."""
        return self.outcome is None


def judge(endings: Sequence[Ending]) -> Verdict:
    """The verdict over the `endings` of all ranks."""
    for kind in (_crashed, _out_of_memory, _absent, _stuck, _different):
        if verdict := kind(endings):
            return verdict
    return Verdict()


def _crashed(endings: Sequence[Ending]) -> Verdict | None:
    dead = _in_state(endings, "died")
    if not dead:
        return None
    said = "; ".join(f"{_ranks([ending])} {ending.told}" for ending in dead)
    return Verdict(outcome="crashed", reason=said)


def _out_of_memory(endings: Sequence[Ending]) -> Verdict | None:
    out = [ending for ending in endings if ending.outcome == "oom"]
    if not out or len(out) == len(endings):
        return None
    return Verdict(outcome="oom", reason=f"{_ranks(out)}: {out[0].reason}")


def _absent(endings: Sequence[Ending]) -> Verdict | None:
    absent = _in_state(endings, "absent")
    if not absent:
        return None
    reason = f"{_ranks(absent)} did not collect it"
    told = "; ".join(dict.fromkeys(ending.told for ending in absent if ending.told))
    return Verdict(outcome="mismatched_ranks", reason=f"{reason}: {told}" if told else reason)


def _stuck(endings: Sequence[Ending]) -> Verdict | None:
    stuck = _in_state(endings, "stuck")
    if not stuck:
        return None
    left = f"{_ranks(stuck)} {stuck[0].told}"
    skipped = [ending for ending in endings if ending.skipped]
    failed = [ending for ending in endings if ending.failed is not None and not ending.skipped]
    if failed:
        said = f"{_ranks(failed[:1])}: {failed[0].reason}; then {left}"
        return Verdict(outcome="failed", reason=said)
    if skipped:
        said = f"{_ranks(skipped)} {skipped[0].outcome} ({skipped[0].reason}); then {left}"
        return Verdict(outcome="mismatched_ranks", reason=said)
    ended = _in_state(endings, "ended")
    passed = f"; {_ranks(ended)} had passed" if ended else ""
    return Verdict(outcome="hang", reason=f"{left}{passed}")


def _different(endings: Sequence[Ending]) -> Verdict | None:
    outcomes = list(dict.fromkeys(ending.outcome for ending in endings))
    if len(outcomes) == 1:
        return None
    parts = []
    for outcome in outcomes:
        alike = [ending for ending in endings if ending.outcome == outcome]
        why = f" ({alike[0].reason})" if alike[0].reason else ""
        parts.append(f"{_ranks(alike)} {outcome}{why}")
    reason = f"the ranks ended differently: {'; '.join(parts)}"
    return Verdict(outcome="mismatched_ranks", reason=reason)


def _in_state(endings: Sequence[Ending], state: str) -> list[Ending]:
    return [ending for ending in endings if ending.state == state]


def _ranks(endings: Sequence[Ending]) -> str:
    return named([ending.rank for ending in endings])


def named(ranks: Collection[int]) -> str:
    """``rank 3``, or ``ranks 0-2, 5``: a gang may have many."""
    runs: list[list[int]] = []
    for number in sorted(ranks):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    listed = ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
    return f"rank{'s' * (len(ranks) > 1)} {listed}"
