"""Confirmation of gate failures by relaunching benchmarks in fresh processes."""

from __future__ import annotations

from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final

from gpubench_plugin.compare.confirmation import RELAUNCHES, alarms, rejudge, withdraw_alarms
from gpubench_plugin.core.errors import GpubenchError
from gpubench_plugin.core.format import counted
from gpubench_plugin.launchers.context import STATE
from gpubench_plugin.results.reader import RunReader
from gpubench_plugin.results.run_directory import RunDirectory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pytest

    from gpubench_plugin.baselines.model import Reference
    from gpubench_plugin.compare.matching import MatchOptions
    from gpubench_plugin.config.rounds_file import FixedRounds
    from gpubench_plugin.core.records import Measurement, Run
    from gpubench_plugin.core.verdicts import Comparison
    from gpubench_plugin.session.recording import SessionRecorder

    Launch = Callable[[Sequence[pytest.Item], Mapping[str, FixedRounds]], Iterable[Measurement]]


# Between the beginnings of two launches: a shared host is slow in phases of half a minute.
_APART_S: Final = 20.0


@dataclass
class Confirmation:
    """Relaunches regressed benchmarks, and judges the median of all launches and each further one.

    Attributes:
        recording: the session's; the further launches are not part of its run.
        launch: measures in fresh processes; None if impossible, for the reason `why_not`.
    """

    recording: SessionRecorder
    launch: Launch | None
    why_not: str = field(default="", kw_only=True)
    _items: dict[str, pytest.Item] = field(default_factory=dict)

    def register(self, items: Iterable[pytest.Item]) -> None:
        """Register items that can be relaunched."""
        self._items = {item.stash[STATE].case.id: item for item in items}

    def confirm(
        self, comparison: Comparison, reference: Reference, head: Run, options: MatchOptions
    ) -> Comparison:
        """Verdicts after confirming or withdrawing the alarms of `comparison`."""
        if self.launch is None:
            return self.withdraw(comparison, self.why_not)
        items = [self._items[node_id] for node_id in alarms(comparison)]
        try:
            runs, failures = self._relaunch(self.launch, items)
        except (GpubenchError, OSError) as error:
            return self.withdraw(comparison, str(error))
        remaining = self.withdraw(comparison, failures)
        return rejudge(remaining, reference.runs, head, runs, adopted=self._adopted, **options)

    def withdraw(self, comparison: Comparison, cause: str | Mapping[str, str]) -> Comparison:
        """The comparison with the `cause` why alarms were not relaunched, or that of each id."""
        reason = f"not relaunched: {cause}" if isinstance(cause, str) else cause
        return withdraw_alarms(comparison, reason, adopted=self._adopted)

    @property
    def _adopted(self) -> set[str]:
        return {name for name, item in self._items.items() if item.stash[STATE].case.adopted}

    def _relaunch(
        self, launch: Launch, items: Sequence[pytest.Item]
    ) -> tuple[list[Run], dict[str, str]]:
        """Runs of the further launches, and reasons for missing numbers."""
        rounds = RunReader(RunDirectory(path=self.recording.path)).rounds()
        runs: list[Run] = []
        failures: dict[str, str] = {}
        begin_s = monotonic()
        for number in range(1, RELAUNCHES + 1):
            remaining_items = [item for item in items if item.stash[STATE].case.id not in failures]
            measurements = []
            if remaining_items:
                label = counted(len(remaining_items), "benchmark")
                label += f" every {_APART_S:.0f} s" if number > 1 else ""
                self.recording.show(f"relaunching {label}: {number} of {RELAUNCHES}")
                sleep(max(0.0, begin_s - monotonic()))
                begin_s = monotonic() + _APART_S
                measurements = list(launch(remaining_items, rounds))
            measured = [m for m in measurements if m.outcome == "measured"]
            failures |= {m.id: _failure(m) for m in measurements if m.outcome != "measured"}
            runs.append(self.recording.run_of(measured))
        return runs, failures


def _failure(measurement: Measurement) -> str:
    """One-line reason why there is no further number."""
    first_line = next(iter(measurement.reason.splitlines()), "")
    detail = f" ({first_line})" if first_line else ""
    return f"relaunched, but without a result: {measurement.outcome.replace('_', ' ')}{detail}"
