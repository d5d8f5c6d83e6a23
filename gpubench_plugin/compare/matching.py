"""Matching of benchmarks between base and head, or the reason for a mismatch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final, TypeAlias, TypedDict, Unpack

from gpubench_plugin.compare.comparability import (
    Comparability,
    is_same_machine,
    names_or_count,
    reported_differences,
    settings_differences,
    work_differences,
)
from gpubench_plugin.compare.effective_limits import LimitResolver, SideName
from gpubench_plugin.compare.launch_values import LaunchValues
from gpubench_plugin.compare.matched_metrics import Sides, metrics_of, removed_metrics, value_of
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.core.format import counted, grouped
from gpubench_plugin.core.quality_flags import UNFINISHED
from gpubench_plugin.core.records import STEP_TIME, Outcome, Result, Run
from gpubench_plugin.core.verdicts import FactDifference, Verdict

# Unpinned earlier runs that are samples, at most, the first ones: twice `launch_values.FEWEST`, as
# some may be incomparable or lack a value.
WINDOW: Final = 20

BROKEN: Final[frozenset[Outcome]] = frozenset(
    {"failed", "misconfigured", "oom", "hang", "crashed", "mismatched_ranks"}
)
_LONGEST: Final = 160  # of a failure's first line, to fit into a table's reason
_Pair: TypeAlias = tuple[Run, Result, Run, Result]


@dataclass(frozen=True, kw_only=True)
class MatchResult:
    """Series to judge, verdicts that need no judge, notes, and `renames`: a message by base id."""

    series: tuple[LaunchValues, ...]
    verdicts: tuple[Verdict, ...]
    environment_differences: tuple[FactDifference, ...]
    notes: tuple[str, ...]
    renames: Mapping[str, str]


class MatchOptions(TypedDict, total=False):
    """What :func:`match` takes besides the runs."""

    limits: Mapping[str, str]
    """By metric, for every benchmark; they override those that base and head state."""
    default_limit: str
    """That of other judged metrics, instead of those that base and head state."""
    limits_from: SideName
    """The side whose limits count where they differ: by default the base."""
    allow_incomparable: bool
    """Compare incomparable results, with a note."""
    allow_doubt: bool
    """Judge numbers in doubt, or too wide, as pairs are judged anyway."""
    exempt: Sequence[str]
    """Prefixes of dot keys of facts or settings under comparison."""
    is_gone: Callable[[str], bool]
    """Whether a benchmark that only the base has no longer exists, so may be renamed."""


def match(
    bases: Sequence[Run], heads: Sequence[Run], *, paired: bool, **options: Unpack[MatchOptions]
) -> MatchResult:
    """Match all benchmarks of the heads and return their series.

    Args:
        bases: the launches of the base in pair order, or earlier runs, oldest first, of which the
            pinned ones and the first :data:`WINDOW` other comparable ones count.
        heads: as many launches of the head, or usually one run.
        paired: the n-th base is compared with the n-th head.
        options: see :class:`MatchOptions`.

    Raises:
        UsageProblem: launches that cannot be paired; a text of `limits` is no limit.
    """
    if paired and len(bases) != len(heads):
        raise UsageProblem(
            f"{counted(len(bases), 'base launch')} but {counted(len(heads), 'head launch')}: "
            "pairs need the same number of each, in the same order"
        )
    limits, side = options.get("limits", {}), options.get("limits_from", "base")
    resolver = LimitResolver(limits, side, options.get("default_limit", ""))
    is_allowed = options.get("allow_incomparable", False)
    comparability = Comparability(exempt=options.get("exempt", ()), allow=is_allowed)
    is_gone = options.get("is_gone") or (lambda _: True)
    matching = _Matching(bases, heads, paired, resolver, comparability, is_gone)
    items = [item for name in _names(heads) for item in matching.benchmark(name)]
    renames = {old: f"likely renamed to {new}" for new, old in matching.likely_renames.items()}
    items.extend(item for item in _removed(bases, heads, renames) if is_gone(item.id))
    pairs = zip(bases, heads, strict=True) if paired else zip(bases[-1:], heads[-1:], strict=False)
    differences = {repr(d): d for base, head in pairs for d in reported_differences(base, head)}
    return MatchResult(
        series=tuple(
            replace(item, is_trusted=paired or options.get("allow_doubt", False))
            for item in items
            if isinstance(item, LaunchValues)
        ),
        verdicts=tuple(item for item in items if isinstance(item, Verdict)),
        environment_differences=tuple(differences.values()),
        notes=(*comparability.notes, *resolver.notes, *matching.excluded_notes, *matching.notes),
        renames=renames,
    )


@dataclass(frozen=True)
class _Matching:
    bases: Sequence[Run]
    heads: Sequence[Run]
    paired: bool
    limits: LimitResolver
    comparability: Comparability
    is_gone: Callable[[str], bool]
    notes: list[str] = field(default_factory=list)
    excluded: dict[tuple[int, str], list[str]] = field(default_factory=dict)

    def benchmark(self, name: str) -> Iterator[LaunchValues | Verdict]:
        """Series or verdicts of one benchmark."""
        heads = [run.results[name] for run in self.heads if name in run.results]
        measured = [r for r in heads if r.outcome == "measured"]
        if broken := [r for r in heads if self._is_broken(r)]:
            share = f" in {len(broken)} of {len(heads)} launches" if len(heads) > 1 else ""
            yield Verdict(id=name, kind="errored", reason=failure_text(broken[0]) + share)
            return
        if not measured:
            yield Verdict(id=name, kind="not_measured", reason=failure_text(heads[-1]))
            return
        pairs = self._pairs(name)
        if isinstance(pairs, Verdict):
            yield pairs
            old = name if pairs.kind == "incomparable" else self.likely_renames.get(name, "")
            head = next(run for run in reversed(self.heads) if name in run.measured)
            # A change can escape a limit by other work or threads, not by another machine.
            bases = [
                run.results[old]
                for run in self.bases
                if old in run.measured and is_same_machine(run, head)
            ]
            sides = Sides(bases=bases, heads=measured, measured=measured, cause=pairs.reason)
            yield from metrics_of(sides, *self.limits.resolve(sides))
            return
        sides = Sides(
            bases=[base for _, base, _, _ in pairs],
            heads=[head for _, _, _, head in pairs] if self.paired else measured,
            measured=measured,
            paired=self.paired,
        )
        limits, *kinds = self.limits.resolve(sides)
        items = list(metrics_of(sides, limits, *kinds))
        for item in items if self.paired else ():
            if isinstance(item, LaunchValues) and len(item.head) < len(pairs):
                statement = f"{item.metric} is judged in {len(item.head)} of {len(pairs)} pairs"
                self.notes.append(f"{name}: {statement}; the other pairs do not have it")
        own_bases = [base for run, base, head, _ in pairs if not (run.foreign or head.foreign)]
        items.extend(removed_metrics(replace(sides, bases=own_bases), limits))
        if not items:  # a measured benchmark must not vanish from the report
            reason = "it has no metrics to judge"
            yield Verdict(id=name, metric=STEP_TIME, kind="not_measured", reason=reason)
        yield from items

    @property
    def excluded_notes(self) -> tuple[str, ...]:
        """One line per kind of earlier runs that are excluded as incomparable."""
        return tuple(
            f"{counted(number, 'earlier run')} {'is' if number == 1 else 'are'} incomparable "
            f"and excluded ({names_or_count(names)}): {cause}"
            for (number, cause), names in self.excluded.items()
        )

    def _is_broken(self, head: Result) -> bool:
        """Whether it failed, or its run crashed before reporting what the base could measure."""
        was_measured = any(head.id in base.measured for base in self.bases)
        return head.outcome in BROKEN or (UNFINISHED in head.flags and was_measured)

    def _pairs(self, name: str) -> list[_Pair] | Verdict:
        """Comparable result pairs, or the verdict explaining why there are none."""
        if not self.bases:
            return Verdict(id=name, kind="no_baseline", reason="there is no run to compare with")
        base_results = [run.results[name] for run in self.bases if name in run.results]
        if not base_results:
            return self._new(name)
        heads = self.heads if self.paired else [*self.heads[-1:]] * len(self.bases)
        pairs = [
            (base, base.results[name], head, head.results[name])
            for base, head in zip(self.bases, heads, strict=True)
            if name in base.measured and name in head.measured
        ]
        if not self.paired:
            pairs.sort(key=lambda pair: not pair[1].pinned)  # the level before later runs
        if not pairs:
            reason = f"the base failed to measure it: {failure_text(base_results[-1])}"
            if any(r.outcome == "measured" for r in base_results):
                reason = "no pair measured it on both sides"
            # In a file of pytest-benchmark nothing fails but what is no number.
            is_wrong = base_results[-1].foreign and base_results[-1].outcome in BROKEN
            return Verdict(id=name, kind="errored" if is_wrong else "no_baseline", reason=reason)
        if self.paired and (dropped := len(self.heads) - len(pairs)):
            dropped_text = f"{dropped} of {len(self.heads)} pairs are excluded"
            self.notes.append(f"{name}: {dropped_text} because one side did not measure it")
        return self._comparable_pairs(name, pairs)

    @cached_property
    def likely_renames(self) -> Mapping[str, str]:
        """Base ids by the head ids that probably replace them."""
        return likely_renames(self.bases, self.heads, self.is_gone)

    def _new(self, name: str) -> Verdict:
        reason = "the base has no such benchmark"
        if old := self.likely_renames.get(name):
            reason += f"; likely renamed from {old}: keep the old name to compare them"
            reason += ", or `gpubench accept` the new one's level" * (not self.paired)
        return Verdict(id=name, kind="new", reason=reason)

    def _comparable_pairs(self, name: str, pairs: list[_Pair]) -> list[_Pair] | Verdict:
        """The comparable `pairs`; if launches are paired, all must be comparable."""
        comparable = []
        cause, mismatches, later_runs = "", 0, 0
        for pair in pairs:
            if difference := self.comparability.differences(*pair):
                cause, mismatches = difference, mismatches + 1
            else:
                comparable.append(pair)
                later_runs += not pair[1].pinned
            if later_runs == WINDOW and not self.paired:
                break
        if not comparable or (cause and self.paired):
            return Verdict(id=name, kind="incomparable", reason=cause)
        if mismatches:
            self.excluded.setdefault((mismatches, cause), []).append(name)
        return comparable


def restricted_to(run: Run, names: Collection[str]) -> Run:
    """`run` with the results of these benchmarks only."""
    return replace(run, results={name: r for name, r in run.results.items() if name in names})


def _names(runs: Sequence[Run]) -> dict[str, None]:
    return dict.fromkeys(name for run in runs for name in run.results)


def _removed(
    bases: Sequence[Run], heads: Sequence[Run], renamed: Mapping[str, str]
) -> Iterator[Verdict]:
    head_ids = _names(heads)
    for name in _names(bases):
        outcomes = {run.results[name].outcome for run in bases if name in run.results}
        if name not in head_ids and outcomes & (BROKEN | {"measured"}):
            reason = "; ".join(filter(None, ["only in the base", renamed.get(name)]))
            yield Verdict(id=name, kind="removed", reason=reason)


def failure_text(result: Result) -> str:
    """Outcome of an unmeasured benchmark and the first line of its reason."""
    lines = result.reason.strip().splitlines()[:1]
    shortened = [line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…" for line in lines]
    return ": ".join([result.outcome.replace("_", " "), *shortened])


# Removed benchmarks of a file, at most: of more several fit each new one, and all pairs take long.
_MOST: Final = 20
# Ratio of step times from which on the code is likely another one.
_MAGNITUDE: Final = 10


def likely_renames(
    bases: Sequence[Run], heads: Sequence[Run], is_gone: Callable[[str], bool] = lambda _: True
) -> Mapping[str, str]:
    """Base ids by the head ids of what are probably the same benchmarks.

    Both were measured, with the same parameters, settings, clock and work per call, and with step
    times of one magnitude, as functions of the same file or of the same name. Ambiguous matches are
    left out. `is_gone` says whether a benchmark that the head did not measure no longer exists.
    """
    gone = (old for old in _only_in(bases, heads) if is_gone(old.id))
    removed = grouped((key, old) for old in gone for key in _keys(old.id))
    matches = {
        (old.id, new.id): None
        for new in _only_in(heads, bases)
        for key in _keys(new.id)
        if len(removed.get(key, ())) <= _MOST
        for old in removed.get(key, ())
        if _is_match(old, new)
    }
    counts = Counter(name for pair in matches for name in pair)
    return {new: old for old, new in matches if counts[old] == counts[new] == 1}


def _only_in(runs: Sequence[Run], others: Sequence[Run]) -> Iterator[Result]:
    """Latest result of each benchmark measured in `runs` and not known to `others`."""
    known = {name for run in others for name in run.results}
    results = {r.id: r for run in runs for r in run.results.values() if r.outcome == "measured"}
    return (r for r in results.values() if r.id not in known)


def _keys(node_id: str) -> tuple[tuple[str, str], tuple[str, str]]:
    """An id's file and its function, each with its parameters."""
    test, _, variant = node_id.partition("[")
    file, _, function = test.partition("::")
    return (file, variant), (function, variant)


def _is_match(old: Result, new: Result) -> bool:
    times = [value_of(r, STEP_TIME) for r in (old, new)]
    known_times = [time for time in times if time is not None and time > 0]
    if len(known_times) == 2 and max(known_times) >= _MAGNITUDE * min(known_times):
        return False
    is_partial = old.foreign or new.foreign
    return not settings_differences(old, new, is_partial=is_partial) and not work_differences(
        old, new
    )
