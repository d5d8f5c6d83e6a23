"""What a comparison has done so far, on disk after every launch, so that it can go on."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

from gpubench_plugin.cli.ab.schedule import REHEARSAL
from gpubench_plugin.cli.ab.sides import SIDES, SideName
from gpubench_plugin.compare import LOOK
from gpubench_plugin.environment import KernelLock, described, differences, flat, json_files, stored
from gpubench_plugin.errors import ResultsError, UsageProblem
from gpubench_plugin.records import Run
from gpubench_plugin.results import RunDirectory, StoredRun

FORMAT: Final = stored.Format(what="comparison of gpubench ab", newest=1)
STATE: Final = "state.json"


@dataclass(frozen=True, kw_only=True)
class Done:
    """One launch that has ended.

    `attempt` counts the tries of its pair, which is repeated as a whole where one of its launches
    failed. `folder` is the launch's own, below the comparison's; `run` its run directory, below
    that, empty where no benchmark was selected. `replaced` says why the pair was measured again
    though both of its launches ended in order: then another attempt counts.
    """

    pair: int
    attempt: int
    side: SideName
    folder: str
    run: str = ""
    seconds: float
    problem: str = ""
    replaced: str = ""


@dataclass(frozen=True, kw_only=True)
class Look:
    """One look that was taken, after so many `pairs`, and from how many on called unchanged."""

    pairs: int
    unchanged_from: int


@dataclass(frozen=True, kw_only=True)
class _StateFile:
    schema_version: int
    asked: Mapping[str, Any]
    identity: Mapping[str, Any]
    seed: int
    launches: tuple[Done, ...]
    looks: tuple[Look, ...] | None = None


@dataclass(kw_only=True)
class State:
    """A comparison in `folder`.

    `asked` is the command line by option, `identity` what must stay as it was: commits, changes,
    Pythons, arguments, by dot key. `seed` says which side begins. The pairs of `looks` that were
    taken stay as they are. `files` is not written down: of a comparison that begins now it tells
    each side's files from others, by name; it is empty of one that goes on.
    """

    folder: Path
    asked: Mapping[str, Any]
    identity: Mapping[str, Any]
    seed: int
    done: list[Done] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    files: Mapping[SideName, Mapping[str, bytes]] = field(default_factory=dict, compare=False)

    @classmethod
    def read(cls, folder: Path) -> Self:
        """The comparison in `folder`.

        Raises:
            UsageProblem: there is none, it is of a newer version, or not as it was written.
            ResultsError: the operating system does not let it be read.
        """
        file = folder / STATE
        if not os.path.lexists(file):
            raise UsageProblem(
                f"--resume={folder}: no comparison of `gpubench ab` there: it has no {STATE}"
            )
        recorded = stored.restored(_StateFile, FORMAT.load(file), str(file))
        state = cls(
            folder=folder,
            asked=recorded.asked,
            identity=recorded.identity,
            seed=recorded.seed,
            done=[*recorded.launches],
            looks=[*(recorded.looks or ())],
        )
        if recorded.looks is None:
            state.looks = state._past_looks()
        return state

    def write(self) -> None:
        """Write it down, whole or not at all; raises ResultsError."""
        file = _StateFile(
            schema_version=FORMAT.newest,
            asked=self.asked,
            identity=self.identity,
            seed=self.seed,
            launches=tuple(self.done),
            looks=tuple(self.looks),
        )
        json_files.write_json(self.folder / STATE, stored.dumped(file))

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the comparison alone; the lock goes with the process, however that ends.

        Raises:
            UsageProblem: another process goes on with it.
            ResultsError: the folder cannot be opened.
        """
        try:
            lock = KernelLock(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise ResultsError(f"{self.folder} cannot be opened: {error.strerror}") from error
        with lock:
            try:
                lock.take()
            except BlockingIOError:
                raise UsageProblem(
                    f"--resume={self.folder}: another process is measuring it now"
                ) from None
            except OSError:
                pass  # a file system without locks: as much as it offers
            yield

    def add(self, launch: Done) -> None:
        """Note a launch that has ended."""
        self.done.append(launch)
        self.write()

    def ask(self, asked: Mapping[str, Any]) -> None:
        """Note what is asked for from now on."""
        if asked != self.asked:
            self.asked = asked
            self.write()

    @property
    def looked(self) -> int:
        """How many pairs the last look has judged."""
        return max((look.pairs for look in self.looks), default=0)

    def look(self, pairs: int) -> Look | None:
        """The look after so many pairs, if it was taken."""
        return next((look for look in self.looks if look.pairs == pairs), None)

    def add_look(self, look: Look) -> None:
        """Note a look that was taken."""
        self.looks.append(look)
        self.write()

    def mark_replaced(self, pair: int, why: str) -> None:
        """Let the latest attempt at the pair count no more; it stays in the record."""
        last = self.attempts(pair)
        self.done = [
            replace(one, replaced=why) if (one.pair, one.attempt) == (pair, last) else one
            for one in self.done
        ]
        self.write()

    def require_same(self, identity: Mapping[str, Any]) -> None:
        """Refuse to go on with other code, Pythons or arguments.

        Raises:
            UsageProblem: something differs; the message names each key with both values.
        """
        changed = differences(flat(self.identity), flat(identity))
        if changed:
            said = "; ".join(f"{key}: {described(pair)}" for key, pair in changed.items())
            raise UsageProblem(
                f"--resume={self.folder}: it cannot go on, since what it compares has changed: "
                f"{said}"
            )

    def attempts(self, pair: int) -> int:
        """How many times that pair was begun."""
        return max((launch.attempt for launch in self.done if launch.pair == pair), default=0)

    def complete(self, pair: int) -> dict[SideName, Done] | None:
        """Both launches of the pair, of the attempt that counts, or None."""
        both = self.both(pair, self.attempts(pair))
        return None if both is None or both["head"].replaced else both

    def ended(self) -> int:
        """How many of the pairs that are judged are complete."""
        pairs = {launch.pair for launch in self.done} - {REHEARSAL}
        return sum(self.complete(pair) is not None for pair in pairs)

    def repeats(self) -> int:
        """How many pairs were measured again because they were disturbed."""
        return sum(bool(launch.replaced) for launch in self.done) // len(SIDES)

    def rehearsal(self) -> dict[SideName, Done] | None:
        """Both launches of the first rehearsal that was complete, or None.

        Later ones only warm up what was lost meanwhile.
        """
        attempts = range(1, self.attempts(REHEARSAL) + 1)
        return next(filter(None, (self.both(REHEARSAL, one) for one in attempts)), None)

    def both(self, pair: int, attempt: int) -> dict[SideName, Done] | None:
        """Both launches of an attempt at the pair if both ended in order, else None."""
        both = {
            launch.side: launch
            for launch in self.done
            if (launch.pair, launch.attempt) == (pair, attempt) and not launch.problem
        }
        return both if len(both) == len(SIDES) else None

    def run_of(self, launch: Done, label: str) -> Run:
        """What a launch measured; nothing where no benchmark was selected."""
        if not launch.run:
            return Run(label=label)
        directory = RunDirectory(path=self.folder / launch.folder / launch.run)
        return StoredRun(directory).run(label)

    def seconds(self) -> dict[SideName, list[float]]:
        """How long the launches of each side took that ended in order."""
        return {
            side: [d.seconds for d in self.done if d.side == side and not d.problem]
            for side in SIDES
        }

    def _past_looks(self) -> list[Look]:
        """Those of an earlier version, which noted none: after five pairs each, of any verdict."""
        pairs = max((launch.pair for launch in self.done), default=0)
        ends = range(LOOK, pairs + 1, LOOK)
        return [Look(pairs=end, unchanged_from=LOOK) for end in ends if self.complete(end)]
