"""Why a benchmark's number or verdict is what it is: pictures, looks, limits, and what would help.

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
from gpubench_plugin.flags import MEANINGS, doubts, notes
from gpubench_plugin.records import Difference, Result, Verdict
from gpubench_plugin.reports.dots import Dot, Sign, dot_lines
from gpubench_plugin.reports.markup import BOLD, GOOD, PLAIN, Line
from gpubench_plugin.reports.table import column, lines, wrapped
from gpubench_plugin.reports.text import Glyphs, printable, width
from gpubench_plugin.reports.verdict_table import colour, difference_text, signed, words

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
class Point:
    """One launch, run or round: the number that stands for it of each metric, and its flags."""

    label: str
    role: Role
    values: Mapping[str, float]
    flags: tuple[str, ...] = ()

    @classmethod
    def of(cls, result: Result, metrics: Iterable[str], *, label: str, role: Role) -> Point:
        """What `result` is judged by, as far as it has the `metrics`."""
        values = {metric: value_of(result, metric) for metric in metrics}
        known = {metric: value for metric, value in values.items() if value is not None}
        return cls(label=label, role=role, values=known, flags=result.flags)


@dataclass(frozen=True, kw_only=True)
class Look:
    """What was judged after so many pairs."""

    pairs: int
    verdicts: tuple[Verdict, ...]


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What would help, and the `command` for it, where there is one."""

    text: str
    command: str = ""


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """All that is known of one benchmark in a comparison or a run.

    `subject` says which. `points` stand in the order of time; `noun` is what one of them is, and
    `units` has the unit of each metric that is pictured. `limits` says by metric whose limit it is.
    `unused` are launches that are not judged, and why. `advice` is what would decide it, or make
    the number surer. Texts are not escaped.
    """

    benchmark: str
    subject: str
    noun: str
    points: tuple[Point, ...] = ()
    units: Mapping[str, str] = field(default_factory=dict)
    verdicts: tuple[Verdict, ...] = ()
    limits: Mapping[str, str] = field(default_factory=dict)
    looks: tuple[Look, ...] = ()
    facts: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    environment_differences: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()
    advice: tuple[Advice, ...] = ()


def numbers_of(verdict: Verdict) -> tuple[Verdict, ...]:
    """Each number that the verdict is about as a verdict of its own: of a step time its parts.

    The reason is that of the whole: parts have none.
    """
    parts = (replace(verdict, parts=(), reason="", **vars(part)) for part in verdict.parts)
    return tuple(parts) or (verdict,)


def explanation_lines(about: Explanation, total: int, glyphs: Glyphs) -> Iterator[Line]:
    """The page, in `total` columns of the terminal."""
    yield ((printable(about.benchmark), BOLD),)
    yield from _text([about.subject], total)
    yield from _verdicts(about, total)
    for metric, unit in about.units.items():
        yield from _picture(about, metric, unit, total, glyphs)
    yield from _flags(about.points, total)
    yield from _looks(about.looks, total, glyphs)
    yield from _listed("what it rests on", about.facts, total)
    yield from _listed("launches that are not judged", about.unused, total)
    differing = [difference_text(one, glyphs) for one in about.environment_differences]
    yield from _listed("differences of the environment", differing, total)
    yield from _listed("notes", about.notes, total)
    alone = about.noun == "round" or any(point.role == "launch" for point in about.points)
    title = "what would make it surer" if alone else "what would decide"
    yield from _advice(title, about.advice, total)


def explanation_as_json(about: Explanation) -> dict[str, Any]:
    """The same in JSON's own types; effects and intervals are fractions."""
    return {
        "benchmark": about.benchmark,
        "subject": about.subject,
        "verdicts": [_verdict_as_json(verdict) for verdict in about.verdicts],
        "limits": about.limits,
        "units": about.units,
        plural(about.noun): [*map(vars, about.points)],
        "looks": [
            {"pairs": look.pairs, "verdicts": [*map(_verdict_as_json, look.verdicts)]}
            for look in about.looks
        ],
        "facts": about.facts,
        "unused": about.unused,
        "environment_differences": [*map(vars, about.environment_differences)],
        "notes": about.notes,
        "advice": [*map(vars, about.advice)],
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
        "parts": [_verdict_as_json(one) for one in numbers_of(verdict)] if verdict.parts else [],
    }


