"""Explanation pages of a benchmark: plots, looks, limits, advice.

It is one page whatever is explained: a comparison in pairs, a run among earlier ones, or a
measurement alone. What there is nothing to say of is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from gpubench_plugin.compare import value_of
from gpubench_plugin.environment import plural
from gpubench_plugin.flags import MEANINGS, doubtful_flags, other_flags
from gpubench_plugin.records import Difference, Result, Verdict
from gpubench_plugin.reports.dots import Dot, Sign, dot_lines
from gpubench_plugin.reports.markup import BOLD, GOOD, PLAIN, Line
from gpubench_plugin.reports.table import column, lines, wrapped
from gpubench_plugin.reports.text import Glyphs, printable, width
from gpubench_plugin.reports.verdict_table import colour, difference_text, signed, verdict_text

Role = Literal["base", "head", "pinned run", "earlier run", "this run", "round", "launch"]

_SIGNS: Final[Mapping[Role, Sign]] = {
    "base": "hollow",
    "head": "filled",
    "pinned run": "diamond",
    "earlier run": "hollow",
    "this run": "filled",
    "round": "hollow",
    "launch": "hollow",
}


@dataclass(frozen=True, kw_only=True)
class PlotPoint:
    """A launch, run or round: its value of each metric, and its flags."""

    label: str
    role: Role
    values: Mapping[str, float]
    flags: tuple[str, ...] = ()

    @classmethod
    def of(cls, result: Result, metrics: Iterable[str], *, label: str, role: Role) -> PlotPoint:
        """What `result` is judged by, as far as it has the `metrics`."""
        values = {metric: value_of(result, metric) for metric in metrics}
        known = {metric: value for metric, value in values.items() if value is not None}
        return cls(label=label, role=role, values=known, flags=result.flags)


@dataclass(frozen=True, kw_only=True)
class LookVerdicts:
    """Verdicts at a look after so many pairs."""

    pairs: int
    verdicts: tuple[Verdict, ...]


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    """Advice, with a `command` if there is one."""

    text: str
    command: str = ""


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Explanation of one benchmark in a comparison or run.

    `subject` says which. `points` stand in the order of time; `noun` is what one of them is, and
    `units` has the unit of each metric that is pictured. `limits` says by metric whose limit it is.
    `unused` are launches that are not judged, and why. `advice` is what would decide it, or make
    the number surer. Texts are not escaped.
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
    environment_differences: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()
    advice: tuple[Recommendation, ...] = ()


def split_verdict(verdict: Verdict) -> tuple[Verdict, ...]:
    """Split a verdict into one per metric, such as the parts of a step time.

    The reason is that of the whole: parts have none.
    """
    parts = (replace(verdict, parts=(), reason="", **vars(part)) for part in verdict.parts)
    return tuple(parts) or (verdict,)


def explanation_lines(explanation: Explanation, total: int, glyphs: Glyphs) -> Iterator[Line]:
    """The page, at most `total` columns wide."""
    yield ((printable(explanation.benchmark), BOLD),)
    yield from _text([explanation.subject], total)
    yield from _verdicts(explanation, total)
    for metric, unit in explanation.units.items():
        yield from _picture(explanation, metric, unit, total, glyphs)
    yield from _flags(explanation.points, total)
    yield from _looks(explanation.looks, total, glyphs)
    yield from _listed("based on", explanation.facts, total)
    yield from _listed("launches not judged", explanation.unused, total)
    difference_lines = [
        difference_text(difference, glyphs) for difference in explanation.environment_differences
    ]
    yield from _listed("environment differences", difference_lines, total)
    yield from _listed("notes", explanation.notes, total)
    is_measurement = explanation.noun == "round" or any(
        point.role == "launch" for point in explanation.points
    )
    title = "to narrow it down" if is_measurement else "to reach a decision"
    yield from _advice(title, explanation.advice, total)


def explanation_as_json(explanation: Explanation) -> dict[str, Any]:
    """The explanation as JSON; effects and intervals are fractions."""
    return {
        "benchmark": explanation.benchmark,
        "subject": explanation.subject,
        "verdicts": [_verdict_as_json(verdict) for verdict in explanation.verdicts],
        "limits": explanation.limits,
        "units": explanation.units,
        plural(explanation.noun): [*map(vars, explanation.points)],
        "looks": [
            {"pairs": look.pairs, "verdicts": [*map(_verdict_as_json, look.verdicts)]}
            for look in explanation.looks
        ],
        "facts": explanation.facts,
        "unused": explanation.unused,
        "environment_differences": [*map(vars, explanation.environment_differences)],
        "notes": explanation.notes,
        "advice": [*map(vars, explanation.advice)],
    }


def _verdict_as_json(verdict: Verdict) -> dict[str, Any]:
    return {
        "metric": verdict.metric,
        "verdict": verdict.kind,
        "method": verdict.method,
        "effect": verdict.effect,
        "interval": verdict.interval
        and [end if math.isfinite(end) else None for end in verdict.interval],
        "limit": verdict.limit,
        "reason": verdict.reason,
        "parts": [_verdict_as_json(part) for part in split_verdict(verdict)]
        if verdict.parts
        else [],
    }


def _text(texts: Iterable[str], total: int, indent: str = "") -> Iterator[Line]:
    for text in texts:
        yield from (((line, PLAIN),) for line in wrapped(text, total, indent))


def _verdicts(explanation: Explanation, total: int) -> Iterator[Line]:
    for verdict in explanation.verdicts:
        name = f"{verdict.metric}: " if verdict.metric else ""
        for line in wrapped(
            f"{name}{verdict_text(verdict)}: {verdict.reason}".removesuffix(": "), total
        ):
            yield ((line, GOOD if verdict.kind == "unchanged" else colour(verdict)),)
        for part in split_verdict(verdict):
            if part.limit and part.metric in explanation.limits:
                side_text = f"{part.metric}: " if verdict.parts else ""
                origin = f"{side_text}limit {part.limit}: {explanation.limits[part.metric]}"
                yield from _text([origin], total, indent="  ")


def _picture(
    explanation: Explanation, metric: str, unit: str, total: int, glyphs: Glyphs
) -> Iterator[Line]:
    plotted_points = [point for point in explanation.points if metric in point.values]
    if not plotted_points:
        return
    yield ()
    roles = {point.role for point in plotted_points}
    signs = {role: str(getattr(glyphs, sign)) for role, sign in _SIGNS.items() if role in roles}
    legend = "  ".join(f"{sign} {role}" for role, sign in signs.items())
    heading = printable(f"{metric} of each {explanation.noun} in time order:")
    fits_on_one_line = width(heading) + 1 + width(legend) <= total
    for text in [f"{heading} {legend}"] if fits_on_one_line else [heading, legend]:
        yield from (((line, BOLD),) for line in wrapped(text, total))
    dots = [
        Dot(value=point.values[metric], sign=_SIGNS[point.role], flags=point.flags)
        for point in plotted_points
    ]
    yield from dot_lines(dots, unit, explanation.noun, total, glyphs)


def _flags(points: Sequence[PlotPoint], total: int) -> Iterator[Line]:
    flags = sorted({flag for point in points for flag in point.flags})
    meanings = [
        f"{flag}: {MEANINGS[flag]}" if flag in MEANINGS else flag
        for flag in (*doubtful_flags(flags), *other_flags(flags))
    ]
    yield from _listed("flags", meanings, total)


def _looks(looks: Sequence[LookVerdicts], total: int, glyphs: Glyphs) -> Iterator[Line]:
    if not looks:
        return
    rows = [
        (look.pairs, part)
        for look in looks
        for verdict in look.verdicts
        for part in split_verdict(verdict)
    ]
    yield ()
    title = "looks, recomputed from the recorded launches"
    yield from (((line, BOLD),) for line in wrapped(title, total))
    table = [
        column("pairs", [pairs for pairs, _ in rows], numeric=True),
        column("metric", [verdict.metric for _, verdict in rows]),
        column("verdict", [verdict_text(verdict) for _, verdict in rows]),
        column("effect", [signed(verdict.effect) for _, verdict in rows], numeric=True),
        column(
            "99 % interval",
            [" to ".join(map(signed, part.interval or ())) for _, part in rows],
            numeric=True,
        ),
    ]
    yield from (((line, PLAIN),) for line in lines(table, total, glyphs))


def _listed(title: str, texts: Sequence[str], total: int) -> Iterator[Line]:
    if texts:
        yield ()
        yield ((title, BOLD),)
        yield from _text(texts, total, indent="  ")


def _advice(title: str, advice: Sequence[Recommendation], total: int) -> Iterator[Line]:
    """Advice lines; commands stay unbroken on their own line for copying."""
    if not advice:
        return
    yield ()
    yield ((title, BOLD),)
    for item in advice:
        yield from _text([item.text], total, indent="  ")
        if item.command:
            yield ((f"    {printable(item.command)}", PLAIN),)
