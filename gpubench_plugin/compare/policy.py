"""Policy: which verdicts fail a gate or a comparison, and what is said of the undecided."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from gpubench_plugin.core.format import listed
from gpubench_plugin.core.verdicts import Comparison, Verdict, VerdictKind

NOTHING: Final = Comparison(base="", head="")


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Values of ``--gate-missing`` and ``--gate-inconclusive``: ``pass`` or ``fail``, or empty.

    Where whatever could have been compared is incomparable, that fails whatever the flags say,
    since a gate that compared nothing would pass.
    """

    comparison: Comparison = NOTHING
    missing: str = "pass"
    inconclusive: str = "pass"

    def fails(self, verdict: Verdict) -> bool:
        """Whether `verdict` makes the gate fail.

        So does a limit that was not checked, because the metric was not measured or the limit does
        not apply to it. Numbers of a base that are none are missing ones.
        """
        is_worse = verdict.kind == "regressed" or verdict.is_unchecked
        is_lost = verdict.kind == "errored" and self.missing == "fail"
        return is_worse or is_lost or self._result(verdict)[0] == "fail"

    def _result(self, verdict: Verdict) -> tuple[str, str]:
        """``pass`` or ``fail`` for an undecided verdict, and the cause; empty for others."""
        is_absent = verdict.kind == "not_measured" and verdict.id not in self.comparison.measured
        if verdict.is_unchecked or verdict.kind not in UNDECIDED or is_absent:
            return "", ""
        if verdict.kind == "inconclusive":
            return self.inconclusive, f"--gate-inconclusive={self.inconclusive}"
        if verdict.kind == "incomparable" and self.comparison.all_incomparable:
            return "fail", _ALL_INCOMPARABLE
        return self.missing, f"--gate-missing={self.missing}"

    def undecided_notes(self) -> Iterator[str]:
        """Counts of undecided verdicts, with the policy applied to them and names of the lost."""
        for kind, label in UNDECIDED.items():
            group = [v for v in self.comparison.verdicts if v.kind == kind and self._result(v)[0]]
            if group:
                names = f" ({listed([*dict.fromkeys(v.id for v in group)])})"
                value, cause = self._result(group[0])
                yield f"{len(group)} {label}{names * (kind in _LOST)}: {value} ({cause})"


_ALL_INCOMPARABLE: Final = (
    "nothing was comparable: set a baseline measured under the same conditions, or use "
    "--allow-incomparable"
)
_LOST: Final = ("removed", "not_measured")
UNDECIDED: Final[dict[VerdictKind, str]] = {
    "no_baseline": "without baseline",
    "new": "new",
    "removed": "removed",
    "not_measured": "not measured any more",
    "incomparable": "incomparable",
    "inconclusive": "inconclusive",
}
"""Words for the kinds that decide nothing: ``--gate-inconclusive`` is about the last, and
``--gate-missing`` about the others, of ``not_measured`` only what the base measured."""