def _text(texts: Iterable[str], total: int, indent: str = "") -> Iterator[Line]:
    for text in texts:
        yield from (((line, PLAIN),) for line in wrapped(text, total, indent))


def _verdicts(about: Explanation, total: int) -> Iterator[Line]:
    for verdict in about.verdicts:
        name = f"{verdict.metric}: " if verdict.metric else ""
        for line in wrapped(f"{name}{words(verdict)}: {verdict.reason}".removesuffix(": "), total):
            yield ((line, GOOD if verdict.kind == "unchanged" else colour(verdict)),)
        for one in numbers_of(verdict):
            if one.limit and one.metric in about.limits:
                whose = f"{one.metric}: " if verdict.parts else ""
                origin = f"{whose}limit {one.limit}: {about.limits[one.metric]}"
                yield from _text([origin], total, indent="  ")


def _picture(
    about: Explanation, metric: str, unit: str, total: int, glyphs: Glyphs
) -> Iterator[Line]:
    pictured = [point for point in about.points if metric in point.values]
    if not pictured:
        return
    yield ()
    roles = {point.role for point in pictured}
    signs = {role: str(getattr(glyphs, sign)) for role, sign in _SIGNS.items() if role in roles}
    legend = "  ".join(f"{sign} {role}" for role, sign in signs.items())
    heading = printable(f"{metric} of each {about.noun} in the order of time:")
    fits = width(heading) + 1 + width(legend) <= total
    for text in [f"{heading} {legend}"] if fits else [heading, legend]:
        yield from (((line, BOLD),) for line in wrapped(text, total))
    dots = [
        Dot(value=point.values[metric], sign=_SIGNS[point.role], flags=point.flags)
        for point in pictured
    ]
    yield from dot_lines(dots, unit, about.noun, total, glyphs)


def _flags(points: Sequence[Point], total: int) -> Iterator[Line]:
    raised = sorted({flag for point in points for flag in point.flags})
    meanings = [
        f"{flag}: {MEANINGS[flag]}" if flag in MEANINGS else flag
        for flag in (*doubts(raised), *notes(raised))
    ]
    yield from _listed("flags", meanings, total)


def _looks(looks: Sequence[Look], total: int, glyphs: Glyphs) -> Iterator[Line]:
    if not looks:
        return
    rows = [
        (look.pairs, one)
        for look in looks
        for verdict in look.verdicts
        for one in numbers_of(verdict)
    ]
    yield ()
    title = "looks, recomputed from the recorded launches"
    yield from (((line, BOLD),) for line in wrapped(title, total))
    table = [
        column("pairs", [pairs for pairs, _ in rows], numeric=True),
        column("metric", [verdict.metric for _, verdict in rows]),
        column("verdict", [words(verdict) for _, verdict in rows]),
        column("effect", [signed(verdict.effect) for _, verdict in rows], numeric=True),
        column(
            "99 % interval",
            [" to ".join(map(signed, one.interval or ())) for _, one in rows],
            numeric=True,
        ),
    ]
    yield from (((line, PLAIN),) for line in lines(table, total, glyphs))


def _listed(title: str, texts: Sequence[str], total: int) -> Iterator[Line]:
    if texts:
        yield ()
        yield ((title, BOLD),)
        yield from _text(texts, total, indent="  ")


def _advice(title: str, advice: Sequence[Advice], total: int) -> Iterator[Line]:
    """A command has a line of its own that is not broken: it is there to be copied."""
    if not advice:
        return
    yield ()
    yield ((title, BOLD),)
    for one in advice:
        yield from _text([one.text], total, indent="  ")
        if one.command:
            yield ((f"    {printable(one.command)}", PLAIN),)
