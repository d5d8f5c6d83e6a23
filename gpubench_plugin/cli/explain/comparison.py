"""Explanation of a ``gpubench ab`` comparison: its launches, and every look replayed.

The looks are recomputed by the same judge from the first pairs: over the whole suite, since the
number of series matters, and without what was decided before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpubench_plugin.baselines.benchmark_names import run_benchmarks, the_benchmark
from gpubench_plugin.cli.ab.comparison import VERDICTS, load_state, resume_command
from gpubench_plugin.cli.ab.findings import Tracker, next_pairs
from gpubench_plugin.cli.ab.request import Request
from gpubench_plugin.cli.ab.schedule import WARMUP_PAIR
from gpubench_plugin.cli.ab.sides import SIDES, SideName
from gpubench_plugin.cli.ab.state import LaunchRecord, State
from gpubench_plugin.cli.ab.state import Look as LookTaken
from gpubench_plugin.cli.explain import limits
from gpubench_plugin.cli.explain.measurement import CURES
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.core.quality_flags import doubtful_flags
from gpubench_plugin.core.records import Result, Run, Verdict
from gpubench_plugin.core.words import counted
from gpubench_plugin.reports.explanation import (
    Explanation,
    LookVerdicts,
    PlotPoint,
    Recommendation,
    split_verdict,
)
from gpubench_plugin.results import verdicts

if TYPE_CHECKING:
    from gpubench_plugin.results.verdicts import VerdictDocument


def explain_comparison(folder: Path, benchmark: str) -> Explanation:
    """Explain the benchmark's verdicts in the comparison in `folder`.

    Raises:
        UsageProblem: nothing was measured yet, or no benchmark or several match.
        ResultsError: a file cannot be read.
    """
    state, request = load_state(folder)
    document = verdicts.read(folder / VERDICTS) if (folder / VERDICTS).exists() else None
    launches = _LaunchSet(state, document)
    results = {**launches.warmup["base"].results, **launches.warmup["head"].results}
    if (name := benchmark) not in results:
        names = {id: None for run in launches.warmup.values() for id in run_benchmarks(run.results)}
        scope = f"the comparison {folder.name}"
        name = the_benchmark(benchmark, names, scope, unmeasured=results)
    looks, replay = _looks(launches, request, name)
    recorded = document.for_benchmark(name) if document is not None else ()
    final = recorded or tuple(v for v in replay.comparison().verdicts if v.id == name)
    units = limits.units_of((*final, *(verdict for look in looks for verdict in look.verdicts)))
    points = tuple(launches.points(name, units))
    advice = [Recommendation(text="measure the missing pairs:", command=resume_command(folder))]
    if final:
        advice = list(_advice(final, folder, state.judged_pairs, request, points))
    elif document is not None:
        advice = []
    return Explanation(
        benchmark=name,
        subject=_subject(folder, request, launches, document, has_looks=bool(looks)),
        noun="launch",
        points=points,
        units=units,
        verdicts=final,
        limits=_limits(final, request, launches, name),
        looks=tuple(looks),
        unused=tuple(launches.unused()),
        environment_differences=replay.environment_differences,
        notes=(*_changes(recorded, looks), *(document.notes if document else replay.notes)),
        advice=tuple(advice),
    )


class _LaunchSet:
    """Judged and unused launches of a comparison."""

    def __init__(self, state: State, document: VerdictDocument | None):
        self._state = state
        labels = [document.base_label, *document.head_labels] if document else []
        self.labels = dict(zip(SIDES, labels if len(labels) == len(SIDES) else SIDES, strict=True))
        warmup = state.warmup_launches()
        if warmup is None:
            raise UsageProblem(
                f"{state.folder}: no pair is complete yet; continue with gpubench ab "
                f"--resume={state.folder}"
            )
        self.warmup = {side: self._run(warmup[side]) for side in SIDES}

    @cached_property
    def pairs(self) -> list[dict[SideName, LaunchRecord]]:
        """Leading pairs whose launches both ended normally."""
        pairs: list[dict[SideName, LaunchRecord]] = []
        while (launches := self._state.pair_launches(len(pairs) + 1)) is not None:
            pairs.append(launches)
        return pairs

    @property
    def looks(self) -> list[LookTaken]:
        """Looks taken, as far as their pairs exist."""
        return [look for look in self._state.looks if look.pairs <= len(self.pairs)]

    @cached_property
    def runs(self) -> dict[SideName, list[Run]]:
        """Runs of the judged pairs, by side, in pair order."""
        return {side: [self._run(pair[side]) for pair in self.pairs] for side in SIDES}

    def last(self, side: SideName, name: str) -> Result | None:
        """The side's latest result of the benchmark."""
        runs = (*self.runs[side][::-1], self.warmup[side])
        return next((run.results[name] for run in runs if name in run.results), None)

    def points(self, name: str, metrics: Mapping[str, str]) -> Iterator[PlotPoint]:
        """Points of the launches that measured the benchmark, in time order."""
        order = {launch.folder: number for number, launch in enumerate(self._state.launches)}
        judged_launches = [
            (launches[side], self.runs[side][number])
            for number, launches in enumerate(self.pairs)
            for side in SIDES
        ]
        for launch, run in sorted(judged_launches, key=lambda entry: order[entry[0].folder]):
            result, label = run.results.get(name), Path(launch.folder).name
            if result is not None and result.outcome == "measured":
                yield PlotPoint.of(result, metrics, label=label, role=launch.side)

    def unused(self) -> Iterator[str]:
        """Unused launches with the reason."""
        judged_folders = {launch.folder for launches in self.pairs for launch in launches.values()}
        for launch in self._state.launches:
            if launch.pair == WARMUP_PAIR or launch.folder in judged_folders:
                continue
            cause = launch.problem or "the other side of its pair is missing"
            if not launch.problem and launch.attempt < self._state.attempts(launch.pair):
                disturbed = f", since it was disturbed ({launch.replaced})" * bool(launch.replaced)
                cause = f"its pair was remeasured{disturbed}"
            yield f"{Path(launch.folder).name} (pair {launch.pair}): {cause}"

    def _run(self, launch: LaunchRecord) -> Run:
        return self._state.run_of(launch, self.labels[launch.side])


