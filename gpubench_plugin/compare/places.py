"""Places in the user's code of what has become more: graph breaks, recompilations, host reads."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from gpubench_plugin.compare.comparability import names_or_count
from gpubench_plugin.compare.matched_metrics import value_of
from gpubench_plugin.core.records import Result, Run
from gpubench_plugin.core.verdicts import Verdict

_NONE = Result(id="none", outcome="not_measured")


def with_place(verdict: Verdict, bases: Sequence[Run], heads: Sequence[Run]) -> Verdict:
    """The verdict, with the first place of what its metric counts where the head is worse."""
    place = _first_place(verdict.metric, _last(bases, verdict.id), _last(heads, verdict.id))
    if not place or verdict.kind not in {"regressed", "inconclusive"}:
        return verdict
    return replace(verdict, reason=f"{verdict.reason}; first in {place}")


def place_notes(
    bases: Sequence[Run], heads: Sequence[Run], judged: Collection[tuple[str, str]]
) -> Iterator[str]:
    """A line for each count with places that is higher in the head and, by id, not `judged`."""
    ids: dict[str, list[str]] = {}
    for name in heads[-1].measured:
        base, head = _last(bases, name), _last(heads, name)
        for metric in head.places:
            before, now = value_of(base, metric), value_of(head, metric) or 0.0
            if before is not None and now > before and (name, metric) not in judged:
                change = f"{metric} was {before:g}, is {now:g}"
                place = _first_place(metric, base, head)
                ids.setdefault(f"{change}, first in {place}", []).append(name)
    yield from (f"{names_or_count(names)}: {change}" for change, names in ids.items())


def _last(runs: Sequence[Run], name: str) -> Result:
    return next((run.results[name] for run in reversed(runs) if name in run.measured), _NONE)


def _first_place(metric: str, base: Result, head: Result) -> str:
    """The head's first place that the base has not, on whatever line; else its first one."""
    known, *places = (
        {re.sub(r":\d+(?= in )", "", place): place for place in side.places.get(metric, ())}
        for side in (base, head)
    )
    new = [place for key, place in places[0].items() if key not in known]
    return next(iter((*new, *places[0].values())), "")
