"""Numbers of rounds that are fixed beforehand, so that two measurements take equally many.

A minimum falls with more samples: what is compared must rest on the same number of them. The file
that ``measure.rounds_file`` names holds them by node id::

    {"schema_version": 1, "benchmarks": {"test_a.py::test_step[fp32-ws1]":
        {"rounds": 40, "durations_per_round": 4, "calls_per_duration": 1}}}

A benchmark that it does not name is measured by its rule. Imports no torch.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Final

from gpubench_plugin.environment import stored
from gpubench_plugin.errors import GpubenchError, UsageProblem, not_one_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gpubench_plugin.records import Json, Samples

FORMAT: Final = stored.Format(what="file of rounds", newest=1)

_TOP: Final = ("schema_version", "benchmarks")


@dataclass(frozen=True, kw_only=True)
class FrozenRounds:
    """How often one benchmark is timed, and how; the meanings stand in `Samples`."""

    rounds: int
    durations_per_round: int
    calls_per_duration: int

    @classmethod
    def of(cls, samples: Samples) -> FrozenRounds:
        """The rounds in which `samples` were taken, at least one."""
        timed = samples.timing
        return cls(
            rounds=max(1, samples.rounds),
            durations_per_round=timed.durations_per_round if samples.rounds else timed.durations,
            calls_per_duration=timed.calls_per_duration,
        )


def to_text(rounds: Mapping[str, FrozenRounds]) -> str:
    """The text of a file with the `rounds` by node id."""
    benchmarks = {node_id: asdict(frozen) for node_id, frozen in rounds.items()}
    return json.dumps({"schema_version": FORMAT.newest, "benchmarks": benchmarks}, indent=2) + "\n"


def read(path: Path, label: str) -> dict[str, FrozenRounds]:
    """The rounds by node id in the file `path`; messages begin with `label`.

    Raises:
        UsageProblem: it cannot be read or is no such file; the message names the key.
    """
    data = _parsed(path, label)
    _refuse_other_keys(data, _TOP, f"{label}: {path}")
    benchmarks = data["benchmarks"]
    if not isinstance(benchmarks, dict):
        raise _refused(f"{label}: {path}: benchmarks", benchmarks, "an object by node id")
    return {
        node_id: _frozen(entry, f"{label}: {path}: benchmarks[{node_id!r}]")
        for node_id, entry in benchmarks.items()
    }


def _parsed(path: Path, label: str) -> Json:
    try:
        return FORMAT.load(path)
    except GpubenchError as error:
        raise UsageProblem(f"{label}: {error}") from None
    except ValueError as error:  # a path with a null character
        raise UsageProblem(f"{label}: {path}: cannot be read: {error}") from None


def _frozen(entry: object, where: str) -> FrozenRounds:
    names = tuple(field.name for field in fields(FrozenRounds))
    if not isinstance(entry, dict):
        raise _refused(where, entry, f"an object with {', '.join(names)}")
    _refuse_other_keys(entry, names, where)
    for name in names:
        number = entry[name]
        if isinstance(number, bool) or not isinstance(number, int) or number < 1:
            raise _refused(f"{where}.{name}", number, "a whole number from 1")
    return FrozenRounds(**entry)


def _refuse_other_keys(data: Mapping[str, object], allowed: tuple[str, ...], where: str) -> None:
    for name in data:
        if name not in allowed:
            raise not_one_of(f"{where}: key", name, allowed)
    for name in allowed:
        if name not in data:
            raise UsageProblem(f"{where}: {name} is missing")


def _refused(where: str, value: object, allowed: str) -> UsageProblem:
    shown = json.dumps(value, default=str)
    shown = shown if len(shown) <= 80 else f"{shown[:80]}…"
    return UsageProblem(f"{where}: {shown} is not allowed; allowed: {allowed}")
