"""Interim state of a comparison: final verdicts, and benchmarks still undecided."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from gpubench_plugin.compare.launch_values import LaunchValues
from gpubench_plugin.compare.looks import LOOK, UNCHANGED_FROM
from gpubench_plugin.compare.matching import match, restricted_to
from gpubench_plugin.compare.pairs import judge_pairs
from gpubench_plugin.compare.step_time import Subject, merge_parts, subject_of
from gpubench_plugin.core.errors import NothingComparable
from gpubench_plugin.core.records import Run
from gpubench_plugin.core.verdicts import Comparison, Verdict

# Group of the facts that the sides are meant to differ in.
_COMPARED: Final = "git."


class Tracker:
    """Tracks verdicts from the warm-up pair on, which defines the suite of comparable metrics.

    `base` and `head` are the warm-up runs; `judging` are options of :func:`.match`.

    Attributes:
        pairs_needed: pairs that decide all that the last look could not, about; None before a look,
            and where no number of pairs helps.
        measured: benchmarks that pass on the base.
        suite: number of step times and other metrics that can be judged.

    Raises:
        NothingComparable: neither side has a benchmark.
    """

    def __init__(self, base: Run, head: Run, **judging: Any):
        if not base.results and not head.results:
            raise NothingComparable("pytest selected no benchmark on either side")
        self._judging = judging
        matched = match([base], [head], paired=True, **judging)
        self._order = list(dict.fromkeys((*head.results, *base.results)))
        self._tests = len(matched.series)
        self._open: dict[Subject, Verdict | None] = dict.fromkeys(map(subject_of, matched.series))
        self.suite = len(self._open)
        self._decided: list[LaunchValues] = []
        self.pairs_needed: int | None = None
        self._final = {(v.id, v.metric): v for v in matched.verdicts}
        self.environment_differences = tuple(
            difference
            for difference in matched.environment_differences
            if not difference.key.startswith(_COMPARED)
        )
        self.notes = matched.notes
        if base.results.keys().isdisjoint(head.results):
            self.notes += ("nothing to compare: base and head have no benchmark in common",)
        self._bases: Sequence[Run] = [base]
        self._heads: Sequence[Run] = [head]
        self.measured = base.measured

    @property
    def open(self) -> frozenset[str]:
        """Benchmarks with an undecided verdict."""
        return frozenset(node_id for node_id, _ in self._open)

    @property
    def left_out(self) -> list[str]:
        """Benchmarks that need not run again."""
        return [node_id for node_id in self._order if node_id not in self.open]

    @property
    def undecided(self) -> list[Verdict]:
        """Verdicts of the last look on everything still open."""
        return [*filter(None, self._open.values())]

    @property
    def decided(self) -> int:
        """Number of judgeable series with a final verdict."""
        return self.suite - len(self._open)

    def judge(
        self, bases: Sequence[Run], heads: Sequence[Run], *, unchanged_from: int = UNCHANGED_FROM
    ) -> None:
        """Judge what is open by all pairs so far, see :func:`.judge_pairs`.

        Decisions of earlier looks are final.
        """
        self._bases, self._heads = bases, heads
        self.measured = self.measured.union(*(run.measured for run in bases))
        open_ids = self.open
        matched = match(
            [restricted_to(run, open_ids) for run in bases],
            [restricted_to(run, open_ids) for run in heads],
            paired=True,
            **self._judging,
        )
        series = [item for item in matched.series if subject_of(item) in self._open]
        series_verdicts = judge_pairs(
            series, m=self._tests, decided_series=self._decided, unchanged_from=unchanged_from
        )
        verdicts = merge_parts(series, series_verdicts)
        self._open = {}
        for subject, verdict in verdicts.items():
            target = self._open if verdict.kind == "inconclusive" else self._final
            target[subject] = verdict
        needed = [verdict.pairs_needed for verdict in self.undecided]
        self.pairs_needed = None if None in needed else max(filter(None, needed), default=None)
        self._decided += [item for item in series if subject_of(item) not in self._open]
        for verdict in matched.verdicts:  # a benchmark that failed meanwhile, for example
            self._final.setdefault((verdict.id, verdict.metric), verdict)

    def stop(self, cause: str) -> None:
        """Append to the reason of every open verdict why measuring stopped."""
        self._open = {
            key: verdict and replace(verdict, reason=f"{verdict.reason}; {cause}")
            for key, verdict in self._open.items()
        }

    def comparison(self, *notes: str) -> Comparison:
        """All verdicts in the order of the head's benchmarks; open ones are inconclusive."""
        verdicts = [*self._final.values(), *self.undecided]
        position = {node_id: number for number, node_id in enumerate(self._order)}
        verdicts.sort(key=lambda v: position.get(v.id, len(position)))
        return Comparison(
            base=self._bases[0].label,
            head=self._heads[0].label,
            verdicts=tuple(verdicts),
            environment_differences=self.environment_differences,
            notes=(*notes, *self.notes),
            measured=self.measured,
        )


def next_pairs(undecided: Sequence[Verdict], *, looked: int, unchanged_from: int) -> int | None:
    """Number of pairs that would decide the `undecided`; before a look `unchanged_from`.

    None where so many were `looked` at already, or no number of pairs helps.
    """
    # Launches may lack a metric.
    needed = [v.pairs_needed or (looked + LOOK) * (v.launches < LOOK) for v in undecided]
    total = max(needed, default=unchanged_from)
    return total if total > looked else None
