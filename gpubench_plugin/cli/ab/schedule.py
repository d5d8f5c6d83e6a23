"""Launch schedule: alternating pairs (AB, BA), and rounds fixed after the warm-up pair."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Final

from gpubench_plugin.cli.ab.sides import SIDES, SideName
from gpubench_plugin.config.rounds_file import to_text
from gpubench_plugin.core.errors import ResultsError
from gpubench_plugin.environment import json_files
from gpubench_plugin.results.reader import StoredRun
from gpubench_plugin.results.run_directory import RunDirectory


def freeze(file: Path, base: Path, head: Path) -> None:
    """Write the plans of the run in `base` into `file`, with the larger number of rounds of both.

    Raises:
        ResultsError: a journal cannot be read, or the file not be written.
    """
    try:
        plans, others = (StoredRun(RunDirectory(path=run)).rounds() for run in (base, head))
        plans = {
            node_id: replace(plan, rounds=max(plan.rounds, others[node_id].rounds))
            for node_id, plan in plans.items()
            if node_id in others
        }
    except (KeyError, TypeError) as error:
        raise ResultsError(f"{base} or {head} is malformed: {error!r}") from error
    json_files.write_text(file, to_text(plans))


WARMUP_PAIR: Final = 0
"""The number of the pair that is not judged; the judged ones count from 1."""


def side_order(pair: int, seed: int) -> tuple[SideName, SideName]:
    """Order of sides in a pair: alternating, with a random start from `seed`.

    A slow drift, of the machine's temperature for example, then affects both sides alike.
    """
    first, second = SIDES
    return (first, second) if (pair + seed) % 2 == 0 else (second, first)


def estimate_remaining_s(
    *, pairs_left: int, seconds: Mapping[SideName, Sequence[float]], running: Iterable[SideName]
) -> float | None:
    """Seconds until the last pair ends, assuming later launches take as long as recent ones.

    `pairs_left` have not started, `seconds` are durations of each side's launches in order,
    `running` the unfinished sides of the current pair. None before both sides were launched once.
    """
    latest = {side: fmean(durations[-2:]) for side, durations in seconds.items() if durations}
    if len(latest) < len(SIDES):
        return None
    return pairs_left * sum(latest.values()) + sum(latest[side] for side in running)
