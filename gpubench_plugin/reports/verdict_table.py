"""Verdict table for a terminal: headline, rows, sorting."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from gpubench_plugin.environment import listed, quantity
from gpubench_plugin.records import Comparison, FactDifference, Verdict, VerdictKind
from gpubench_plugin.reports.markup import BAD, BOLD, DOUBTFUL, GOOD, PLAIN, Line, Markup, marked
from gpubench_plugin.reports.table import (
    GAP,
    Column,
    column,
    names_column,
    narrowed,
    table,
    wrapped,
)
from gpubench_plugin.reports.text import (
    UNICODE,
    Glyphs,
    cut,
    printable,
    shorten,
)
from gpubench_plugin.reports.text import width as text_width

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
"""Verdict kinds, most important first."""


def headline(verdicts: Iterable[Verdict], glyphs: Glyphs = UNICODE) -> str:
    """Counts of verdicts by kind: ``2 slower · 1 faster · 46 within noise · 1 no baseline``."""
    counts = Counter((ORDER.index(v.kind), verdict_text(v)) for v in verdicts)
    parts = (f"{number} {phrase}" for (_, phrase), number in sorted(counts.items()))
    return f" {glyphs.separator} ".join(parts) or "nothing was compared"


def verdict_text(verdict: Verdict) -> str:
    """Verdict in plain words: ``slower``, ``within noise``, ``no baseline``.

    An unchanged verdict of a threshold, which knows no noise, is ``within the limit``.
    """
    of_time = verdict.unit == "s" or verdict.unit.endswith("/s")
    if verdict.kind == "regressed":
        return "slower" if of_time else "worse"
    if verdict.kind == "improved":
        return "faster" if of_time else "better"
    if verdict.kind == "unchanged":
        statistical = verdict.method in {"paired", "history"}
        return "within noise" if statistical else "within the limit"
    return verdict.kind.replace("_", " ")


def worst_first(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Sort regressions first, then failures, then by effect; verdicts without one come last."""
    return sorted(verdicts, key=_rank)


def changed(verdicts: Iterable[Verdict]) -> list[Verdict]:
    """Verdicts other than "unchanged"."""
    return [verdict for verdict in verdicts if verdict.kind != "unchanged"]


def cells_of(verdict: Verdict, glyphs: Glyphs = UNICODE) -> dict[str, str]:
    """Cells of `verdict` by column title, not escaped."""
    arrow = {"lower": glyphs.lower, "higher": glyphs.higher}.get(verdict.better, "")
    ends = verdict.interval
    return {
        "metric": f"{verdict.metric} {arrow}".strip() if verdict.metric else "",
        "base": number(verdict.base, verdict.unit, glyphs),
        "head": number(verdict.head, verdict.unit, glyphs),
        "effect": signed(verdict.effect),
        "interval": "" if ends is None else f"[{signed(ends[0])}, {signed(ends[1])}]",
        "launches": str(verdict.launches or ""),
        "verdict": verdict_text(verdict),
    }


def number(value: float | None, unit: str, glyphs: Glyphs = UNICODE) -> str:
    """A value with its unit, or empty."""
    return "" if value is None else quantity(value, unit, micro=glyphs.micro)


def signed(effect: float | None) -> str:
    """Effect in percent with sign: ``+4.12%`` is worse; empty without one."""
    if effect is None:
        return ""
    text = f"{effect * 100:+.2f}%"
    return text if text.strip("+-0.%") else "0.00%"


def difference_text(difference: FactDifference, glyphs: Glyphs = UNICODE) -> str:
    """``torch.version: "2.12.0" → "2.13.0"``."""
    base_text, head_text = _fact(difference.base), _fact(difference.head)
    return f"{difference.key}: {base_text} {glyphs.to} {head_text}"


def reasons(
    verdicts: Sequence[Verdict], names: Sequence[str]
) -> list[tuple[Verdict, list[str], str]]:
    """Verdicts with a reason, except unchanged ones, and their `names` by kind and reason."""
    groups: dict[tuple[str, str], tuple[Verdict, list[str]]] = {}
    for verdict, name in zip(verdicts, names, strict=True):
        if verdict.reason and verdict.kind != "unchanged":
            key = (verdict.kind, verdict.reason)
            groups.setdefault(key, (verdict, []))[1].append(name)
    return [(verdict, labels, reason) for (_, reason), (verdict, labels) in groups.items()]


def _rank(verdict: Verdict) -> tuple[int, float, str, str]:
    group = {"regressed": 0, "errored": 1}.get(verdict.kind, 2 if verdict.effect is not None else 3)
    return (group, -(verdict.effect or 0.0), verdict.id, verdict.metric)


def _fact(value: Any) -> str:
    return "absent" if value is None else json.dumps(value, default=str, ensure_ascii=False)


_COLOURS: Final[Mapping[VerdictKind, Markup]] = {
    "regressed": BAD,
    "errored": BAD,
    "improved": GOOD,
    "unchanged": PLAIN,
}
"""Any other verdict is doubtful."""

