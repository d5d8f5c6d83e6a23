"""Which runs stand against which: benchmarks of base and head matched, or why they are not."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from gpubench_plugin.compare.comparability import Likeness, several, told_differences
from gpubench_plugin.compare.limits import Limits, Side
from gpubench_plugin.compare.matched_metrics import STEP_TIME, Sides, metrics_of, removed_metrics
from gpubench_plugin.compare.renames import likely_renames
from gpubench_plugin.compare.series import Series
from gpubench_plugin.config import PRECISION_LEFT, former_ids
from gpubench_plugin.environment import counted
from gpubench_plugin.errors import UsageProblem
from gpubench_plugin.flags import UNFINISHED
from gpubench_plugin.records import Difference, Outcome, Result, Run, Verdict

WINDOW: Final = 20
"""Earlier runs that are samples though nobody has pinned them, at most: the first ones."""

_BROKEN: Final[frozenset[Outcome]] = frozenset(
    {"failed", "oom", "hang", "crashed", "mismatched_ranks"}
)
_LONGEST: Final = 160
_RENAMED: Final = "keep the old name to compare them, or `gpubench accept` the new one's level"


@dataclass(frozen=True, kw_only=True)
class Matched:
    """Series to judge, the verdicts that need no judging, and what else there is to say.

    `renames` says of ids of the base which other ones the head has, or likely has, for them.
    """

    series: tuple[Series, ...]
    verdicts: tuple[Verdict, ...]
    environment_differences: tuple[Difference, ...]
    notes: tuple[str, ...]
    renames: Mapping[str, str]


def match(
    bases: Sequence[Run],
    heads: Sequence[Run],
    *,
    paired: bool,
    limits: Mapping[str, str] = {},
    limits_from: Side = "base",
    allow_incomparable: bool = False,
    exempt: Sequence[str] = (),
    removed: bool = True,
    is_gone: Callable[[str], bool] = lambda _: True,
) -> Matched:
    """The series of all benchmarks of the heads.

    Args:
        bases: the launches of the base in the order of the pairs, or earlier runs, oldest first, of
            which the pinned ones and the first :data:`WINDOW` others that are comparable count.
        heads: as many launches of the head, or usually one run.
        paired: whether the n-th base stands beside the n-th head.
        limits: by metric, for every benchmark; they override those that base and head state.
        limits_from: whose limits count where base and head state different ones.
        allow_incomparable: compare all the same, and say so in the notes.
        exempt: beginnings of dot keys of facts or settings that the comparison is about.
        removed: whether benchmarks and metrics that only the base has get a verdict.
        is_gone: whether a benchmark that only the base has exists no longer: no other was renamed.

    Raises:
        UsageProblem: launches that cannot be paired; a text of `limits` is no limit.
    """
    if paired and len(bases) != len(heads):
        raise UsageProblem(
            f"{len(bases)} launches of the base, {len(heads)} of the head: pairs need as many of "
            "each, in the same order"
        )
    likeness = Likeness(exempt=exempt, allow=allow_incomparable)
    matching = _Matching(
        bases, heads, paired, Limits(limits, limits_from), likeness, removed, is_gone
    )
    found = [one for name in _names(heads) for one in matching.benchmark(name)]
    if removed:
        found.extend(_removed(bases, heads, matching.renamed))
    beside = zip(bases, heads, strict=True) if paired else zip(bases[-1:], heads[-1:], strict=False)
    return Matched(
        series=tuple(one for one in found if isinstance(one, Series)),
        verdicts=tuple(one for one in found if isinstance(one, Verdict)),
        environment_differences=_told(beside),
        notes=(*likeness.notes, *matching.limits.notes, *matching.left_out, *matching.notes),
        renames=matching.renamed,
    )


@dataclass(frozen=True)
class _Matching:
    bases: Sequence[Run]
    heads: Sequence[Run]
    paired: bool
    limits: Limits
    likeness: Likeness
    removed: bool
    is_gone: Callable[[str], bool]
    notes: list[str] = field(default_factory=list)
    unlike: dict[tuple[int, str], list[str]] = field(default_factory=dict)

    def benchmark(self, name: str) -> Iterator[Series | Verdict]:
        """What there is to judge, or to say, of one benchmark."""
        heads = [run.results[name] for run in self.heads if name in run.results]
        broken = [one for one in heads if self._broke(one)]
        measured = [one for one in heads if one.outcome == "measured"]
        if broken:
            of = f" in {len(broken)} of {len(heads)} launches" if len(heads) > 1 else ""
            yield Verdict(id=name, kind="errored", reason=f"{_ending(broken[0])}{of}")
            return
        if not measured:
            yield Verdict(id=name, kind="not_measured", reason=_ending(heads[-1]))
            return
        pairs = self._pairs(name)
        if isinstance(pairs, Verdict):
            yield pairs
            alone = Sides(bases=(), heads=measured, measured=measured, paired=False)
            yield from metrics_of(alone, self.limits.of(alone), self.limits.stated(alone))
            return
        sides = Sides(
            bases=[base for _, base, _, _ in pairs],
            heads=[head for _, _, _, head in pairs] if self.paired else measured,
            measured=measured,
            paired=self.paired,
        )
        found = list(metrics_of(sides, self.limits.of(sides), self.limits.stated(sides)))
        self._note_lacking(found, len(pairs))
        if self.removed:
            ours = [base for run, base, of, _ in pairs if not (run.foreign or of.foreign)]
            found.extend(removed_metrics(replace(sides, bases=ours), self.limits.given))
        if not found:  # it was measured, and must not vanish without a word
            reason = "it has no metric to judge"
            yield Verdict(id=name, metric=STEP_TIME, kind="not_measured", reason=reason)
        yield from found

    @property
    def left_out(self) -> tuple[str, ...]:
        """One line for each kind of earlier runs that are no samples, since they differ."""
        return tuple(
            f"{counted(number, 'earlier run')} {'is' if number == 1 else 'are'} incomparable "
            f"({several(names)}): {why}"
            for (number, why), names in self.unlike.items()
        )

    def _broke(self, head: Result) -> bool:
        """Whether it failed, or its run vanished before it told of what the base can do."""
        worked = UNFINISHED in head.flags and any(_measured(base, head.id) for base in self.bases)
        return head.outcome in _BROKEN or worked

    def _note_lacking(self, found: Iterable[Series | Verdict], pairs: int) -> None:
        """Say in how many of the `pairs` a metric is judged that is not in all of them."""
        for one in found:
            if self.paired and isinstance(one, Series) and len(one.head) < pairs:
                judged = f"{one.metric} is judged in {len(one.head)} of {pairs} pairs"
                self.notes.append(f"{one.id}: {judged}, since the others lack it")

    def _pairs(self, name: str) -> list[tuple[Run, Result, Run, Result]] | Verdict:
        """What stands against what, comparable, or why nothing does."""
        if not self.bases:
            return Verdict(id=name, kind="no_baseline", reason="there is no run to compare with")
        known = [run.results[name] for run in self.bases if name in run.results]
        if not known:
            return Verdict(
                id=name, kind="new", reason=f"the base has no such benchmark{self._origin(name)}"
            )
        pairs = [
            (base, base.results[name], head, head.results[name])
            for base, head in self._beside()
            if _measured(base, name) and _measured(head, name)
        ]
        if not self.paired:
            pairs.sort(
                key=lambda pair: not pair[1].pinned
            )  # the level stands before the later ones
        if not pairs:
            reason = f"the base did not measure it: {_ending(known[-1])}"
            if any(one.outcome == "measured" for one in known):
                reason = "no pair has it measured on both sides"
            return Verdict(id=name, kind="no_baseline", reason=reason)
        if self.paired and (lost := len(self.heads) - len(pairs)):
            lacking = f"{lost} of {len(self.heads)} pairs are left out"
            self.notes.append(f"{name}: {lacking}, since one side did not measure it there")
        return self._alike(name, pairs)

    @cached_property
    def former(self) -> Mapping[str, str]:
        """Ids of the base by the ones that the same benchmarks have in the head."""
        return former_ids(_names(self.bases), _names(self.heads))

    @cached_property
    def likely(self) -> Mapping[str, str]:
        """Ids of the base by the ones that likely took their place in the head."""
        known = {*self.former, *self.former.values()}
        renames = likely_renames(self.bases, self.heads, self.is_gone)
        return {new: old for new, old in renames.items() if known.isdisjoint((new, old))}

    @property
    def renamed(self) -> Mapping[str, str]:
        """What to say of benchmarks of the base that have, or likely have, another id."""
        former = {old: f"the head has {new}: {PRECISION_LEFT}" for new, old in self.former.items()}
        return former | {old: f"likely renamed to {new}" for new, old in self.likely.items()}

    def _origin(self, name: str) -> str:
        """A hint where the base has the benchmark under another id."""
        if old := self.former.get(name):
            return f", but {old}: {PRECISION_LEFT}; set the baseline anew"
        if old := self.likely.get(name):
            return f"; likely renamed from {old}: {_RENAMED}"
        return ""

    def _beside(self) -> Iterator[tuple[Run, Run]]:
        if self.paired:
            yield from zip(self.bases, self.heads, strict=True)
        else:
            yield from ((base, head) for base in self.bases for head in self.heads[-1:])

    def _alike(
        self, name: str, pairs: list[tuple[Run, Result, Run, Result]]
    ) -> list[tuple[Run, Result, Run, Result]] | Verdict:
        """The comparable ones of the `pairs`: all must be where launches are paired."""
        alike = []
        why, unlike, later = "", 0, 0
        for pair in pairs:
            if found := self.likeness.differences(*pair):
                why, unlike = found, unlike + 1
            else:
                alike.append(pair)
                later += not pair[1].pinned
            if later == WINDOW and not self.paired:
                break
        if not alike or (why and self.paired):
            return Verdict(id=name, kind="incomparable", reason=why)
        if unlike:
            self.unlike.setdefault((unlike, why), []).append(name)
        return alike


def _names(runs: Sequence[Run]) -> dict[str, None]:
    return dict.fromkeys(name for run in runs for name in run.results)


def _removed(
    bases: Sequence[Run], heads: Sequence[Run], renamed: Mapping[str, str]
) -> Iterator[Verdict]:
    there = _names(heads)
    for name in _names(bases):
        outcomes = {run.results[name].outcome for run in bases if name in run.results}
        if name not in there and outcomes & (_BROKEN | {"measured"}):
            reason = "; ".join(filter(None, ["only the base has it", renamed.get(name)]))
            yield Verdict(id=name, kind="removed", reason=reason)


def _told(beside: Iterable[tuple[Run, Run]]) -> tuple[Difference, ...]:
    """The differences of all pairs of runs, each once."""
    found: list[Difference] = []
    for base, head in beside:
        found.extend(one for one in told_differences(base, head) if one not in found)
    return tuple(found)


def _measured(run: Run, name: str) -> bool:
    return name in run.results and run.results[name].outcome == "measured"


def _ending(result: Result) -> str:
    lines = result.reason.strip().splitlines()[:1]
    first = [line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…" for line in lines]
    return ": ".join([result.outcome.replace("_", " "), *first])
