"""Joint verdict from the outcomes of a benchmark on all ranks.

In this order, since an earlier condition causes the later ones:

1. a rank's process died, or lost its CUDA context: ``crashed``, though its peers may report a lost
   connection;
2. a rank ran out of memory: ``oom``, though its peers may wait for it;
3. a rank did not collect the benchmark: ``mismatched_ranks``;
4. a rank was misconfigured: ``misconfigured``, though its peers may wait for it, unless one of them
   failed or skipped;
5. a rank did not finish: the failure of another one if there is one, else ``mismatched_ranks`` if
   another one skipped it, else a ``hang``;
6. the ranks had different outcomes: ``mismatched_ranks``.

Otherwise the ranks agree, and their common outcome stands.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from gpubench_plugin.results import report_payload

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    import pytest

    from gpubench_plugin.core.records import Json, Outcome


@dataclass(frozen=True, kw_only=True)
class RankOutcome:
    """Outcome of one benchmark on one rank.

    `details`: how its process ended, why it counts as stuck, or why it did not collect the
    benchmark. `stack`: of a stuck rank. `output`: written outside of tests. `exit` and
    `exit_code`: of a test that called ``pytest.exit``; `stops`: reasons of hooks to stop after the
    test, by the attribute of pytest's session. `results`: of pytest-benchmark. `duration_s`: of a
    phase that the rank did not end.
    """

    rank: int
    state: Literal["ended", "died", "stuck", "absent"]
    reports: tuple[pytest.TestReport, ...] = ()
    details: str = ""
    stack: str = ""
    output: str = ""
    warnings: tuple[Json, ...] = ()
    exit: str | None = None
    exit_code: int | None = None
    stops: Json = field(default_factory=dict)
    results: tuple[Json, ...] = ()
    duration_s: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether the rank finished without a failure or an exit request."""
        return self.state == "ended" and self.failed is None and self.exit is None

    @property
    def is_clean(self) -> bool:
        """Whether the rank finished without any failure, not even an expected one."""
        return self.state == "ended" and not any(
            report.failed or hasattr(report, "wasxfail") for report in self.reports
        )

    @property
    def failed(self) -> pytest.TestReport | None:
        """The first report that is not a pass; a subtest's decides nothing."""
        return next((report for report in self._own_reports if not report.passed), None)

    @property
    def outcome(self) -> str:
        """``passed``, or the outcome of the decisive report that is not a pass."""
        if self.failed is None:
            return "passed"
        return str(self._decisive.get("outcome", self.failed.outcome))

    @property
    def context_lost(self) -> bool:
        """Whether the rank's process cannot use its device any more."""
        return any(map(report_payload.is_context_lost, self.reports))

    @property
    def skipped(self) -> bool:
        """Whether the rank skipped the test."""
        return self.outcome in ("skipped", "unsupported")

    @property
    def reason(self) -> str:
        """Reason for not passing."""
        return str(self._decisive.get("reason", ""))

    @property
    def _decisive(self) -> Json:
        return report_payload.decisive([*map(report_payload.read, self._own_reports)]) or {}

    @property
    def _own_reports(self) -> list[pytest.TestReport]:
        return [report for report in self.reports if not report_payload.is_of_subtest(report)]


@dataclass(frozen=True, kw_only=True)
class JointVerdict:
    """Outcome and reason for all ranks together; none where they `agree`."""

    outcome: Outcome | None = None
    reason: str = ""

    @property
    def agree(self) -> bool:
        """Whether the ranks' own reports stand."""
        return self.outcome is None


def judge_plain(rank_outcomes: Sequence[RankOutcome]) -> JointVerdict:
    """Judge a test that is no benchmark: ranks may skip it or lack it."""
    return _judge_crash(rank_outcomes) or _judge_hang(rank_outcomes) or JointVerdict()


def judge(rank_outcomes: Sequence[RankOutcome]) -> JointVerdict:
    """Judge the outcomes of all ranks."""
    rules = (
        _judge_crash,
        _judge_oom,
        _judge_absence,
        _judge_misconfiguration,
        _judge_hang,
        _judge_mismatch,
    )
    return next(filter(None, (rule(rank_outcomes) for rule in rules)), JointVerdict())


def _judge_crash(rank_outcomes: Sequence[RankOutcome]) -> JointVerdict | None:
    """How each process died, then which ranks lost their contexts; the latter once per reason."""
    died, lost = _in_state(rank_outcomes, "died"), _of_kind(rank_outcomes, "crashed")
    if not died and len(lost) in {0, len(rank_outcomes)}:
        return None
    parts = [f"{_ranks([outcome], rank_outcomes)} {outcome.details}" for outcome in died]
    parts += [
        f"{_ranks([o for o in lost if o.reason == reason], rank_outcomes)}: {reason}"
        for reason in dict.fromkeys(outcome.reason for outcome in lost)
    ]
    return JointVerdict(outcome="crashed", reason="; ".join(parts))


