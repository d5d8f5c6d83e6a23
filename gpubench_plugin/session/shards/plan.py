"""How the tests of a session are cut into shards: by their durations in earlier runs."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Final, Self

from gpubench_plugin.core.errors import GpubenchError
from gpubench_plugin.core.quality_flags import LAUNCH_BOUND
from gpubench_plugin.core.records import Json
from gpubench_plugin.results.progress import seconds_between
from gpubench_plugin.results.reader import RunReader
from gpubench_plugin.results.run_directory import runs_in

_RUNS: Final = 10
"""Earlier runs that are read; one takes a millisecond for each megabyte of its journal."""
_UNKNOWN_S: Final = 5.0
"""Of a benchmark without history, in a session in which no other has one."""


@dataclass(frozen=True, kw_only=True)
class History:
    """What earlier runs tell of benchmarks, by their ids.

    Durations are with their set-up; `launch_bound` are those for which a GPU waited for Python.
    """

    durations_s: Mapping[str, float]
    launch_bound: Collection[str]

    @classmethod
    def of(cls, results_dir: Path, ids: Collection[str]) -> Self:
        """Of the latest runs below `results_dir` that have the `ids`."""
        known: dict[str, tuple[float, bool]] = {}
        for directory in islice(reversed(runs_in(results_dir)), _RUNS):
            if {*ids} <= known.keys():
                break
            with suppress(GpubenchError):
                known = {**dict(_ended(RunReader(directory).outline)), **known}
        return cls(
            durations_s={i: duration_s for i, (duration_s, _) in known.items()},
            launch_bound={i for i, (_, is_bound) in known.items() if is_bound},
        )


def _ended(lines: Sequence[Json]) -> Iterator[tuple[str, tuple[float, bool]]]:
    begun: dict[str, str] = {}
    for line in lines:
        if line["event"] == "phase":
            begun.setdefault(line["benchmark"], line["time"])
        elif line["event"] == "benchmark" and (start := begun.pop(line["id"], "")):
            yield line["id"], (seconds_between(start, line["time"]), LAUNCH_BOUND in line["flags"])


def cut(ids: Sequence[str], known_s: Mapping[str, float], count: int) -> list[list[str]]:
    """Cut the `ids` into at most `count` parts of about equal duration, each in their order.

    The longest first, each into the part that is the shortest so far. One without history counts
    as the median of the others.
    """
    unknown_s = median(known_s.values()) if known_s else _UNKNOWN_S
    parts: list[list[int]] = [[] for _ in range(min(count, len(ids)))]
    totals = [(0.0, number) for number in range(len(parts))]
    for place in sorted(range(len(ids)), key=lambda n: -known_s.get(ids[n], unknown_s)):
        total_s, number = totals[0]
        parts[number].append(place)
        heapq.heapreplace(totals, (total_s + known_s.get(ids[place], unknown_s), number))
    return [[ids[place] for place in sorted(part)] for part in parts]