_LEFT_OUT: Final = ("launches", "interval", "base", "head", "metric")
"""Columns left out, in this order, before names become too short."""
_MIN_NAME_WIDTH: Final = 20
"""Width to which names are shortened before a column is left out: enough to tell tests apart."""
_MAX_NAMES: Final = 3
"""Benchmarks named with a reason they share: more fill a line of the terminal."""
_MAX_DIFFERENCES: Final = 8
"""Environment differences listed, so that verdicts stay on the screen; JSON has all."""


def verdict_lines(
    comparison: Comparison,
    width: int,
    glyphs: Glyphs = UNICODE,
    *,
    only_changed: bool = False,
) -> list[Line]:
    """Title, notes, one row per verdict (changed ones `only_changed`), reasons, counts of all."""
    visible = worst_first(comparison.verdicts)
    visible = changed(visible) if only_changed else visible
    return [
        ((_escaped(f"{comparison.base} {glyphs.to} {comparison.head}", width, glyphs), BOLD),),
        *_notes(comparison, width),
        *_table(visible, width, glyphs),
        *_reason_lines(visible, width, glyphs),
        *_environment(comparison, width, glyphs),
        *_counts(comparison.verdicts, width, glyphs),
    ]


def _table(verdicts: Sequence[Verdict], width: int, glyphs: Glyphs) -> Iterator[Line]:
    if not verdicts:
        return
    rows = [cells_of(verdict, glyphs) for verdict in verdicts]
    names = _names(verdicts)
    columns = _fitting(rows, names, width)
    if "metric" not in columns and (metric := rows[0]["metric"]):
        yield ((_escaped(f"{metric}:", width, glyphs), PLAIN),)
    columns["verdict"] = replace(columns["verdict"], markup=[*map(colour, verdicts)])
    benchmark = names_column(names, columns.values(), width, glyphs)
    yield from table([benchmark, *columns.values()], glyphs, nothing=glyphs.nothing)


def _names(verdicts: Sequence[Verdict]) -> list[str]:
    """Node ids, without the file if it is the same for all."""
    ids = [verdict.id for verdict in verdicts]
    files = {node_id.partition("::")[0] for node_id in ids}
    if len(files) == 1:
        ids = [node_id.partition("::")[2] or node_id for node_id in ids]
    return [printable(node_id) for node_id in ids]


def _fitting(
    rows: Sequence[Mapping[str, str]], names: Sequence[str], width: int
) -> dict[str, Column]:
    columns = {
        name: column(name, [row[name] for row in rows], numeric=name not in {"metric", "verdict"})
        for name in rows[0]
    }
    name_width = min(max(map(text_width, names)), max(_MIN_NAME_WIDTH, width // 4))
    is_same_metric = len({row["metric"] for row in rows}) == 1
    give_way = [name for name in _LEFT_OUT if name != "metric" or is_same_metric]
    with_content = {name: column for name, column in columns.items() if any(column.cells)}
    return narrowed(with_content, give_way, width - name_width)


def _reason_lines(verdicts: Sequence[Verdict], width: int, glyphs: Glyphs) -> Iterator[Line]:
    names = zip(_names(verdicts), verdicts, strict=True)
    labels = [f"{name} {verdict.metric}".strip() for name, verdict in names]
    for verdict, group, reason in reasons(verdicts, labels):
        shortened = shorten(group[:_MAX_NAMES], width // 2, glyphs.ellipsis)
        names_text = listed([*map(printable, shortened), *group[_MAX_NAMES:]], _MAX_NAMES)
        yield from marked(_wrapped(f"{names_text}: {reason}", width), colour(verdict))


def _wrapped(text: str, width: int) -> list[str]:
    return wrapped(text, width, hanging=GAP, cut_words=True)


def _notes(comparison: Comparison, width: int) -> Iterator[Line]:
    for note in comparison.notes:
        yield from marked(_wrapped(note, width), DOUBTFUL)


def _counts(verdicts: Sequence[Verdict], width: int, glyphs: Glyphs) -> Iterator[Line]:
    return marked(_wrapped(headline(verdicts, glyphs), width), _overall_colour(verdicts))


def _environment(comparison: Comparison, width: int, glyphs: Glyphs) -> Iterator[Line]:
    differences = comparison.environment_differences
    if not differences:
        return
    yield (("environment differences:", BOLD),)
    for difference in differences[:_MAX_DIFFERENCES]:
        yield ((_escaped(f"  {difference_text(difference, glyphs)}", width, glyphs), PLAIN),)
    if len(differences) > _MAX_DIFFERENCES:
        hidden_count = len(differences) - _MAX_DIFFERENCES
        yield ((f"  and {hidden_count} more; use --format=json for all", PLAIN),)


def _escaped(text: str, width: int, glyphs: Glyphs) -> str:
    indent = len(text) - len(text.lstrip())
    return cut(" " * indent + printable(text), width, glyphs.ellipsis)


def colour(verdict: Verdict) -> Markup:
    """The colour of a verdict."""
    return _COLOURS.get(verdict.kind, DOUBTFUL)


def _overall_colour(verdicts: Sequence[Verdict]) -> Markup:
    kinds = {verdict.kind for verdict in verdicts}
    if kinds & {"regressed", "errored"}:
        return BAD
    return GOOD if kinds and kinds <= {"improved", "unchanged"} else DOUBTFUL
