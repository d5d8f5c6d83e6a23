"""Persistent state of a comparison, written after every launch so that it can resume."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

from gpubench_plugin.cli.ab.request import Request
from gpubench_plugin.compare.effective_limits import SIDES, SideName
from gpubench_plugin.core.errors import UsageProblem
from gpubench_plugin.core.format import grouped
from gpubench_plugin.core.records import Run
from gpubench_plugin.core.verdicts import LAST
from gpubench_plugin.environment.fingerprints import change_text, differences, flat
from gpubench_plugin.environment.redaction import redacted_command
from gpubench_plugin.results.reader import RunReader
from gpubench_plugin.results.run_directory import RunDirectory, runs_in
from gpubench_plugin.system import json_files, stored
from gpubench_plugin.system.files import KernelLock

FORMAT: Final = stored.Format(kind="gpubench ab comparison", newest=1)
STATE_FILE: Final = "state.json"
MOST_NAMED: Final = 5
"""Names that a message lists: about a line of a terminal each."""
WARMUP_PAIR: Final = 0
"""Number of the pair that is not judged; the judged ones count from 1."""


@dataclass(frozen=True, kw_only=True)
class LaunchRecord:
    """Record of one finished launch, in a `folder` below the comparison's.

    `problem` is empty if it ended normally, whatever its tests did. `run` is its run directory
    below its folder, empty without benchmarks. `usage_error`: pytest rejected its arguments.
    `attempt` counts those of its pair, which is repeated as a whole where a launch failed.
    `replaced` says why the pair was remeasured although both launches ended normally.
    """

    side: SideName
    seconds: float
    run: str = ""
    problem: str = ""
    usage_error: bool = False
    pair: int = WARMUP_PAIR
    attempt: int = 1
    folder: str = ""
    replaced: str = ""


@dataclass(frozen=True, kw_only=True)
class Look:
    """An interim analysis: the number of `pairs` judged, and those required for "unchanged"."""

    pairs: int
    unchanged_from: int


@dataclass(kw_only=True)
class SavedState:
    """State of the comparison in `folder`, and the fields of its file.

    `request` is stored without secrets, `identity` is what must not change: commits, uncommitted
    changes, Pythons, arguments, by dot key. `seed` decides which side starts. The pairs of `looks`
    are final.
    """

    schema_version: int = FORMAT.newest
    folder: Path = field(default=Path(), metadata={"exclude": True})
    request: Request = field(metadata={"alias": "asked"})
    identity: Mapping[str, Any]
    seed: int
    launches: list[LaunchRecord] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Load the comparison in `folder`.

        Raises:
            UsageProblem: there is none.
            ResultsError: it cannot be read, is malformed, or has another format.
        """
        file = folder / STATE_FILE
        if not file.exists():
            raise UsageProblem(
                f"--resume={folder}: not a `gpubench ab` folder: it has no {STATE_FILE}"
            )
        return replace(stored.restore(cls, FORMAT.load(file), str(file)), folder=folder)

    def write(self) -> None:
        """Write the state atomically; raises ResultsError."""
        arguments = tuple(redacted_command(self.request.arguments))
        redacted = replace(self, request=replace(self.request, arguments=arguments))
        json_files.write_json(self.folder / STATE_FILE, stored.dump(redacted))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the comparison; the lock is released when the process exits, however it does.

        Raises:
            UsageProblem: another process runs it.
            OSError: the folder cannot be opened.
        """
        with KernelLock(self.folder, os.O_RDONLY | os.O_DIRECTORY) as lock:
            try:
                lock.acquire()
            except BlockingIOError:
                raise UsageProblem(
                    f"--resume={self.folder}: another process is running this comparison"
                ) from None
            except OSError:
                pass  # a file system without locks
            yield

    def add(self, launch: LaunchRecord) -> None:
        """Record a finished launch."""
        self.launches.append(launch)
        self.write()

    @property
    def judged_pairs(self) -> int:
        """Number of pairs judged by the last look."""
        return max((look.pairs for look in self.looks), default=0)

    def look(self, pairs: int) -> Look | None:
        """The look recorded after `pairs` pairs, or None."""
        return next((look for look in self.looks if look.pairs == pairs), None)

    def supersede(self, pair: int, cause: str) -> None:
        """Mark the latest attempt at the pair as superseded; it stays in the record."""
        latest = (self.pair_launches(pair) or {}).values()
        self.launches = [
            replace(launch, replaced=cause) if launch in latest else launch
            for launch in self.launches
        ]
        self.write()

    def require_same(self, identity: Mapping[str, Any]) -> None:
        """Refuse to resume with different code, Pythons or arguments.

        Raises:
            UsageProblem: something differs; the message names each key with both values.
        """
        changed = differences(flat(self.identity), flat(identity))
        if changed:
            details = "; ".join(f"{key}: {change_text(pair)}" for key, pair in changed.items())
            raise UsageProblem(
                f"--resume={self.folder}: cannot resume, since the compared code has changed: "
                f"{details}"
            )

    def attempts(self, pair: int) -> int:
        """Number of attempts at that pair."""
        return max((launch.attempt for launch in self.launches if launch.pair == pair), default=0)

    def pair_launches(self, pair: int) -> dict[SideName, LaunchRecord] | None:
        """Both launches of the pair's valid attempt, or None."""
        both = next(reversed(self.all_attempts(pair)), None)
        is_last = both and both["head"].attempt == self.attempts(pair)
        return both if both and is_last and not both["head"].replaced else None

    def complete(self) -> int:
        """Number of complete judged pairs."""
        pairs = {launch.pair for launch in self.launches} - {WARMUP_PAIR}
        return sum(self.pair_launches(pair) is not None for pair in pairs)

    def repeats(self) -> int:
        """Number of pairs remeasured because they were disturbed."""
        return sum(bool(launch.replaced) for launch in self.launches) // len(SIDES)

    def warmup_launches(self) -> dict[SideName, LaunchRecord] | None:
        """Both launches of the first complete warm-up pair, or None.

        Later ones only warm up what was lost meanwhile.
        """
        return next(iter(self.all_attempts(WARMUP_PAIR)), None)

    def all_attempts(self, pair: int) -> list[dict[SideName, LaunchRecord]]:
        """Both launches of each attempt at the pair in which both ended normally."""
        ended = (launch for launch in self.launches if launch.pair == pair and not launch.problem)
        attempts = grouped((launch.attempt, (launch.side, launch)) for launch in ended)
        return [dict(both) for both in attempts.values() if len(both) == len(SIDES)]

    def run_of(self, launch: LaunchRecord, label: str) -> Run:
        """The run of a launch; empty where no benchmark was selected."""
        if not launch.run:
            return Run(label=label)
        directory = RunDirectory(path=self.folder / launch.folder / launch.run)
        return RunReader(directory).run(label)

    def launch_seconds(self) -> dict[SideName, float]:
        """What the last launch of each side took, as far as one has succeeded."""
        return {launch.side: launch.seconds for launch in self.launches if not launch.problem}


