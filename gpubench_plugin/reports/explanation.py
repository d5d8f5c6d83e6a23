"""Explanation pages of a benchmark: plots, looks, limits, advice.

There is one layout for a paired comparison, a run among earlier ones, and a measurement alone;
empty sections are left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from gpubench_plugin.core.format import grouped, listed
from gpubench_plugin.core.quality_flags import MEANINGS, doubtful_flags, other_flags
from gpubench_plugin.core.verdicts import Verdict
from gpubench_plugin.reports.dot_plot import Dot, Sign, dot_lines
from gpubench_plugin.reports.markup import BOLD, GOOD, PLAIN, Line, marked
from gpubench_plugin.reports.table import column, lines, wrapped
from gpubench_plugin.reports.text import printable
from gpubench_plugin.reports.verdicts import change_text, colour, interval_text, kind_text

Role = Literal["base", "head", "pinned run", "earlier run", "this run", "round", "launch"]

# Of roles whose dots are not hollow.
_SIGNS: Final[Mapping[Role, Sign]] = {"head": "●", "pinned run": "◆", "this run": "●"}


@dataclass(frozen=True, kw_only=True)
class PlotPoint:
    """A launch, run or round: its value of each metric, its flags, and the number of its pair."""

    label: str
    role: Role
    values: Mapping[str, float]
    flags: tuple[str, ...] = ()
    pair: int = 0


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

    @property
    def remarks(self) -> Mapping[str, tuple[str, ...]]:
        """Its texts by title, those on flags, facts, launches and notes; some are empty."""
        flags = {flag for point in self.points for flag in point.flags}
        ordered_flags = (*doubtful_flags(flags), *other_flags(sorted(flags)))
        return {
            "flags": tuple(f"{f}: {MEANINGS[f]}" if f in MEANINGS else f for f in ordered_flags),
            "based on": self.facts,
            "launches not judged": self.unused,
            "notes": self.notes,
        }

    @property
    def look_rows(self) -> list[tuple[str, ...]]:
        """A row of :data:`LOOK_COLUMNS` for each number that a look judged."""
        return [
            (
                str(look.pairs),
                part.metric,
                kind_text(part.kind),
                change_text(part),
                interval_text(part).strip("[]").replace(", ", " to "),
            )
            for look in self.looks
            for verdict in look.verdicts
            for part in split_verdict(verdict)
        ]

    def limit_texts(self, verdict: Verdict) -> list[str]:
        """The limits of the verdict, with their origin; those of several metrics once."""
        metrics = grouped(
            (f"limit {part.limit}: {self.limits[part.metric]}", part.metric)
            for part in split_verdict(verdict)
            if part.limit and part.metric in self.limits
        )
        return [
            f"{listed(names)}: {text}" if verdict.parts else text for text, names in metrics.items()
        ]


LOOK_COLUMNS: Final = ("pairs", "metric", "verdict", "change", "99% interval")


def verdict_text(verdict: Verdict) -> str:
    """``step_time_s: regressed: 38% slower, limit 2%``."""
    return ": ".join(filter(None, (verdict.metric, kind_text(verdict.kind), verdict.reason)))


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
    remarks = {title: _text(texts, total) for title, texts in explanation.remarks.items()}
    for title, section in {
        "flags": remarks.pop("flags"),
        "looks, recomputed from the recorded launches": _looks(explanation, total),
        **remarks,
        "what helps": [*_advice(explanation.advice, total)],
    }.items():
        if section:
            yield from ((), *marked(wrapped(title, total), BOLD), *section)


def _text(texts: Sequence[str], total: int) -> list[Line]:
    return [line for text in texts for line in marked(wrapped(text, total, indent="  "))]


def _verdicts(explanation: Explanation, total: int) -> Iterator[Line]:
    for verdict in explanation.verdicts:
        markup = GOOD if verdict.kind == "unchanged" else colour(verdict)
        yield from marked(wrapped(verdict_text(verdict), total), markup)
        yield from _text(explanation.limit_texts(verdict), total)


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


def _looks(explanation: Explanation, total: int) -> list[Line]:
    cells = [*zip(*explanation.look_rows, strict=True)]
    table = [
        column(title, column_cells, numeric=title not in {"metric", "verdict"})
        for title, column_cells in zip(LOOK_COLUMNS, cells, strict=False)
    ]
    return [*marked(lines(table, total) if cells else [])]


def _advice(advice: Sequence[Recommendation], total: int) -> Iterator[Line]:
    """Advice lines; commands stay unbroken on their own line for copying."""
    for item in advice:
        yield from _text([item.text], total)
        if item.command:
            yield ((f"    {printable(item.command)}", PLAIN),)
