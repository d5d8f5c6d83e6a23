"""The number of rounds of each benchmark, fixed after the first pair for all later launches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from gpubench_plugin.config.rounds_file import FrozenRounds, to_text
from gpubench_plugin.environment import atomic
from gpubench_plugin.errors import ResultsError
from gpubench_plugin.records import Samples
from gpubench_plugin.results import journal
from gpubench_plugin.results.run_directory import RunDirectory


def rounds_of(run: Path) -> dict[str, FrozenRounds]:
    """In how many rounds the run in the folder `run` has timed each of its benchmarks.

    A benchmark whose samples this version cannot read is left out.
    """
    found = {}
    for event in journal.read(RunDirectory(path=run).journal):
        if event["event"] == "benchmark" and event.get("samples"):
            try:
                samples = Samples.from_json(journal.restored(event)["samples"])
                found[event["id"]] = FrozenRounds.of(samples)
            except (KeyError, TypeError, ValueError):
                continue
    return found


def frozen(
    base: Mapping[str, FrozenRounds], head: Mapping[str, FrozenRounds]
) -> dict[str, FrozenRounds]:
    """One plan for both sides: the base's, with the larger number of rounds."""
    return {
        node_id: replace(plan, rounds=max(plan.rounds, head[node_id].rounds))
        for node_id, plan in base.items()
        if node_id in head
    }


def freeze(file: Path, base: Path, head: Path) -> None:
    """Write into `file` what the runs in the folders `base` and `head` took.

    Raises:
        ResultsError: a journal cannot be read, or the file not be written.
    """
    try:
        plans = frozen(rounds_of(base), rounds_of(head))
    except (KeyError, TypeError) as error:
        raise ResultsError(f"{base} or {head} is not as it was written: {error!r}") from error
    atomic.write_text(file, to_text(plans))
