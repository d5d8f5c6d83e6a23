"""Which results of a baseline's runs are samples: the first so many from a benchmark's anchor on.

Those of pinned and accepted runs are the level that is judged by; later ones tell the noise. The
window does not slide: its level is what somebody has vouched for.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from gpubench_plugin.compare.matching import WINDOW

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import TypeAlias

    from gpubench_plugin.runs import Result, Run

    _Place: TypeAlias = tuple[str, str, str, str]  # benchmark, machine, clock, settings


@dataclass(frozen=True, kw_only=True)
class Window:
    """Takes runs, the anchors first and the others oldest first, and keeps what is a sample.

    Args:
        anchors: the run id from which on a benchmark is sampled, by node id; a benchmark that is
            not named is sampled from `since` on.
        since: a run id.
        head: the run to be judged, or None; its fingerprints tell when there are enough samples.
    """

    anchors: Mapping[str, str]
    since: str
    head: Run | None = None
    _later: Counter[_Place] = field(default_factory=Counter)

    def take(
        self,
        run: Run,
        *,
        pinned: bool = False,
        only: Collection[str] | None = None,
        but: Collection[str] = (),
    ) -> Run:
        """`run` with those of its results that are samples; of `only` these, and none of `but`.

        Of a `pinned` run a benchmark that was not measured stays: it tells what once was there.
        """
        kept = {}
        machine = _text(run.machine)
        for name, result in run.results.items():
            if name in but or (only is not None and name not in only):
                continue
            place = _place(machine, result)
            level = self._is_level(name, run, pinned=pinned)
            if not self._is_after_anchor(name, run, pinned=pinned) or (
                self._later[place] >= WINDOW and not level
            ):
                continue
            if result.outcome == "measured":
                self._later[place] += not level
                kept[name] = replace(result, pinned=level)
            elif pinned:
                kept[name] = result
        return replace(run, results=kept)

    def _is_level(self, name: str, run: Run, *, pinned: bool) -> bool:
        """Whether the run is what the benchmark's level was set by: accepted, else pinned."""
        anchor = self.anchors.get(name)
        return pinned if anchor is None else run.run_id == anchor

    def full(self, benchmarks: Collection[str]) -> bool:
        """Whether no further run can add a sample that the head's `benchmarks` are judged by."""
        if self.head is None:
            return False
        machine = _text(self.head.machine)
        places = [
            _place(machine, self.head.results[name])
            for name in benchmarks
            if name in self.head.results
        ]
        return all(self._later[place] >= WINDOW for place in places)

    def _is_after_anchor(self, name: str, run: Run, *, pinned: bool) -> bool:
        anchor = self.anchors.get(name)
        if anchor is None:
            return pinned or run.run_id >= self.since
        return run.run_id >= anchor


def _place(machine: str, result: Result) -> _Place:
    return result.id, machine, result.timer, _text(result.settings)


def _text(facts: Mapping[str, Any]) -> str:
    """Equal for equal facts: what a fingerprint is made of, without its hash."""
    return json.dumps(dict(facts), sort_keys=True, default=str) if facts else ""
