"""Explanation of a ``gpubench ab`` comparison: its launches, and every look replayed.

The looks are recomputed by the same judge from the first pairs: over the whole suite, since the
number of series matters, and without what was decided before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import count, takewhile
from pathlib import Path

from gpubench_plugin.cli.ab.comparison import VERDICTS, resume_command
from gpubench_plugin.cli.ab.saved_state import WARMUP_PAIR, Look, SavedState
from gpubench_plugin.cli.ab.tracker import Tracker, next_pairs
from gpubench_plugin.cli.benchmark_names import run_benchmarks, selected_benchmarks
from gpubench_plugin.cli.explain.judged import Measured, cures, judged_explanation
from gpubench_plugin.compare.effective_limits import SIDES, SideName
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.core.format import counted
from gpubench_plugin.reports.explanation import Explanation, LookVerdicts, Recommendation
from gpubench_plugin.results import verdicts


def explain_comparison(folder: Path, benchmark: str) -> Explanation:
    """Explain the benchmark's verdicts in the comparison in `folder`.

    Raises:
        UsageProblem: nothing was measured yet, or no benchmark or several match.
        ResultsError: a file cannot be read.
    """
    state = SavedState.read(folder.resolve())
    request = state.request
    document = verdicts.read(folder / VERDICTS) if (folder / VERDICTS).exists() else None
    base, head = request.base, request.head or "working tree"
    if document is not None:
        base, head = document.base_label, *document.head_labels
    launches = _Launches(state, {"base": base, "head": head})
    name = launches.benchmark(benchmark)
    tracker = Tracker(*launches.warmup.values(), **request.judging)
    complete_looks = [look for look in state.looks if look.pairs <= len(launches.pairs)]
    looks = tuple(_replay(tracker, launches, complete_looks, name))
    final = tuple(v for v in tracker.comparison().verdicts if v.id == name)
    status = "verdicts so far" if looks else "not judged yet"
    if document is not None:
        final = document.for_benchmark(name) or final
    explanation = judged_explanation(
        final,
        launches.measured(name),
        stated={"options": request.limits, **launches.limits(name)},
        benchmark=name,
        subject=(
            f"comparison {folder.name}: base {base}, head {head}; "
            f"{counted(len(launches.pairs), 'pair')} of launches"
            f"{'' if document else f', not finished: {status}'}"
        ),
        noun="launch",
        looks=looks,
        unused=tuple(launches.unused()),
        notes=tuple(document.notes if document else tracker.notes),
    )
    if not final and document is None:
        advice = [Recommendation("measure the missing pairs:", resume_command(folder))]
    else:
        advice = [*_advice(explanation, folder, state)]
    return replace(explanation, advice=tuple(advice))


class _Launches:
    """The launches of a comparison, with their runs by side; `pairs` are the complete ones."""

    def __init__(self, state: SavedState, labels: Mapping[SideName, str]):
        warmup = state.warmup_launches()
        if warmup is None:
            raise UsageProblem(
                f"{state.folder}: no pair is complete yet; continue with gpubench ab "
                f"--resume={state.folder}"
            )
        self._state = state
        numbers = takewhile(lambda pair: state.pair_launches(pair) is not None, count(1))
        self.pairs = [state.pair_launches(pair) or {} for pair in numbers]
        self.warmup = {side: state.run_of(warmup[side], labels[side]) for side in SIDES}
        self.runs = {
            side: [state.run_of(pair[side], labels[side]) for pair in self.pairs] for side in SIDES
        }

    def benchmark(self, text: str) -> str:
        """The benchmark that `text` names; raises UsageProblem."""
        if any(text in run.results for run in self.warmup.values()):
            return text
        names = [name for run in self.warmup.values() for name in run_benchmarks(run.results)]
        scope = f"the comparison {self._state.folder.name}"
        return selected_benchmarks(text, names, scope)[0]

    def limits(self, name: str) -> dict[str, Mapping[str, str]]:
        """Limits that each side's latest result of the benchmark states."""
        runs = {side: (self.warmup[side], *self.runs[side]) for side in SIDES}
        stated = {
            side: [run.results[name].limits for run in own if name in run.results]
            for side, own in runs.items()
        }
        return {side: limits[-1] if limits else {} for side, limits in stated.items()}

    def measured(self, name: str) -> list[Measured]:
        """The launches that measured the benchmark, in time order."""
        order = {launch.folder: number for number, launch in enumerate(self._state.launches)}
        judged = [
            (pair[side], run.results[name])
            for side in SIDES
            for pair, run in zip(self.pairs, self.runs[side], strict=True)
            if name in run.measured
        ]
        judged.sort(key=lambda entry: order[entry[0].folder])
        return [(Path(launch.folder).name, launch.side, result) for launch, result in judged]

    def unused(self) -> Iterator[str]:
        """Launches that are not judged, with the reason."""
        judged = [launch for pair in self.pairs for launch in pair.values()]
        for launch in self._state.launches:
            if launch.pair == WARMUP_PAIR or launch in judged:
                continue
            cause = launch.problem or "the other side of its pair is missing"
            if not launch.problem and launch.attempt < self._state.attempts(launch.pair):
                disturbed = f", since it was disturbed ({launch.replaced})" * bool(launch.replaced)
                cause = f"its pair was remeasured{disturbed}"
            yield f"{Path(launch.folder).name} (pair {launch.pair}): {cause}"


def _replay(
    tracker: Tracker, launches: _Launches, looks: Iterable[Look], name: str
) -> Iterator[LookVerdicts]:
    """Take each look again; what it changed for the benchmark."""
    previous = [v for v in tracker.comparison().verdicts if v.id == name]
    for look in looks:
        if name not in tracker.open:
            return
        bases, heads = (launches.runs[side][: look.pairs] for side in SIDES)
        tracker.judge(bases, heads, unchanged_from=look.unchanged_from)
        current = [v for v in tracker.comparison().verdicts if v.id == name]
        yield LookVerdicts(
            pairs=look.pairs, verdicts=tuple(v for v in current if v not in previous)
        )
        previous = current


def _advice(explanation: Explanation, folder: Path, state: SavedState) -> Iterator[Recommendation]:
    """Advice to reach a decision for undecided metrics."""
    undecided = [verdict for verdict in explanation.verdicts if verdict.kind == "inconclusive"]
    if not undecided:
        return
    looked, unchanged_from = state.judged_pairs, state.request.unchanged_from
    total = next_pairs(undecided, looked=looked, unchanged_from=unchanged_from)
    if total is not None:
        yield Recommendation(f"about {total} pairs in total:", resume_command(folder, total))
    if looked and None in (verdict.pairs_needed for verdict in undecided):
        yield Recommendation(
            "no number of pairs up to 200 will do: the launches vary too much, or the effect is "
            "close to the limit; lengthen each launch (--measure.max_time_s=10), or set another "
            "limit (--limit)"
        )
    yield from cures(explanation.points)
