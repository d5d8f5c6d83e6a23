"""``ranks/rank-<n>.jsonl``: all that one rank of several has timed, a line for each benchmark.

What the ranks send to rank zero is bounded; this is not. Where a benchmark keeps what the rank did
in one call, there is a line for that, too.
"""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING

from gpubench_plugin.environment import atomic, files, json_text
from gpubench_plugin.results.journal import utc_now

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gpubench_plugin.records import Json, Samples


def append(folder: Path, rank: int, benchmark: str, samples: Samples) -> None:
    """Append the samples of the `benchmark` with that node id to the file of `rank` in `folder`.

    Of several launches, or after a run was resumed, there are several lines; each has its time.

    Raises:
        ResultsError: they could not be written.
    """
    _append(folder, rank, benchmark, {"samples": asdict(samples)})


def append_events(folder: Path, rank: int, benchmark: str, events: Sequence[Json]) -> None:
    """Append the `events` of one call of the `benchmark` to the file of `rank` in `folder`.

    Raises:
        ResultsError: they could not be written.
    """
    _append(folder, rank, benchmark, {"events": list(events)})


def _append(folder: Path, rank: int, benchmark: str, more: Json) -> None:
    path = folder / f"rank-{rank}.jsonl"
    line = json_text.text({"benchmark": benchmark, "time": utc_now(), "rank": rank, **more})
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with os.fdopen(files.open_to_write(path, append=True), "a", encoding="ascii") as file:
            file.write(f"{line}\n")
    except OSError as error:
        raise atomic.not_written(path, error) from error
