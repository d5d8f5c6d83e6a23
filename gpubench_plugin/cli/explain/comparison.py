"""Explanation of a ``gpubench ab`` comparison: its launches, and every look replayed.

The looks are recomputed by the same judge from the first pairs: over the whole suite, since the
number of series matters, and without what was decided before.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from itertools import count, takewhile
from pathlib import Path

from gpubench_plugin.cli.ab.comparison import VERDICTS, resume_command
from gpubench_plugin.cli.ab.saved_state import WARMUP_PAIR, SavedState
from gpubench_plugin.cli.ab.tracker import Tracker, next_pairs
from gpubench_plugin.cli.benchmark_names import run_benchmarks, selected_benchmarks
from gpubench_plugin.cli.explain.judged import Measured, cures, judged_explanation
from gpubench_plugin.compare.effective_limits import SIDES, SideName
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.core.format import counted, grouped
from gpubench_plugin.core.verdicts import Comparison
from gpubench_plugin.reports.explanation import Explanation, LookVerdicts, Recommendation
from gpubench_plugin.results import verdicts


class ExplainedComparison:
    """A comparison in its `folder`, whose benchmarks can be explained.

    Raises:
        UsageProblem: nothing was measured yet.
        ResultsError: a file cannot be read.

    Attributes:
        verdicts: those it ended with, None of an unfinished one.
        command: the command line that measured it.
    """

    def __init__(self, folder: Path):
        self._folder = folder
        self._state = SavedState.read(folder.resolve())
        written = (folder / VERDICTS).exists()
        self.verdicts = verdicts.read(folder / VERDICTS) if written else None
        base, head = self._state.request.base, self._state.request.head or "working tree"
        if self.verdicts is not None:
            base, head = self.verdicts.base_label, *self.verdicts.head_labels
        self.launches = Launches(self._state, {"base": base, "head": head})
        self.command = shlex.join(self._state.request.command)

    @cached_property
    def comparison(self) -> Comparison:
        """The verdicts, of an unfinished comparison as far as it has them."""
        if self.verdicts is None:
            return self._replayed[0]
        return self.verdicts.comparison

    @cached_property
    def subject(self) -> str:
        """What it compares, and by how many pairs."""
        status = "verdicts so far" if any(self._replayed[1].values()) else "not judged yet"
        return (
            f"comparison {self._folder.name}: base {self.comparison.base}, "
            f"head {self.comparison.head}; {counted(len(self.launches.pairs), 'pair')} of launches"
            f"{'' if self.verdicts else f', not finished: {status}'}"
        )

    def explanation(self, benchmark: str) -> Explanation:
        """Explain the verdicts on the benchmark of that name; raises UsageProblem."""
        name = self.launches.benchmark(benchmark)
        final = tuple(v for v in self.comparison.verdicts if v.id == name)
        explanation = judged_explanation(
            final,
            self.launches.measured(name),
            stated={"options": self._state.request.limits, **self.launches.limits(name)},
            benchmark=name,
            subject=self.subject,
            noun="launch",
            looks=tuple(self._replayed[1].get(name, ())),
            unused=tuple(self.launches.unused()),
            notes=self.comparison.notes,
        )
        if not final and self.verdicts is None:
            advice = [Recommendation("measure the missing pairs:", resume_command(self._folder))]
        else:
            advice = [*_advice(explanation, self._folder, self._state)]
        return replace(explanation, advice=tuple(advice))

    @cached_property
    def _replayed(self) -> tuple[Comparison, Mapping[str, list[LookVerdicts]]]:
        """Each look taken again: the verdicts at the end, and by benchmark what each changed."""
        launches = self.launches
        tracker = Tracker(*launches.warmup.values(), **self._state.request.judging)
        looks: dict[str, list[LookVerdicts]] = {}
        previous = grouped((v.id, v) for v in tracker.comparison().verdicts)
        for look in self._state.looks:
            if look.pairs > len(launches.pairs):
                break
            bases, heads = (launches.runs[side][: look.pairs] for side in SIDES)
            open_names = tracker.open
            tracker.judge(bases, heads, unchanged_from=look.unchanged_from)
            current = grouped((v.id, v) for v in tracker.comparison().verdicts)
            for name in open_names:
                changed = [v for v in current.get(name, ()) if v not in previous.get(name, ())]
                taken = LookVerdicts(pairs=look.pairs, verdicts=tuple(changed))
                looks.setdefault(name, []).append(taken)
            previous = current
        return tracker.comparison(), looks


class Launches:
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
        return [
            (Path(launch.folder).name, launch.side, result, launch.pair)
            for launch, result in judged
        ]

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
