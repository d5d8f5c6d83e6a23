"""What a verdict shows in each column of a table, in plain text; and which come first."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gpubench_plugin.reports import units
from gpubench_plugin.reports.glyphs import UNICODE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpubench_plugin.reports.glyphs import Glyphs
    from gpubench_plugin.verdicts import Comparison, Difference, Verdict

_WITHOUT_CHANGE: Final = frozenset({"unchanged"})
_SHOWS: Final[Mapping[str, Callable[[float], str]]] = {
    "bytes": units.byte_size,
    "bytes/s": lambda rate: f"{units.byte_size(rate)}/s",
    "fraction": units.percentage,
    "samples/s": lambda rate: f"{units.count(rate)}/s",
    "tokens/s": lambda rate: f"{units.count(rate)}/s",
    "count": units.count,
    "1": units.significant,
    "": units.significant,
}
"""How a number with a unit is written; seconds are written by `units.seconds`."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """The cells of one verdict; `reason` stands beneath the table where it says something new."""

    benchmark: str
    metric: str
    base: str
    head: str
    effect: str
    interval: str
    verdict: str
    launches: str
    reason: str


def worst_first(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Sorted by effect, the worst first; what has no effect in numbers comes last.

    A regression by a fixed bound, and what failed, stand with the regressions.
    """
    return sorted(verdicts, key=_rank)


def changed(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """All but those that are known to be as they were."""
    return [verdict for verdict in verdicts if verdict.kind not in _WITHOUT_CHANGE]


def row(verdict: Verdict, words: str, glyphs: Glyphs = UNICODE) -> Row:
    """The cells of `verdict`, which people call `words`; nothing in them is escaped."""
    arrow = {"lower": glyphs.lower, "higher": glyphs.higher}.get(verdict.better, "")
    return Row(
        benchmark=verdict.id,
        metric=f"{verdict.metric} {arrow}".strip() if verdict.metric else "",
        base=number(verdict.base, verdict.unit, glyphs),
        head=number(verdict.head, verdict.unit, glyphs),
        effect=signed(verdict.effect),
        interval=_interval(verdict),
        verdict=words,
        launches=str(verdict.launches or ""),
        reason=verdict.reason,
    )


def number(value: float | None, unit: str, glyphs: Glyphs = UNICODE) -> str:
    """A value with its unit, or nothing."""
    if value is None:
        return ""
    if unit == "s":
        return units.seconds(value, glyphs)
    show = _SHOWS.get(unit)
    return show(value) if show else f"{units.significant(value)} {unit}"


def signed(effect: float | None) -> str:
    """An effect in percent with its sign: ``+4.12%`` is worse; nothing where there is none."""
    if effect is None:
        return ""
    shown = f"{effect * 100:+.2f}%"
    return shown if shown.strip("+-0.%") else "0.00%"


def difference_text(difference: Difference, glyphs: Glyphs = UNICODE) -> str:
    """``torch.version: "2.12.0" → "2.13.0"``."""
    before, now = _fact(difference.base), _fact(difference.head)
    return f"{difference.key}: {before} {glyphs.to} {now}"


def reasons(
    verdicts: Sequence[Verdict], names: Sequence[str]
) -> list[tuple[Verdict, list[str], str]]:
    """Why each verdict is what it is; those with equal kind and reason share one entry.

    `names` are what the verdicts are called. What is unchanged or has no reason needs no words.
    """
    groups: dict[tuple[str, str], tuple[Verdict, list[str]]] = {}
    for verdict, name in zip(verdicts, names, strict=True):
        if verdict.reason and verdict.kind not in _WITHOUT_CHANGE:
            key = (verdict.kind, verdict.reason)
            groups.setdefault(key, (verdict, []))[1].append(name)
    return [(verdict, called, reason) for (_, reason), (verdict, called) in groups.items()]


def title(comparison: Comparison, glyphs: Glyphs = UNICODE) -> str:
    """Which is compared with which; nothing is escaped."""
    return f"{comparison.base} {glyphs.to} {comparison.head}"


def _rank(verdict: Verdict) -> tuple[int, float, str, str]:
    group = {"regressed": 0, "errored": 1}.get(verdict.kind, 2 if verdict.effect is not None else 3)
    return (group, -(verdict.effect or 0.0), verdict.id, verdict.metric)


def _interval(verdict: Verdict) -> str:
    if verdict.interval is None:
        return ""
    low, high = verdict.interval
    return f"[{signed(low)}, {signed(high)}]"


def _fact(value: Any) -> str:
    return "absent" if value is None else json.dumps(value, default=str, ensure_ascii=False)
