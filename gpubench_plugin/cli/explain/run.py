"""Explanation of a run judged against earlier runs, in time order."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence

from gpubench_plugin.baselines.model import Reference
from gpubench_plugin.baselines.resolve import Resolver
from gpubench_plugin.cli.explain.judged import Measured, judged_explanation
from gpubench_plugin.compare.comparability import Comparability
from gpubench_plugin.compare.launch_values import FEWEST
from gpubench_plugin.compare.matched_metrics import limit_source_of
from gpubench_plugin.core.errors import GpubenchError
from gpubench_plugin.core.format import counted, short_commit
from gpubench_plugin.core.records import Result, Run
from gpubench_plugin.core.verdicts import Verdict
from gpubench_plugin.reports.explanation import Explanation, Recommendation, split_verdict
from gpubench_plugin.reports.verdicts import number
from gpubench_plugin.results.verdicts import VerdictDocument

_Sample = tuple[Run, Result]


def explain_run(
    run: Run, document: VerdictDocument, benchmark: str, *, resolver: Resolver
) -> Explanation:
    """Explain the verdicts of `benchmark` in `run`; the `resolver` loads its reference."""
    final = document.for_benchmark(benchmark)
    label = document.base_label
    reference = _load_reference(label, run, benchmark, resolver)
    head = run.results[benchmark]
    samples, incomparable = _samples(reference.runs, run, head)
    level_run, level = _level(samples)
    pinned = sum(result.pinned for _, result in samples)
    measured: list[Measured] = [
        (sample.run_id or sample.label, "pinned run" if result.pinned else "earlier run", result, 0)
        for sample, result in samples
    ]
    measured.append((run.run_id, "this run", head, 0))
    counts = []
    if samples:
        counts.append(
            counted(len(samples), "earlier run") + f", {pinned} of them pinned" * bool(pinned)
        )
    if incomparable:
        counts.append(f"{counted(incomparable, 'earlier run')} not comparable with this run")
    return judged_explanation(
        final,
        measured,
        stated={"base": level.limits if level is not None else {}, "head": head.limits},
        benchmark=benchmark,
        subject=f"run {run.run_id}, judged against {label or 'earlier runs'}",
        noun="run",
        facts=(*counts, *_levels(final)),
        notes=tuple(dict.fromkeys((*document.notes, *reference.notes))),
        advice=tuple(_advice(final, level_run, pinned, run, benchmark, label)),
    )


def _load_reference(label: str, run: Run, benchmark: str, resolver: Resolver) -> Reference:
    """Load the reference it was judged against, as far as it still exists."""
    try:
        return resolver.reference(label, benchmarks=(benchmark,), head=run)
    except GpubenchError as error:
        note = f"the runs it was judged against cannot be read any more: {error}"
        return Reference(label=label, kind="missing", notes=(note,))


def _samples(earlier_runs: Sequence[Run], run: Run, head: Result) -> tuple[list[_Sample], int]:
    """Comparable runs that measured it, oldest first, and the number of incomparable ones."""
    measured = [
        (sample_run, result)
        for sample_run in earlier_runs
        if (result := sample_run.results.get(head.id)) and result.outcome == "measured"
    ]
    differences = Comparability(exempt=(), allow=False).differences
    comparable = [sample for sample in measured if not differences(*sample, run, head)]
    comparable.sort(key=lambda sample: sample[0].run_id)
    return comparable, len(measured) - len(comparable)


def _level(samples: Sequence[_Sample]) -> tuple[Run, Result] | tuple[None, None]:
    """The run that sets the level and limits, with its result."""
    sources = limit_source_of([result for _, result in samples])
    matches = (sample for sample in samples if any(sample[1] is source for source in sources))
    return next(matches, (None, None))


def _levels(final: Sequence[Verdict]) -> Iterator[str]:
    """Describe level, head, and the prediction interval of another run of the same code."""
    for verdict in (part for final_verdict in final for part in split_verdict(final_verdict)):
        if verdict.base is None or verdict.head is None:
            continue
        values = (verdict.base, verdict.head, *(prediction(verdict) or ()))
        level, head, *interval = (number(value, verdict.unit) for value in values)
        text = f"{verdict.metric}: level {level}, this run {head}"
        if interval:
            between = " and ".join(interval)
            text += f"; another run of the same code would be between {between} (99%)"
        yield text


def prediction(verdict: Verdict) -> tuple[float, float] | None:
    """Prediction interval of the effect around the level, as ratios."""
    if verdict.method != "history" or verdict.interval is None or not verdict.base:
        return None
    sign = -1.0 if verdict.better == "higher" else 1.0
    ratios = sorted(1 + sign * end for end in verdict.interval)
    if ratios[0] <= 0 or not math.isfinite(ratios[1]):
        return None
    half_width = math.sqrt(ratios[1] / ratios[0])
    return verdict.base / half_width, verdict.base * half_width


def _advice(
    final: Sequence[Verdict], level: Run | None, pinned: int, run: Run, benchmark: str, label: str
) -> Iterator[Recommendation]:
    """Advice for undecided metrics and regressions, except of absolute bounds."""
    kinds = {verdict.kind for verdict in final if verdict.method != "absolute"}
    if not kinds & {"inconclusive", "regressed"}:
        return
    history = any(verdict.method == "history" for verdict in final)
    if "inconclusive" in kinds and history and pinned < FEWEST:
        yield Recommendation(
            f"{FEWEST} pinned runs of one commit (there are {pinned}):",
            f"gpubench baseline set {shlex.quote(label)} RUN RUN ...",
        )
    base = short_commit(level.commit if level else "") or "REF"
    command = f"gpubench ab --base={base} -- {shlex.quote(benchmark)}"
    yield Recommendation("measure both sides alternately:", command)
    if "regressed" in kinds and history:
        options = f"--baseline={shlex.quote(label)} --reason=WHY"
        command = f"gpubench accept {run.run_id} {shlex.quote(benchmark)} {options}"
        yield Recommendation("if the new level is intended:", command)
