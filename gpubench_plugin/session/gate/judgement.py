"""Judgement of the session's own run: verdicts, and their consequences."""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal

import pytest

from gpubench_plugin.compare.confirmation import alarms
from gpubench_plugin.compare.policy import NOTHING, UNDECIDED, Policy
from gpubench_plugin.core.errors import GpubenchError
from gpubench_plugin.core.format import listed
from gpubench_plugin.core.records import Run
from gpubench_plugin.core.verdicts import COMPARED, Comparison, Verdict
from gpubench_plugin.session.gate.confirmation import Confirmation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from gpubench_plugin.baselines.model import Reference
    from gpubench_plugin.compare.matching import MatchOptions
    from gpubench_plugin.session.gate.lookup import BaselineLookup, Kind
    from gpubench_plugin.session.recording import SessionRecorder


NOTHING_MEASURED: Final = "nothing was measured: the gate has no benchmark to judge"


@dataclass(frozen=True, kw_only=True)
class GateOutcome:
    """Outcome of a gate item; `properties` go to junit."""

    outcome: Literal["passed", "failed", "skipped"]
    text: str = ""
    properties: tuple[tuple[str, object], ...] = ()


def gate_outcome(verdicts: Sequence[Verdict], policy: Policy) -> GateOutcome:
    """Outcome of the gate item of a benchmark with these `verdicts`."""
    failing_lines = [verdict_line(verdict) for verdict in verdicts if policy.fails(verdict)]
    return GateOutcome(
        outcome="failed" if failing_lines else "passed",
        text="\n".join(failing_lines),
        properties=tuple(_properties(verdicts)),
    )


def verdict_line(verdict: Verdict) -> str:
    """One-line verdict: metric, kind and reason."""
    kind_text = verdict.kind.replace("_", " ")
    head = f"{verdict.metric} {kind_text}" if verdict.metric else kind_text
    return f"{head}: {verdict.reason}" if verdict.reason else head


def _properties(verdicts: Iterable[Verdict]) -> Iterator[tuple[str, object]]:
    """Properties for junit, prefixed by the metric; a step time has those of its parts."""
    for verdict in verdicts:
        for part in verdict.parts or (verdict,):
            prefix = f"{part.metric}." if part.metric else ""
            yield f"{prefix}verdict", part.kind
            if part.effect is not None:
                yield f"{prefix}effect", f"{part.effect:.6g}"
            if part.interval is not None:
                low, high = part.interval
                yield f"{prefix}interval", f"{low:.6g}..{high:.6g}"
            if part.limit:
                yield f"{prefix}limit", part.limit


