"""Policy: which verdicts fail a gate or a comparison, and what is said of the others."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from gpubench_plugin.core.format import listed
from gpubench_plugin.core.verdicts import MISSING, Verdict, VerdictKind


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Values of ``--gate-missing`` and ``--gate-inconclusive``: ``pass`` or ``fail``.

    An empty one is not said. `measured` are the benchmarks that the base measured: one that the
    head does not is missing. With `all_incomparable`, whatever could have been compared is
    incomparable: that fails, whatever the flags say, since a gate that compared nothing would pass.
    """

    missing: str = "pass"
    inconclusive: str = "pass"
    measured: Collection[str] = ()
    all_incomparable: bool = False

    def fails(self, verdict: Verdict) -> bool:
        """Whether `verdict` makes the gate fail.

        So does a limit that was not checked, because the metric was not measured or the limit does
        not apply to it.
        """
        if verdict.kind == "regressed" or verdict.is_unchecked:
            return True
        if verdict.kind == "incomparable" and self.all_incomparable:
            return True
        if verdict.kind == "inconclusive":
            return self.inconclusive == "fail"
        return self.missing == "fail" and self._is_missing(verdict)

    def _is_missing(self, verdict: Verdict) -> bool:
        """Whether base or head lack what would have been compared."""
        is_lost = verdict.kind == "not_measured" and verdict.id in self.measured
        return verdict.kind in MISSING or is_lost

    def undecided_notes(self, verdicts: Sequence[Verdict]) -> Iterator[str]:
        """Counts of undecided verdicts, with names if the head lacks them, and their policy."""
        for kind, label in UNDECIDED.items():
            flag = "inconclusive" if kind == "inconclusive" else "missing"
            result = self.inconclusive if flag == "inconclusive" else self.missing
            found = [v for v in verdicts if v.kind == kind and not v.is_unchecked]
            if flag == "missing":
                found = [v for v in found if self._is_missing(v)]
            if not found or not result:
                continue
            text = f"{len(found)} {label}"
            if kind in _LOST:
                text += f" ({listed([*dict.fromkeys(v.id for v in found)])})"
            if kind == "incomparable" and self.all_incomparable:
                yield f"{text}: fail ({_ALL_INCOMPARABLE})"
            else:
                yield f"{text}: {result} (--gate-{flag}={result})"


_ALL_INCOMPARABLE: Final = (
    "nothing was comparable: set a baseline measured under the same conditions, or use "
    "--allow-incomparable"
)
_LOST: Final = frozenset({"removed", "not_measured"})
UNDECIDED: Final[dict[VerdictKind, str]] = {
    "no_baseline": "without baseline",
    "new": "new",
    "removed": "removed",
    "not_measured": "not measured any more",
    "incomparable": "incomparable",
    "inconclusive": "inconclusive",
}
"""Words for the kinds that decide nothing."""
