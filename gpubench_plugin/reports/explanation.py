"""Explanation pages of a benchmark: plots, looks, limits, advice.

There is one layout for a paired comparison, a run among earlier ones, and a measurement alone;
empty sections are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from gpubench_plugin.core.quality_flags import MEANINGS, doubtful_flags, other_flags
from gpubench_plugin.core.verdicts import Verdict
from gpubench_plugin.reports.dot_plot import Dot, Sign, dot_lines
from gpubench_plugin.reports.markup import BOLD, GOOD, PLAIN, Line, marked
from gpubench_plugin.reports.table import column, lines, wrapped
from gpubench_plugin.reports.text import printable
from gpubench_plugin.reports.verdicts import change_text, colour, interval_text, kind_text

Role = Literal["base", "head", "pinned run", "earlier run", "this run", "round", "launch"]

# Of roles whose dots are not hollow.
_SIGNS: Final[Mapping[Role, Sign]] = {
    "head": "●",
    "pinned run": "◆",
    "this run": "●",
}


@dataclass(frozen=True, kw_only=True)
class PlotPoint:
    """A launch, run or round: its value of each metric, and its flags."""

    label: str
    role: Role
    values: Mapping[str, float]
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class LookVerdicts:
    """Verdicts at a look after so many pairs."""

    pairs: int
    verdicts: tuple[Verdict, ...]


@dataclass(frozen=True)
class Recommendation:
    """Advice, with a `command` if there is one."""

    text: str
    command: str = ""


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Explanation of one benchmark in a comparison or run.

    `subject` names the comparison or run. `points` are in time order; `noun` is what one of them
    is, and `units` has the unit of each plotted metric. `limits` has the origin of each metric's
    limit, `unused` the launches that are not judged, with reasons. `advice` would decide the
    verdict, or narrow the interval. Texts are not escaped.
    """

    benchmark: str
    subject: str
    noun: str
    points: tuple[PlotPoint, ...] = ()
    units: Mapping[str, str] = field(default_factory=dict)
    verdicts: tuple[Verdict, ...] = ()
    limits: Mapping[str, str] = field(default_factory=dict)
    looks: tuple[LookVerdicts, ...] = ()
    facts: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    advice: tuple[Recommendation, ...] = ()


def split_verdict(verdict: Verdict) -> tuple[Verdict, ...]:
    """Split a verdict into one per metric, such as the parts of a step time, without reasons."""
    parts = (replace(verdict, parts=(), reason="", **vars(part)) for part in verdict.parts)
    return tuple(parts) or (verdict,)


def explanation_lines(explanation: Explanation, total: int) -> Iterator[Line]:
    """The page, at most `total` columns wide."""
    yield ((printable(explanation.benchmark), BOLD),)
    yield from marked(wrapped(explanation.subject, total))
    yield from _verdicts(explanation, total)
    for metric, unit in explanation.units.items():
        yield from _plot(explanation, metric, unit, total)
    for title, body in {
        "flags": _text(_meanings(explanation.points), total),
        "looks, recomputed from the recorded launches": _looks(explanation.looks, total),
        "based on": _text(explanation.facts, total),
        "launches not judged": _text(explanation.unused, total),
        "notes": _text(explanation.notes, total),
        "what helps": _advice(explanation.advice, total),
    }.items():
        if section := [*body]:
            yield from ((), *marked(wrapped(title, total), BOLD), *section)


def _text(texts: Iterable[str], total: int) -> Iterator[Line]:
    for text in texts:
        yield from marked(wrapped(text, total, indent="  "))


def _verdicts(explanation: Explanation, total: int) -> Iterator[Line]:
    for verdict in explanation.verdicts:
        text = ": ".join(filter(None, (verdict.metric, kind_text(verdict.kind), verdict.reason)))
        markup = GOOD if verdict.kind == "unchanged" else colour(verdict)
        yield from marked(wrapped(text, total), markup)
        for part in split_verdict(verdict):
            if part.limit and part.metric in explanation.limits:
                prefix = f"{part.metric}: " if verdict.parts else ""
                origin = explanation.limits[part.metric]
                yield from _text([f"{prefix}limit {part.limit}: {origin}"], total)


def _plot(explanation: Explanation, metric: str, unit: str, total: int) -> Iterator[Line]:
    points = [point for point in explanation.points if metric in point.values]
    if not points:
        return
    yield ()
    signs = {point.role: _SIGNS.get(point.role, "○") for point in points}
    legend = "  ".join(f"{sign} {role}" for role, sign in sorted(signs.items()))
    heading = f"{metric} of each {explanation.noun} in time order:"
    yield from marked(wrapped(f"{heading} {legend}", total), BOLD)
    dots = [
        Dot(value=point.values[metric], sign=signs[point.role], flags=point.flags)
        for point in points
    ]
    yield from dot_lines(dots, unit, explanation.noun, total)


def _meanings(points: Sequence[PlotPoint]) -> Iterator[str]:
    flags = sorted({flag for point in points for flag in point.flags})
    for flag in (*doubtful_flags(flags), *other_flags(flags)):
        yield f"{flag}: {MEANINGS[flag]}" if flag in MEANINGS else flag


def _looks(looks: Sequence[LookVerdicts], total: int) -> Iterator[Line]:
    rows = [
        (look.pairs, part)
        for look in looks
        for verdict in look.verdicts
        for part in split_verdict(verdict)
    ]
    table = [
        column("pairs", [pairs for pairs, _ in rows], numeric=True),
        column("metric", [verdict.metric for _, verdict in rows]),
        column("verdict", [kind_text(verdict.kind) for _, verdict in rows]),
        column("change", [change_text(verdict) for _, verdict in rows], numeric=True),
        column(
            "99% interval",
            [interval_text(part).strip("[]").replace(", ", " to ") for _, part in rows],
            numeric=True,
        ),
    ]
    return marked(lines(table, total) if rows else [])


def _advice(advice: Sequence[Recommendation], total: int) -> Iterator[Line]:
    """Advice lines; commands stay unbroken on their own line for copying."""
    for item in advice:
        yield from _text([item.text], total)
        if item.command:
            yield ((f"    {printable(item.command)}", PLAIN),)