@dataclass
class GateJudgement:
    """Verdicts on the session's measurements, computed on first use.

    `is_gone` tells whether the benchmark of the baseline with a node id no longer exists.
    """

    recording: SessionRecorder
    lookup: BaselineLookup
    is_gone: Callable[[str], bool]
    confirmation: Confirmation
    _result: Comparison | Exception | None = None

    @property
    def result(self) -> Comparison | Exception:
        """The verdicts, recorded immediately, or the error that prevented them."""
        if self._result is None:
            self._result = self._judge(can_relaunch=False)
        return self._result

    def _judge(self, *, can_relaunch: bool) -> Comparison | Exception:
        """Judge the run; alarms are relaunched unless the session has ended."""
        from gpubench_plugin.config.resolution import cli_limits  # which imports pydantic

        settings = self.lookup.settings
        try:
            run = self.recording.run_of(self.recording.measurements.values())
            reference = self.lookup.reference(run)
            options: MatchOptions = {
                "allow_incomparable": settings.allow_incomparable,
                "allow_doubt": settings.allow_doubt,
                "limits": cli_limits(settings.overrides),
                "is_gone": self.is_gone,
            }
            comparison = judge(reference, run, self.lookup.kind, options)
            if self.is_gate and alarms(comparison):
                comparison = (
                    self.confirmation.confirm(comparison, reference, run, options)
                    if can_relaunch
                    else self.confirmation.withdraw(comparison, "the session ended first")
                )
        except pytest.exit.Exception:  # for example a signal during a relaunch
            raise
        except Exception as error:  # any error: the measurements must still be written
            return error
        self.recording.keep_verdicts(comparison)
        return comparison

    @property
    def comparison(self) -> Comparison | None:
        """The verdicts, or None."""
        return self.result if isinstance(self.result, Comparison) else None

    @cached_property
    def policy(self) -> Policy:
        """Policy that decides which of the verdicts, if there are any, fail the gate."""
        settings = self.lookup.settings
        return Policy(
            comparison=self.comparison or NOTHING,
            missing=settings.gate_missing,
            inconclusive=settings.gate_inconclusive,
        )

    @property
    def undecided_text(self) -> str:
        """Counts if no verdict was decided; empty otherwise."""
        counts = Counter(verdict.kind for verdict in self.policy.comparison.verdicts)
        if counts.keys() & (COMPARED - {"inconclusive"}):
            return ""
        text = ", ".join(f"{counts[k]} {label}" for k, label in UNDECIDED.items() if counts[k])
        return f"nothing was {'decided' if counts.keys() & COMPARED else 'judged'}: {text}"

    @property
    def error_text(self) -> str:
        """Error that prevented judging; empty otherwise."""
        if isinstance(self.result, GpubenchError):
            return str(self.result)
        return f"{type(self.result).__name__}: {self.result}" if self.comparison is None else ""

    @property
    def accept_command(self) -> str:
        """Command that accepts a new level; empty without one, or for an unnamed baseline."""
        kinds = {v.kind for v in self.policy.comparison.verdicts if v.method != "absolute"}
        if self.lookup.kind != "history" or kinds.isdisjoint({"regressed", "incomparable"}):
            return ""
        name = shlex.quote(self.lookup.settings.baseline)
        return f"gpubench accept {self.run_id} '<benchmark>' --baseline={name} --reason='<why>'"

    @property
    def is_gate(self) -> bool:
        """Whether regressions fail the session."""
        return bool(self.lookup.settings.gate)

    @property
    def run_id(self) -> str:
        """Id of the session's own run."""
        return self.recording.path.name

    @property
    def nothing_measured(self) -> bool:
        """Whether no benchmark of the session was measured."""
        return all(m.outcome != "measured" for m in self.recording.measurements.values())

    @property
    def failing_verdicts(self) -> tuple[Verdict, ...]:
        """Verdicts that make the gate fail."""
        return tuple(filter(self.policy.fails, self.policy.comparison.verdicts))

    @property
    def runs_needed(self) -> int:
        """Number of further earlier runs needed to judge all; 0 if any was judged."""
        by_base = [v for v in self.policy.comparison.verdicts if v.method not in {None, "absolute"}]
        missing_runs = [v.runs_needed for v in by_base if v.runs_needed]
        return max(missing_runs) if missing_runs and len(missing_runs) == len(by_base) else 0

    @property
    def fails(self) -> bool:
        """Whether the gate fails for the run as a whole."""
        return bool(self.nothing_measured or self.error_text or self.failing_verdicts)

    def gate_outcome(self, node_id: str) -> GateOutcome:
        """Outcome of a benchmark's gate item; the first call judges."""
        if self._result is None:
            self._result = self._judge(can_relaunch=True)
        measurement = self.recording.measurements.get(node_id)
        details = f"{measurement.outcome}: {measurement.reason}" if measurement else "not measured"
        if self.nothing_measured:
            return GateOutcome(outcome="failed", text=f"{NOTHING_MEASURED}; {details}")
        verdicts = [v for v in self.policy.comparison.verdicts if v.id == node_id]
        is_measured = measurement is not None and measurement.outcome == "measured"
        if not is_measured and not any(map(self.policy.fails, verdicts)):
            return GateOutcome(outcome="skipped", text=details)
        if self.comparison is None:
            return GateOutcome(outcome="failed", text=f"judging failed: {self.error_text}")
        return gate_outcome(verdicts, self.policy)


def judge(reference: Reference, head: Run, kind: Kind, options: MatchOptions) -> Comparison:
    """Verdicts on `head`, by `kind` of judging.

    A benchmark that only the reference has is ``removed`` if `is_gone` of the `options` says so.
    Otherwise it may have been deselected; a note names those of which another case ran.
    """
    from gpubench_plugin.compare.comparison import compare_history, compare_threshold

    if kind in {"threshold", "last"} and reference.runs:
        comparison = compare_threshold(reference.runs, head, **options)
    else:
        comparison = compare_history(reference.runs if kind == "history" else (), head, **options)
    unmeasured = sorted(comparison.measured - head.results.keys())
    absent = [node_id for node_id in unmeasured if not options["is_gone"](node_id)]
    notes = dict.fromkeys((*reference.notes, *comparison.notes, *_missing_cases_note(absent, head)))
    return replace(comparison, base=reference.label, notes=tuple(notes))


def _missing_cases_note(absent: Iterable[str], head: Run) -> Iterator[str]:
    """Note on baseline cases that are either deselected by options or removed."""
    functions = {node_id.partition("[")[0] for node_id in head.results}
    cases = [node_id for node_id in absent if node_id.partition("[")[0] in functions]
    if cases:
        yield f"test cases only in the baseline, although their tests ran: {listed(cases)}"
