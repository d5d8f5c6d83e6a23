"""Further launches, in fresh processes, of benchmarks for which the gate would fail."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gpubench_plugin.compare import AGAIN, alarms, confirmed, unconfirmed
from gpubench_plugin.environment import counted
from gpubench_plugin.errors import GpubenchError
from gpubench_plugin.launchers import case_on_ranks
from gpubench_plugin.results import RunDirectory, StoredRun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    import pytest

    from gpubench_plugin.compare import Options
    from gpubench_plugin.compare.baselines import Reference
    from gpubench_plugin.config import FrozenRounds
    from gpubench_plugin.records import Comparison, Measurement, Run
    from gpubench_plugin.session.recording import Recording

    Launch = Callable[[Sequence[pytest.Item], Mapping[str, FrozenRounds]], Iterable[Measurement]]


class Confirmation:
    """Launches what a history calls regressed again, and judges the median of all launches.

    Args:
        recording: knows what was measured; the further launches are no part of its run.
        launch: measures benchmarks in fresh processes; None where nobody can, as `why_not` says.
    """

    def __init__(self, recording: Recording, launch: Launch | None, *, why_not: str = ""):
        self._recording = recording
        self._launch = launch
        self._why_not = why_not
        self._items: dict[str, pytest.Item] = {}

    def know(self, items: Iterable[pytest.Item]) -> None:
        """Take note of the benchmarks that can be launched again."""
        self._items = {item.nodeid: item for item in items if case_on_ranks(item) is not None}

    def of(
        self, comparison: Comparison, reference: Reference, head: Run, options: Options
    ) -> Comparison:
        """The verdicts once the alarms among them are confirmed, or are not.

        `options` are those that the `comparison` of `reference` and `head` was made with.
        """
        if self._launch is None:
            return unconfirmed(comparison, not_launched(self._why_not))
        names = alarms(comparison)
        foreign = {name: _FOREIGN for name in names if name not in self._items}
        items = [self._items[name] for name in names if name not in foreign]
        try:
            runs, failures = self._launched(self._launch, items)
        except (GpubenchError, OSError) as error:
            return unconfirmed(comparison, not_launched(str(error)))
        stand = unconfirmed(comparison, foreign | failures)
        return confirmed(stand, reference.runs, head, runs, **options)

    def _launched(
        self, launch: Launch, items: Sequence[pytest.Item]
    ) -> tuple[list[Run], dict[str, str]]:
        """What the further launches have measured, and why some benchmarks have no number."""
        rounds = StoredRun(RunDirectory(path=self._recording.path)).rounds()
        runs: list[Run] = []
        failures: dict[str, str] = {}
        for number in range(1, AGAIN + 1):
            left = [item for item in items if item.nodeid not in failures]
            what = counted(len(left), "benchmark")
            self._recording.show(f"launching {what} again: {number} of {AGAIN}")
            measurements = list(launch(left, rounds)) if left else []
            measured = [one for one in measurements if one.outcome == "measured"]
            failures |= {one.id: _failure(one) for one in measurements if one.outcome != "measured"}
            runs.append(self._recording.run_of(measured))
        return runs, failures


def not_launched(why: str) -> str:
    """What ends the reason of an alarm that no further launch is about."""
    return f"not launched again: {why}"


_FOREIGN: Final = not_launched("pytest-benchmark measures it in this process alone")


def _failure(measurement: Measurement) -> str:
    """That there is no second number, and why, in one line."""
    first = next(iter(measurement.reason.splitlines()), "")
    detail = f" ({first})" if first else ""
    return f"launched again, it gave no number: {measurement.outcome.replace('_', ' ')}{detail}"
