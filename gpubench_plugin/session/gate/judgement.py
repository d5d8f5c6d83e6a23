"""The judgement of a session's own run: the verdicts, found once, and what follows from them.

The policy says which verdicts fail the gate and which are only reported.
"""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Final, Literal

import pytest

from gpubench_plugin.compare import alarms, unconfirmed
from gpubench_plugin.config import limits_given
from gpubench_plugin.environment import listed
from gpubench_plugin.errors import GpubenchError
from gpubench_plugin.records import COMPARED, MISSING, Comparison, Run, Verdict, VerdictKind
from gpubench_plugin.session.gate.confirmation import Confirmation, not_launched

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from gpubench_plugin.compare import Options
    from gpubench_plugin.compare.baselines import Reference
    from gpubench_plugin.session.gate.lookup import Kind, Lookup
    from gpubench_plugin.session.recording import Recording


NOTHING_MEASURED: Final = "the gate measured nothing: no benchmark of this session was measured"


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How one gate item ends: `text` says why, `properties` are for junit."""

    outcome: Literal["passed", "failed", "skipped"]
    text: str = ""
    properties: tuple[tuple[str, object], ...] = field(default=())


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What ``--gate-missing`` and ``--gate-inconclusive`` say: ``pass`` or ``fail``.

    `all_incomparable`: a gate would be green for nothing, since everything that could have been
    compared is incomparable; this fails, whatever the flags say.
    """

    missing: str = "pass"
    inconclusive: str = "pass"
    all_incomparable: bool = False

    def fails(self, verdict: Verdict) -> bool:
        """Whether the gate fails because of `verdict`.

        A benchmark that was not measured at all speaks for itself; a metric that was not, or that
        its limit means nothing for, has a limit that nobody checked.
        """
        if verdict.kind == "incomparable" and self.all_incomparable:
            return True
        if verdict.kind in MISSING:
            return self.missing == "fail"
        if verdict.kind == "inconclusive":
            return self.inconclusive == "fail"
        return verdict.kind == "regressed" or verdict.unchecked

    def spoken(self, verdicts: Iterable[Verdict]) -> Iterator[str]:
        """How many verdicts are neither good nor bad, and what the policy makes of them."""
        found = Counter(verdict.kind for verdict in verdicts)
        for kind, words in _UNDECIDED.items():
            if not found[kind]:
                continue
            if kind == "incomparable" and self.all_incomparable:
                yield f"{found[kind]} {words}: fail ({_ALL_INCOMPARABLE})"
                continue
            flag = "missing" if kind in MISSING else "inconclusive"
            leniency = self.missing if kind in MISSING else self.inconclusive
            yield f"{found[kind]} {words}: {leniency} (--gate-{flag}={leniency})"


_ALL_INCOMPARABLE: Final = (
    "nothing else could be compared: set a baseline measured like this, or give "
    "--allow-incomparable"
)
_UNDECIDED: Final[dict[VerdictKind, str]] = {
    "no_baseline": "without baseline",
    "new": "new",
    "incomparable": "incomparable",
    "inconclusive": "inconclusive",
}


def ending(verdicts: Sequence[Verdict], policy: Policy) -> Ending:
    """How the gate item of a measured benchmark with these `verdicts` ends."""
    failing = [line_of(verdict) for verdict in verdicts if policy.fails(verdict)]
    return Ending(
        outcome="failed" if failing else "passed",
        text="\n".join(failing),
        properties=tuple(_properties(verdicts)),
    )


def line_of(verdict: Verdict) -> str:
    """A verdict in one line: which metric, what, and why."""
    what = verdict.kind.replace("_", " ")
    head = f"{verdict.metric} {what}" if verdict.metric else what
    return f"{head}: {verdict.reason}" if verdict.reason else head


def _properties(verdicts: Iterable[Verdict]) -> Iterator[tuple[str, object]]:
    """For junit: names that begin with the metric; effects and intervals are fractions.

    Of a step time the numbers that it is judged by have theirs.
    """
    for verdict in verdicts:
        for one in verdict.parts or (verdict,):
            prefix = f"{one.metric}." if one.metric else ""
            yield f"{prefix}verdict", one.kind
            if one.effect is not None:
                yield f"{prefix}effect", f"{one.effect:.6g}"
            if one.interval is not None:
                low, high = one.interval
                yield f"{prefix}interval", f"{low:.6g}..{high:.6g}"
            if one.limit:
                yield f"{prefix}limit", one.limit


