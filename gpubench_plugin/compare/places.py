"""Places in the user's code of what has become more: graph breaks, recompilations, host reads."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from gpubench_plugin.compare.comparability import names_or_count
from gpubench_plugin.compare.matched_metrics import value_of
from gpubench_plugin.core.records import Result, Run
from gpubench_plugin.core.verdicts import Verdict

# Lines, and the values of what has changed, which depend on the number of calls before.
_NUMBERS: Final = re.compile(r":\d+(?= in )|(?<= == )-?[\d.]+|(?<=(?:ected|ctual) )\d+")
_NONE: Final = Result(id="none", outcome="not_measured")


def with_place(verdict: Verdict, bases: Sequence[Run], heads: Sequence[Run]) -> Verdict:
    """The verdict, with the first place of what its metric counts where the head is worse."""
    is_worse = verdict.kind in {"regressed", "inconclusive"}
    place = _first_place(verdict.metric, _last(bases, verdict.id), _last(heads, verdict.id))
    reason = f"{verdict.reason}; first in {place}"
    return replace(verdict, reason=reason) if place and is_worse else verdict


def place_notes(
    bases: Sequence[Run], heads: Sequence[Run], verdicts: Iterable[Verdict]
) -> Iterator[str]:
    """A line for each count with places that is higher in the head and, by id, has no verdict."""
    judged = {(verdict.id, verdict.metric) for verdict in verdicts}
    ids: dict[str, list[str]] = {}
    for name in heads[-1].results:
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
    known = {_NUMBERS.sub("", place) for place in base.places.get(metric, ())}
    places = head.places.get(metric, ())
    return next(
        filter(lambda place: _NUMBERS.sub("", place) not in known, places), [*places, ""][0]
    )