def comparisons_in(results_dir: Path) -> dict[str, Path]:
    """Folders of all comparisons below `results_dir` by id, oldest first."""
    files = sorted((results_dir / "ab").glob(f"*/{STATE_FILE}"))
    return {file.parent.name: file.parent for file in files}


def find_comparison(results_dir: Path, text: str, *, cwd: Path) -> Path | None:
    """Folder, relative to `cwd`, of the comparison that `text` names; None if there is none.

    `text` is its folder, its id or the beginning of it; ``last`` if it is later than all runs.

    Raises:
        UsageProblem: several runs and comparisons have ids that begin so.
    """
    comparisons = comparisons_in(results_dir)
    names = sorted([*comparisons, *(run.run_id for run in runs_in(results_dir))])
    if text == LAST:
        folder = comparisons.get(max(names, default=""))
    elif os.path.isfile(cwd / text / STATE_FILE):  # noqa: PTH113 # False for any name
        folder = cwd / text
    else:
        matches = [name for name in names if text and name.startswith(text)]
        if comparisons.keys().isdisjoint(matches):
            return None
        if len(matches) > 1:
            latest = ", ".join(matches[-MOST_NAMED:])
            raise UsageProblem(f"{len(matches)} runs and comparisons start with {text!r}: {latest}")
        folder = comparisons[matches[0]]
    # Relative, so that the commands of an advice are short.
    return folder and Path(os.path.relpath(folder, cwd))