class Judgement:
    """What the session has measured, judged when that is first asked for.

    `is_gone` tells whether the benchmark of the baseline with a node id no longer exists.
    """

    def __init__(
        self,
        recording: Recording,
        lookup: Lookup,
        is_gone: Callable[[str], bool],
        confirmation: Confirmation,
    ):
        self._recording = recording
        self._lookup = lookup
        self._is_gone = is_gone
        self._confirmation = confirmation
        self._found: Comparison | Exception | None = None

    @property
    def found(self) -> Comparison | Exception:
        """The verdicts, which are recorded at once, or why there are none."""
        if self._found is None:
            self._found = self._judged(launches=False)
        return self._found

    def _judged(self, *, launches: bool) -> Comparison | Exception:
        """The verdicts; an alarm is launched again only while `launches` are still possible."""
        settings = self._lookup.settings
        try:
            run = self._recording.run()
            reference = self._lookup.reference(run)
            options: Options = {
                "allow_incomparable": settings.allow_incomparable,
                "limits": limits_given(settings.overrides),
                "is_gone": self._is_gone,
            }
            comparison = judged(reference, run, self._lookup.kind, options)
            if settings.gate and alarms(comparison):
                comparison = (
                    self._confirmation.of(comparison, reference, run, options)
                    if launches
                    else unconfirmed(comparison, not_launched("the session ended first"))
                )
        except pytest.exit.Exception:  # a signal, say, while a benchmark was launched again
            raise
        except Exception as error:  # whatever it was: what is measured must still be written
            return error
        self._recording.keep_verdicts(comparison)
        return comparison

    @property
    def comparison(self) -> Comparison | None:
        """The verdicts; None where there are none."""
        return self.found if isinstance(self.found, Comparison) else None

    @cached_property
    def policy(self) -> Policy:
        """Which verdicts fail the gate."""
        settings = self._lookup.settings
        return Policy(
            missing=settings.gate_missing,
            inconclusive=settings.gate_inconclusive,
            all_incomparable=self.comparison is not None and self.comparison.all_incomparable,
        )

    @property
    def undecided(self) -> str:
        """That nothing was judged or decided, with the counts; empty where something was."""
        verdicts = () if self.comparison is None else self.comparison.verdicts
        kinds = {verdict.kind for verdict in verdicts}
        if kinds & (COMPARED - {"inconclusive"}):
            return ""
        found = Counter(verdict.kind for verdict in verdicts)
        counts = ", ".join(f"{found[k]} {words}" for k, words in _UNDECIDED.items() if found[k])
        return f"nothing was {'decided' if kinds & COMPARED else 'judged'}: {counts}"

    @property
    def problem(self) -> str:
        """Why there are no verdicts; empty where there are."""
        if isinstance(self.found, GpubenchError):
            return str(self.found)
        return f"{type(self.found).__name__}: {self.found}" if self.comparison is None else ""

    @property
    def accepting(self) -> str:
        """The command that accepts a new level; empty where the baseline has no name."""
        if self._lookup.kind != "history":
            return ""
        name = shlex.quote(self._lookup.settings.baseline)
        return f"gpubench accept {self.run_id} '<benchmark>' --baseline={name} --reason='<why>'"

    @property
    def run_id(self) -> str:
        """The id of the session's own run."""
        return self._recording.path.name

    @property
    def nothing_measured(self) -> bool:
        """Whether no benchmark of the session was measured."""
        return all(m.outcome != "measured" for m in self._recording.measurements.values())

    @property
    def failing(self) -> tuple[Verdict, ...]:
        """The verdicts because of which a gate fails."""
        verdicts = () if self.comparison is None else self.comparison.verdicts
        return tuple(filter(self.policy.fails, verdicts))

    @property
    def runs_needed(self) -> int:
        """How many more earlier runs there must be until all can be judged; 0 if any was."""
        verdicts = () if self.comparison is None else self.comparison.verdicts
        by_base = [one for one in verdicts if one.method not in {None, "absolute"}]
        lacking = [one.runs_needed for one in by_base if one.runs_needed]
        return max(lacking) if lacking and len(lacking) == len(by_base) else 0

    @property
    def fails(self) -> bool:
        """Whether a gate fails because of the run as a whole."""
        return bool(self.nothing_measured or self.problem or self.failing)

    def ending(self, node_id: str) -> Ending:
        """How the gate item of the benchmark with that id ends; the first of them all judges."""
        if self._found is None:
            self._found = self._judged(launches=True)
        comparison = self.comparison
        measurement = self._recording.measurements.get(node_id)
        said = f"{measurement.outcome}: {measurement.reason}" if measurement else "not measured"
        if self.nothing_measured:
            return Ending(outcome="failed", text=f"{NOTHING_MEASURED}; {said}")
        if measurement is None or measurement.outcome != "measured":
            return Ending(outcome="skipped", text=said)
        if comparison is None:
            return Ending(outcome="failed", text=f"could not be judged: {self.problem}")
        return ending([v for v in comparison.verdicts if v.id == node_id], self.policy)


def judged(reference: Reference, head: Run, kind: Kind, options: Options) -> Comparison:
    """The verdicts on `head`, by `kind` of judging.

    Of the benchmarks that only the reference has, those are ``removed`` that `is_gone` of the
    `options` says. The others may only not have been selected today: a note names those of which
    another case ran.
    """
    from gpubench_plugin.compare import compare_history, compare_threshold

    is_gone = options["is_gone"]
    if kind in {"threshold", "last"} and reference.runs:
        found = compare_threshold(reference.runs, head, **options)
    else:
        runs = reference.runs if kind == "history" else ()
        found = compare_history(runs, head, **options)
    absent = [
        verdict.id
        for verdict in found.verdicts
        if verdict.kind == "removed" and verdict.id not in head.results and not is_gone(verdict.id)
    ]
    notes = dict.fromkeys((*reference.notes, *found.notes, *_further_cases(absent, head)))
    return replace(
        found,
        base=reference.label,
        verdicts=tuple(verdict for verdict in found.verdicts if verdict.id not in absent),
        notes=tuple(notes),
    )


def _further_cases(absent: Iterable[str], head: Run) -> Iterator[str]:
    """Nobody can tell a case that a flag left out from one that is gone, or has another id now."""
    ran = {_function(name) for name in head.results}
    cases = [name for name in absent if _function(name) in ran]
    if cases:
        yield f"only the baseline has these cases of tests that ran: {listed(cases)}"


def _function(node_id: str) -> str:
    return node_id.partition("[")[0]