def _looks(launches: _LaunchSet, request: Request, name: str) -> tuple[list[LookVerdicts], Tracker]:
    """Replay each look at the benchmark; return the looks and the final judge."""
    findings = Tracker(*(launches.warmup[side] for side in SIDES), **request.judging)
    looks = []
    previous = [v for v in findings.comparison().verdicts if v.id == name]
    for look in launches.looks:
        if name not in findings.open:
            break
        runs_so_far = (launches.runs[side][: look.pairs] for side in SIDES)
        findings.judge(*runs_so_far, unchanged_from=look.unchanged_from)
        current = [v for v in findings.comparison().verdicts if v.id == name]
        changed = tuple(v for v in current if v not in previous)
        looks.append(LookVerdicts(pairs=look.pairs, verdicts=changed))
        previous = current
    return looks, findings


def _subject(
    folder: Path,
    request: Request,
    launches: _LaunchSet,
    document: VerdictDocument | None,
    *,
    has_looks: bool,
) -> str:
    base, head = (launches.labels[side] for side in SIDES)
    if document is None:
        base, head = request.base, request.head or "working tree"
    status = "verdicts so far" if has_looks else "not judged yet"
    ending_note = "" if document is not None else f", not finished: {status}"
    return (
        f"comparison {folder.name}: base {base}, head {head}; "
        f"{counted(len(launches.pairs), 'pair')} of launches{ending_note}"
    )


def _limits(
    final: Sequence[Verdict], request: Request, launches: _LaunchSet, name: str
) -> dict[str, str]:
    own_limits = {
        side: part.limits if (part := launches.last(side, name)) else {} for side in SIDES
    }
    return limits.origins(
        final, cli_limits=request.limits, base=own_limits["base"], head=own_limits["head"]
    )


def _changes(recorded: Sequence[Verdict], looks: Sequence[LookVerdicts]) -> Iterator[str]:
    """Differences between the recorded verdicts and this version's judgement."""
    latest = {
        part.metric: verdict
        for look in looks
        for verdict in look.verdicts
        for part in split_verdict(verdict)
    }
    for verdict in recorded:
        current = latest.get(verdict.metric)
        if current is not None and current.kind != verdict.kind:
            yield (
                f"{verdict.metric} was recorded as {verdict.kind}; this version judges it "
                f"{current.kind}"
            )


_MOSTLY: Final = 0.5
"""Share of launches with a flag from which on its cure is worth advising; not measured."""


def _advice(
    final: Sequence[Verdict],
    folder: Path,
    looked: int,
    request: Request,
    points: Sequence[PlotPoint],
) -> Iterator[Recommendation]:
    """Advice to reach a decision for undecided metrics."""
    undecided = [verdict for verdict in final if verdict.kind == "inconclusive"]
    if not undecided:
        return
    total = next_pairs(undecided, looked=looked, unchanged_from=request.unchanged_from)
    if total is not None:
        command = resume_command(folder, total)
        yield Recommendation(text=f"about {total} pairs in total:", command=command)
    if looked and None in (verdict.pairs_needed for verdict in undecided):
        yield Recommendation(
            text=(
                "no number of pairs up to 200 will do: the launches vary too much, or the effect "
                "is close to the limit; lengthen each launch (--measure.max_time_s=10), or set "
                "another limit (--limit)"
            )
        )
    flag_counts = Counter(flag for point in points for flag in doubtful_flags(point.flags))
    for flag, count in flag_counts.items():
        if count > _MOSTLY * len(points):
            yield Recommendation(text=f"{flag} ({count} of {len(points)} launches): {CURES[flag]}")
