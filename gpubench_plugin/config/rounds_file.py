"""Fixed numbers of rounds: a minimum falls with more of them, so compared runs need as many.

The file named by ``measure.rounds_file`` has them by node id::

    {"schema_version": 1, "benchmarks": {"test_a.py::test_step[fp32]":
        {"rounds": 40, "durations_per_round": 4, "calls_per_duration": 1}}}

Other benchmarks are measured by their stopping rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final

from gpubench_plugin.core.errors import GpubenchError, UsageProblem
from gpubench_plugin.core.records import Json, Samples
from gpubench_plugin.system import json_files, stored

FORMAT: Final = stored.Format(kind="rounds file", newest=1)


@dataclass(frozen=True, kw_only=True)
class FixedRounds:
    """Fixed rounds of one benchmark; fields as in `Samples`."""

    __pydantic_config__: ClassVar[Json] = {"extra": "forbid"}

    rounds: int = field(metadata={"ge": 1})
    durations_per_round: int = field(metadata={"ge": 1})
    calls_per_duration: int = field(metadata={"ge": 1})

    @classmethod
    def of(cls, samples: Samples) -> FixedRounds:
        """Rounds of `samples`, at least one."""
        timing = samples.timing
        return cls(
            rounds=max(1, samples.rounds),
            durations_per_round=timing.durations_per_round if samples.rounds else timing.durations,
            calls_per_duration=timing.calls_per_duration,
        )


@dataclass(frozen=True, kw_only=True)
class RoundsFile:
    """File of rounds by node id."""

    __pydantic_config__: ClassVar[Json] = {"extra": "forbid"}

    schema_version: int
    benchmarks: Mapping[str, FixedRounds]


def to_text(rounds: Mapping[str, FixedRounds]) -> str:
    """Serialize `rounds` by node id."""
    file = RoundsFile(schema_version=FORMAT.newest, benchmarks=rounds)
    return json_files.text(stored.dump(file), indent=2) + "\n"


def read(path: Path, label: str) -> dict[str, FixedRounds]:
    """Read the rounds by node id; messages start with `label`.

    Raises:
        UsageProblem: it cannot be read or is malformed.
    """
    try:
        data = FORMAT.load(path)
        return dict(stored.restore(RoundsFile, data, str(path), strict=True).benchmarks)
    except GpubenchError as error:
        raise UsageProblem(f"{label}: {error}") from None
