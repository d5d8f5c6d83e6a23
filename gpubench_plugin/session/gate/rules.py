"""What the gate makes of verdicts: which fail it, which are only said, and in which words."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from gpubench_plugin.verdicts import MISSING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gpubench_plugin.verdicts import Verdict, VerdictKind

NOTHING_MEASURED: Final = "the gate measured nothing: no benchmark of this session was measured"


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How one gate item ends: `text` says why, `properties` are for junit."""

    outcome: Literal["passed", "failed", "skipped"]
    text: str = ""
    properties: tuple[tuple[str, object], ...] = field(default=())


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What ``--gate-missing`` and ``--gate-inconclusive`` say: ``pass`` or ``fail``."""

    missing: str = "pass"
    inconclusive: str = "pass"

    def fails(self, verdict: Verdict) -> bool:
        """Whether the gate fails because of `verdict`.

        A benchmark that was not measured at all speaks for itself; a metric that was not, or that
        its limit means nothing for, has a limit that nobody checked.
        """
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
            flag = "missing" if kind in MISSING else "inconclusive"
            leniency = self.missing if kind in MISSING else self.inconclusive
            yield f"{found[kind]} {words}: {leniency} (--gate-{flag}={leniency})"


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
    """For junit: names that begin with the metric; effects and intervals are fractions."""
    for verdict in verdicts:
        prefix = f"{verdict.metric}." if verdict.metric else ""
        yield f"{prefix}verdict", verdict.kind
        if verdict.effect is not None:
            yield f"{prefix}effect", f"{verdict.effect:.6g}"
        if verdict.interval is not None:
            low, high = verdict.interval
            yield f"{prefix}interval", f"{low:.6g}..{high:.6g}"
        if verdict.limit:
            yield f"{prefix}limit", verdict.limit