def _judge_oom(rank_outcomes: Sequence[RankOutcome]) -> JointVerdict | None:
    oom = _of_kind(rank_outcomes, "oom")
    if 0 < len(oom) < len(rank_outcomes):
        return JointVerdict(outcome="oom", reason=f"{_ranks(oom, rank_outcomes)}: {oom[0].reason}")
    return None


def _judge_absence(rank_outcomes: Sequence[RankOutcome]) -> JointVerdict | None:
    if absent := _in_state(rank_outcomes, "absent"):
        causes = dict.fromkeys(outcome.details for outcome in absent if outcome.details)
        suffix = f": {'; '.join(causes)}" if causes else ""
        reason = f"{_ranks(absent, rank_outcomes)} did not collect the test{suffix}"
        return JointVerdict(outcome="mismatched_ranks", reason=reason)
    return None


def _judge_misconfiguration(rank_outcomes: Sequence[RankOutcome]) -> JointVerdict | None:
    misconfigured = _of_kind(rank_outcomes, "misconfigured")
    others = [outcome for outcome in rank_outcomes if outcome not in misconfigured]
    # They passed, or were waiting for another one.
    are_without_cause = all(other.failed is None and other.exit is None for other in others)
    if misconfigured and others and are_without_cause:
        reason = f"{_ranks(misconfigured, rank_outcomes)}: {misconfigured[0].reason}"
        return JointVerdict(outcome="misconfigured", reason=reason)
    return None


def _judge_hang(rank_outcomes: Sequence[RankOutcome]) -> JointVerdict | None:
    stuck = _in_state(rank_outcomes, "stuck")
    if not stuck:
        return None
    message = f"{_ranks(stuck, rank_outcomes)} {stuck[0].details}"
    skipped_ranks = [outcome for outcome in rank_outcomes if outcome.skipped]
    failed_ranks = [
        outcome for outcome in rank_outcomes if outcome.failed is not None and not outcome.skipped
    ]
    failed_ranks.sort(key=lambda rank: rank.outcome == "misconfigured")
    if failed_ranks:
        details = (
            f"{_ranks(failed_ranks[:1], rank_outcomes)}: {failed_ranks[0].reason}; then {message}"
        )
        return JointVerdict(outcome="failed", reason=details)
    if skipped_ranks:
        first = skipped_ranks[0]
        cause = f"{first.outcome} ({first.reason})"
        details = f"{_ranks(skipped_ranks, rank_outcomes)} {cause}; then {message}"
        return JointVerdict(outcome="mismatched_ranks", reason=details)
    ended_ranks = _in_state(rank_outcomes, "ended")
    passed_note = f"; {_ranks(ended_ranks, rank_outcomes)} had passed" if ended_ranks else ""
    return JointVerdict(outcome="hang", reason=f"{message}{passed_note}")


def _judge_mismatch(rank_outcomes: Sequence[RankOutcome]) -> JointVerdict | None:
    if len({outcome.outcome for outcome in rank_outcomes}) == 1:
        return None
    parts = []
    for outcome in dict.fromkeys(rank.outcome for rank in rank_outcomes):
        alike = [rank for rank in rank_outcomes if rank.outcome == outcome]
        cause = f" ({alike[0].reason})" if alike[0].reason else ""
        parts.append(f"{_ranks(alike, rank_outcomes)} {outcome}{cause}")
    reason = f"the ranks had different outcomes: {'; '.join(parts)}"
    return JointVerdict(outcome="mismatched_ranks", reason=reason)


def _of_kind(rank_outcomes: Sequence[RankOutcome], kind: str) -> list[RankOutcome]:
    return [outcome for outcome in rank_outcomes if outcome.outcome == kind]


def _in_state(rank_outcomes: Sequence[RankOutcome], state: str) -> list[RankOutcome]:
    return [outcome for outcome in rank_outcomes if outcome.state == state]


def _ranks(some: Sequence[RankOutcome], rank_outcomes: Sequence[RankOutcome]) -> str:
    """Name the ranks of `some` of the outcomes."""
    return ranks_text([outcome.rank for outcome in some], len(rank_outcomes))


def ranks_text(ranks: Collection[int], size: int) -> str:
    """Format some of `size` ranks: ``rank 3``, or ``ranks 0-2, 5``; ``the process`` of one."""
    if size == 1:
        return "the process"
    ranges: list[list[int]] = []
    for rank in sorted(ranks):
        if ranges and rank == ranges[-1][-1] + 1:
            ranges[-1].append(rank)
        else:
            ranges.append([rank])
    texts = (str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in ranges)
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(texts)}"
