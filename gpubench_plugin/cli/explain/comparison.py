"""A comparison of ``gpubench ab``, explained: its launches, and each look taken again.

The looks are recomputed by the same judge from the first pairs, as the comparison took them: over
the whole suite, since how many series are judged counts, and without what was decided before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gpubench_plugin.cli.ab import (
    REHEARSAL,
    SIDES,
    VERDICTS,
    Asked,
    Done,
    Findings,
    SideName,
    State,
    earlier_state,
    next_pairs,
    resume_command,
)
from gpubench_plugin.cli.ab import Look as LookTaken
from gpubench_plugin.cli.explain import limits
from gpubench_plugin.cli.explain.measurement import CURES
from gpubench_plugin.compare.baselines import the_benchmark
from gpubench_plugin.environment import counted
from gpubench_plugin.errors import UsageProblem
from gpubench_plugin.flags import doubts
from gpubench_plugin.records import Result, Run, Verdict
from gpubench_plugin.reports import Advice, Explanation, Look, Point, numbers_of
from gpubench_plugin.results import verdicts

if TYPE_CHECKING:
    from gpubench_plugin.results.verdicts import VerdictDocument


def explained_comparison(folder: Path, benchmark: str) -> Explanation:
    """Why a benchmark has its verdicts in the comparison in `folder`.

    Raises:
        UsageProblem: nothing was measured yet, or no benchmark, or several, are called so.
        ResultsError: a file of it cannot be read.
    """
    state, asked = earlier_state(folder)
    document = verdicts.read(folder / VERDICTS) if (folder / VERDICTS).exists() else None
    launches = _Launches(state, document)
    names = [*launches.rehearsal["head"].results, *launches.rehearsal["base"].results]
    name = the_benchmark(benchmark, dict.fromkeys(names), f"the comparison {folder.name}")
    looks, replay = _looks(launches, asked, name)
    recorded = document.verdicts_on(name) if document is not None else ()
    final = recorded or tuple(v for v in replay.comparison().verdicts if v.id == name)
    shown = (*final, *(verdict for look in looks for verdict in look.verdicts))
    units = {one.metric: one.unit for v in shown for one in numbers_of(v) if one.metric}
    points = tuple(launches.points(name, units))
    rest = Advice(text="the pairs that are missing:", command=resume_command(folder))
    return Explanation(
        benchmark=name,
        subject=_subject(folder, asked, launches, document, looked=bool(looks)),
        noun="launch",
        points=points,
        units=units,
        verdicts=final,
        limits=_limits(final, asked, launches, name),
        looks=tuple(looks),
        unused=tuple(launches.unused()),
        environment_differences=replay.environment_differences,
        notes=(*_changes(recorded, looks), *(document.notes if document else replay.notes)),
        advice=tuple(
            _advice(final, folder, points, looked=state.looked, unchanged_from=asked.unchanged_from)
            if final
            else [rest] * (document is None)
        ),
    )


class _Launches:
    """The launches of a comparison that are judged, and those that are not."""

    def __init__(self, state: State, document: VerdictDocument | None):
        self._state = state
        recorded = [document.base_label, *document.head_labels] if document else []
        self.labels = dict(
            zip(SIDES, recorded if len(recorded) == len(SIDES) else SIDES, strict=True)
        )
        both = state.rehearsal()
        if both is None:
            raise UsageProblem(
                f"{state.folder}: nothing was measured on both sides yet; go on with gpubench ab "
                f"--resume={state.folder}"
            )
        self.rehearsal = {side: self._run(both[side]) for side in SIDES}

    @cached_property
    def pairs(self) -> list[dict[SideName, Done]]:
        """Those whose launches have both ended in order, up to the first that has not."""
        pairs: list[dict[SideName, Done]] = []
        while (both := self._state.complete(len(pairs) + 1)) is not None:
            pairs.append(both)
        return pairs

    @property
    def looks(self) -> list[LookTaken]:
        """The looks that were taken, as far as their pairs are there."""
        return [look for look in self._state.looks if look.pairs <= len(self.pairs)]

    @cached_property
    def runs(self) -> dict[SideName, list[Run]]:
        """What they measured, in the order of the pairs."""
        return {side: [self._run(both[side]) for both in self.pairs] for side in SIDES}

    def last(self, side: SideName, name: str) -> Result | None:
        """The latest result that a side has of the benchmark."""
        runs = (*self.runs[side][::-1], self.rehearsal[side])
        return next((run.results[name] for run in runs if name in run.results), None)

    def points(self, name: str, metrics: Mapping[str, str]) -> Iterator[Point]:
        """The launches that have measured the benchmark, in the order of time."""
        order = {launch.folder: number for number, launch in enumerate(self._state.done)}
        judged = [
            (both[side], self.runs[side][number])
            for number, both in enumerate(self.pairs)
            for side in SIDES
        ]
        for launch, run in sorted(judged, key=lambda one: order[one[0].folder]):
            result = run.results.get(name)
            if result is not None and result.outcome == "measured":
                yield Point.of(result, metrics, label=Path(launch.folder).name, role=launch.side)

    def unused(self) -> Iterator[str]:
        """The launches that are not judged, each with the reason."""
        judged = {launch.folder for both in self.pairs for launch in both.values()}
        for launch in self._state.done:
            if launch.pair == REHEARSAL or launch.folder in judged:
                continue
            why = launch.problem or "it stands alone: the other side of its pair is missing"
            if not launch.problem and launch.attempt < self._state.attempts(launch.pair):
                disturbed = f", since it was disturbed ({launch.replaced})" * bool(launch.replaced)
                why = f"its pair was measured again{disturbed}"
            yield f"{Path(launch.folder).name} (pair {launch.pair}): {why}"

    def _run(self, launch: Done) -> Run:
        return self._state.run_of(launch, self.labels[launch.side])


def _looks(launches: _Launches, asked: Asked, name: str) -> tuple[list[Look], Findings]:
    """What each look said of the benchmark, and the judge after the last one."""
    findings = Findings(*(launches.rehearsal[side] for side in SIDES), **asked.judging)
    looks = []
    before = [v for v in findings.comparison().verdicts if v.id == name]
    for look in launches.looks:
        if name not in findings.open:
            break
        so_far = (launches.runs[side][: look.pairs] for side in SIDES)
        findings.look(*so_far, unchanged_from=look.unchanged_from)
        judged = [v for v in findings.comparison().verdicts if v.id == name]
        looks.append(Look(pairs=look.pairs, verdicts=tuple(v for v in judged if v not in before)))
        before = judged
    return looks, findings


def _subject(
    folder: Path,
    asked: Asked,
    launches: _Launches,
    document: VerdictDocument | None,
    *,
    looked: bool,
) -> str:
    base, head = (launches.labels[side] for side in SIDES)
    if document is None:
        base, head = asked.base, asked.head or "working tree"
    so_far = "these are its verdicts so far" if looked else "no look was taken yet"
    ended = "" if document is not None else f", not ended: {so_far}"
    return (
        f"comparison {folder.name}: base {base}, head {head}; "
        f"{counted(len(launches.pairs), 'pair')} of launches{ended}"
    )


def _limits(
    final: Sequence[Verdict], asked: Asked, launches: _Launches, name: str
) -> dict[str, str]:
    stated = {side: one.limits if (one := launches.last(side, name)) else {} for side in SIDES}
    return limits.origins(final, given=asked.limits, base=stated["base"], head=stated["head"])


def _changes(recorded: Sequence[Verdict], looks: Sequence[Look]) -> Iterator[str]:
    """Where this version's judge says otherwise than the one that was asked then."""
    latest = {
        one.metric: verdict
        for look in looks
        for verdict in look.verdicts
        for one in numbers_of(verdict)
    }
    for verdict in recorded:
        now = latest.get(verdict.metric)
        if now is not None and now.kind != verdict.kind:
            yield (
                f"{verdict.metric} was recorded as {verdict.kind}; judged again by this version it "
                f"is {now.kind}"
            )


_MOSTLY: Final = 0.5


def _advice(
    final: Sequence[Verdict],
    folder: Path,
    points: Sequence[Point],
    *,
    looked: int,
    unchanged_from: int,
) -> Iterator[Advice]:
    """What would decide what is not decided."""
    undecided = [verdict for verdict in final if verdict.kind == "inconclusive"]
    if not undecided:
        return
    total = next_pairs(undecided, looked=looked, unchanged_from=unchanged_from)
    if total is not None:
        yield Advice(text=f"about {total} pairs in all:", command=resume_command(folder, total))
    if looked and None in (verdict.pairs_needed for verdict in undecided):
        yield Advice(
            text="no number of pairs up to 200: the launches differ too much from each other, or "
            "the effect lies at the limit; let each launch measure longer "
            "(--measure.max_time_s=10), or state another limit (--limit)"
        )
    raised = Counter(flag for point in points for flag in doubts(point.flags))
    for flag, count in raised.items():
        if count > _MOSTLY * len(points):
            yield Advice(text=f"{flag} ({count} of {len(points)} launches): {CURES[flag]}")
