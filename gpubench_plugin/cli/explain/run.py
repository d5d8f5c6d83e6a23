"""A run that was judged by earlier ones, explained: all of them in the order of time."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from gpubench_plugin.cli.explain import limits
from gpubench_plugin.compare import FEWEST, Likeness, limiting_of
from gpubench_plugin.compare.baselines import Reference, Resolver
from gpubench_plugin.environment import counted, short_commit
from gpubench_plugin.errors import GpubenchError
from gpubench_plugin.reports import Advice, Explanation, Glyphs, Point, number, numbers_of

if TYPE_CHECKING:
    from gpubench_plugin.records import Result, Run, Verdict
    from gpubench_plugin.results.verdicts import VerdictDocument


def explained_run(
    run: Run,
    document: VerdictDocument,
    benchmark: str,
    *,
    resolver: Resolver,
    glyphs: Glyphs,
) -> Explanation:
    """Why `benchmark` has its verdicts in `run`; the `resolver` finds what that was judged by."""
    final = document.verdicts_on(benchmark)
    earlier = _reference(document.base_label, run, benchmark, resolver)
    samples, others = _samples(earlier.runs, run, benchmark)
    head = run.results.get(benchmark)
    units = {one.metric: one.unit for v in final for one in numbers_of(v) if one.metric}
    return Explanation(
        benchmark=benchmark,
        subject=f"run {run.run_id}, judged by {document.base_label or 'earlier runs'}",
        noun="run",
        points=tuple(_points(samples, run, head, units)),
        units=units,
        verdicts=final,
        limits=_limits(final, samples, head),
        facts=(*_counts(samples, others), *_levels(final, glyphs)),
        environment_differences=document.differences,
        notes=(*document.notes, *(note for note in earlier.notes if note not in document.notes)),
        advice=tuple(_advice(final, samples, run, benchmark, document.base_label)),
    )


def _reference(label: str, run: Run, benchmark: str, resolver: Resolver) -> Reference:
    """What it was judged by, as far as that is still there."""
    try:
        return resolver.reference(label, benchmarks=(benchmark,), head=run)
    except GpubenchError as error:
        note = f"what it was judged by cannot be read any more: {error}"
        return Reference(label=label, kind="missing", notes=(note,))


_Sample = tuple["Run", "Result"]


def _samples(earlier: Sequence[Run], run: Run, benchmark: str) -> tuple[list[_Sample], int]:
    """The comparable runs that have measured it, oldest first, and how many are not comparable."""
    pairs = ((one, one.results[benchmark]) for one in earlier if benchmark in one.results)
    measured = [(one, result) for one, result in pairs if result.outcome == "measured"]
    head = run.results.get(benchmark)
    if head is None:
        return measured, 0
    likeness = Likeness(exempt=(), allow=False)
    alike = [sample for sample in measured if not likeness.differences(*sample, run, head)]
    alike.sort(key=lambda sample: sample[0].run_id)
    return alike, len(measured) - len(alike)


def _points(
    samples: Sequence[_Sample], run: Run, head: Result | None, metrics: Iterable[str]
) -> Iterator[Point]:
    this = [(run, head)] if head is not None else []
    for one, result in (*samples, *this):
        yield Point.of(
            result,
            metrics,
            label=one.run_id or one.label,
            role="this run" if result is head else "pinned run" if result.pinned else "earlier run",
        )


def _limits(
    final: Sequence[Verdict], samples: Sequence[_Sample], head: Result | None
) -> dict[str, str]:
    _, level = _level(samples)
    base, stated = (one.limits if one is not None else {} for one in (level, head))
    return limits.origins(final, base=base, head=stated)


def _level(samples: Sequence[_Sample]) -> tuple[Run, Result] | tuple[None, None]:
    """The run that the level is of, whose limits count, with its result."""
    limiting = limiting_of([result for _, result in samples])
    of_it = (sample for sample in samples if any(sample[1] is one for one in limiting))
    return next(of_it, (None, None))


def _counts(samples: Sequence[_Sample], others: int) -> Iterator[str]:
    if samples:
        pinned = _pinned(samples)
        of_them = f", {pinned} of them pinned" if pinned else ""
        yield f"{counted(len(samples), 'earlier run')}{of_them}"
    if others:
        yield f"{counted(others, 'earlier run')} not comparable with this one"


def _pinned(samples: Sequence[_Sample]) -> int:
    return sum(result.pinned for _, result in samples)


def _levels(final: Sequence[Verdict], glyphs: Glyphs) -> Iterator[str]:
    """Level, head, and where another run of the same code would lie."""
    for verdict in (one for whole in final for one in numbers_of(whole)):
        if verdict.base is None or verdict.head is None:
            continue
        ends = _prediction(verdict)
        level, head, *between = (
            number(value, verdict.unit, glyphs)
            for value in (verdict.base, verdict.head, *(ends or ()))
        )
        text = f"{verdict.metric}: level {level}, this run {head}"
        if between:
            low, high = between
            text += f"; another run of the same code would lie between {low} and {high} (99 %)"
        yield text


def _prediction(verdict: Verdict) -> tuple[float, float] | None:
    """The interval of the effect seen from the level: as wide, as a ratio, around it."""
    if verdict.method != "history" or verdict.interval is None or not verdict.base:
        return None
    sign = -1.0 if verdict.better == "higher" else 1.0
    ratios = sorted(1 + sign * end for end in verdict.interval)
    if ratios[0] <= 0 or not math.isfinite(ratios[1]):
        return None
    half = math.sqrt(ratios[1] / ratios[0])
    return verdict.base / half, verdict.base * half


def _advice(
    final: Sequence[Verdict], samples: Sequence[_Sample], run: Run, benchmark: str, label: str
) -> Iterator[Advice]:
    """What would decide what is not decided, and what to do about a regression.

    Of a fixed bound no base tells anything.
    """
    kinds = {verdict.kind for verdict in final if verdict.method != "absolute"}
    if not kinds & {"inconclusive", "regressed"}:
        return
    history = any(verdict.method == "history" for verdict in final)
    pinned = _pinned(samples)
    if "inconclusive" in kinds and history and pinned < FEWEST:
        yield Advice(
            text=f"{FEWEST} pinned runs of one commit (there are {pinned}):",
            command=f"gpubench baseline set {shlex.quote(label)} RUN RUN ...",
        )
    level, _ = _level(samples)
    base = short_commit(level.commit if level else "") or "REF"
    yield Advice(
        text="both sides measured in turns:",
        command=f"gpubench ab --base={base} -- {shlex.quote(benchmark)}",
    )
    if "regressed" in kinds and history:
        yield Advice(
            text="if the new level is meant:",
            command=f"gpubench accept {run.run_id} {shlex.quote(benchmark)} "
            f"--baseline={shlex.quote(label)} --reason=WHY",
        )
