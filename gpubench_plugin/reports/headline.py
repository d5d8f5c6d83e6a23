"""One line over all verdicts: ``2 slower · 1 faster · 46 within noise · 1 no baseline``."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from gpubench_plugin.reports.glyphs import UNICODE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpubench_plugin.reports.glyphs import Glyphs
    from gpubench_plugin.verdicts import Verdict, VerdictKind

ORDER: Final[tuple[VerdictKind, ...]] = (
    "regressed",
    "errored",
    "improved",
    "inconclusive",
    "unchanged",
    "no_baseline",
    "new",
    "removed",
    "incomparable",
    "not_measured",
)
"""What matters most comes first."""


def headline(verdicts: Iterable[Verdict], glyphs: Glyphs = UNICODE) -> str:
    """How many verdicts are of which kind, no two kinds in one number."""
    found = Counter((ORDER.index(v.kind), words(v)) for v in verdicts)
    counted = (f"{number} {said}" for (_, said), number in sorted(found.items()))
    return f" {glyphs.separator} ".join(counted) or "nothing was compared"


def words(verdict: Verdict) -> str:
    """A verdict as people say it: ``slower``, ``within noise``, ``no baseline``.

    A threshold knows no noise: what it finds unchanged is ``within the limit``.
    """
    if verdict.kind == "regressed":
        return "slower" if _of_time(verdict) else "worse"
    if verdict.kind == "improved":
        return "faster" if _of_time(verdict) else "better"
    if verdict.kind == "unchanged":
        statistical = verdict.method in {"paired", "history"}
        return "within noise" if statistical else "within the limit"
    return verdict.kind.replace("_", " ")


def _of_time(verdict: Verdict) -> bool:
    return verdict.unit == "s" or verdict.unit.endswith("/s")
