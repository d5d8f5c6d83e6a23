"""The course of a comparison: the rehearsal, then pairs of launches until all is decided."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Final

from gpubench_plugin.cli.ab.disturbance import (
    Attempt,
    disturbance_notes,
    is_disturbed,
    may_hide,
    raised_flags,
    to_repeat,
)
from gpubench_plugin.cli.ab.findings import Findings
from gpubench_plugin.cli.ab.launch import Launched, Launcher, Order
from gpubench_plugin.cli.ab.preflight import Offers, imported, require_own_code
from gpubench_plugin.cli.ab.progress import Progress, Turn
from gpubench_plugin.cli.ab.request import Asked, time_text
from gpubench_plugin.cli.ab.schedule import REHEARSAL, freeze, longest_left, order
from gpubench_plugin.cli.ab.sides import SIDES, Side, SideName, Source
from gpubench_plugin.cli.ab.state import Done, Look, State
from gpubench_plugin.compare import LOOK
from gpubench_plugin.environment import counted, json_files
from gpubench_plugin.errors import ResultsError, UsageProblem
from gpubench_plugin.records import Run
from gpubench_plugin.results import RunDirectory, StoredRun

_REHEARSAL_S: Final = 3600.0
_LAUNCHES_AT_MOST: Final = 10.0
"""A launch may take so many times as long as its side's rehearsal,"""
_HANG_S: Final = 660.0
"""and then the time after which pytest itself ends a benchmark that hangs (600 s by default)."""
_FAILURES: Final = 2
"""Launches that fail in a row end the comparison."""


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A side with what it is, where it is, and what its gpubench offers."""

    source: Source
    side: Side
    offers: Offers


class Trial:
    """Launches both sides in turns, and notes in `state` what has ended.

    Pairs that `state` has complete are not launched again. `repository` is the top of the working
    tree that a side was taken from, if one was; `now` is the clock by which the time that was given
    runs out: it does not count what the machine sleeps.
    """

    def __init__(
        self,
        state: State,
        asked: Asked,
        contenders: Mapping[SideName, Contender],
        *,
        repository: Path | None,
        launcher: Launcher,
        progress: Progress,
        now: Callable[[], float] = monotonic,
    ):
        self._state = state
        self._asked = asked
        self._contenders = contenders
        self._repository = repository
        self._launcher = launcher
        self._progress = progress
        self._files = state.files or {n: one.source.files() for n, one in contenders.items()}
        self._now = now
        self._end_s = math.inf if asked.time_s is None else now() + asked.time_s
        self._read: dict[str, Run] = {}
        self._warm = False
        self._failed = 0
        self._rounds: Path | None = None

    def run(self) -> Findings:
        """Go on until every benchmark is decided, the last pair has ended, or the time is over.

        Raises:
            UsageProblem: pytest did not take its arguments, both sides ran the same code, a tree
                changed meanwhile, or a launch has recorded another commit than its side's.
            NothingComparable: no benchmark was selected.
            ResultsError: two launches in a row failed, or a file could not be written.
        """
        self._require_unchanged()
        findings = self._rehearsed()
        last = max(self._asked.last_pair, self._state.looked)
        for pairs in range(LOOK, last + 1, LOOK):
            if not findings.open:
                break
            if not self._measured(pairs, findings):
                self._end(pairs, findings)
                break
            self._look(pairs, findings)
        return findings

    def _rehearsed(self) -> Findings:
        """What the first rehearsal finds; its rounds are those of all later launches."""
        base, head = self._runs(self._state.rehearsal() or self._rehearse(None))
        findings = Findings(base, head, **self._asked.judging)
        self._freeze(base, head)
        return findings

    def _rehearse(self, findings: Findings | None) -> Mapping[SideName, Done]:
        """Launch both sides as in a pair that is not judged: byte code and caches are of one go.

        Without it the first judged launch would compile all modules.
        """
        self._warm = True
        return self._launch_both(REHEARSAL, findings)

    def _measured(self, pairs: int, findings: Findings) -> bool:
        """Whether there are so many pairs, disturbed ones measured again, before time is over."""
        for pair in range(pairs - LOOK + 1, pairs + 1):
            if self._state.complete(pair) is None and not self._may_begin(pair, pairs):
                return False
            self._pair(pair, findings)
        while self._now() < self._end_s and (disturbed := self._to_repeat(pairs, findings)):
            self._repeat(disturbed, findings)
        return True

    def _may_begin(self, pair: int, pairs: int) -> bool:
        """Whether there is time for the pair; at the first ones of a look, for all up to it.

        The first look is always taken.
        """
        if pairs == LOOK:
            return True
        needed = 0.0
        if pair == pairs - LOOK + 1:
            seconds = self._state.seconds()
            needed = longest_left(pairs_left=LOOK, seconds=seconds, running=()) or 0.0
        return self._end_s - self._now() > needed

    def _to_repeat(self, pairs: int, findings: Findings) -> int | None:
        if self._state.look(pairs) is not None:
            return None
        return to_repeat(self._attempts(pairs, findings.open), looked=pairs - LOOK)

    def _repeat(self, pair: int, findings: Findings) -> None:
        """Measure both sides of a disturbed pair again; its first launches stay in the record."""
        both = zip(SIDES, self._runs(self._pair(pair, findings)), strict=True)
        flags = {side: raised_flags(run, findings.open) for side, run in both}
        why = "; ".join(f"{side}: {', '.join(names)}" for side, names in flags.items() if names)
        self._state.mark_replaced(pair, why)
        self._progress.say(f"pair {pair} was disturbed ({why}): it is measured again")
        self._pair(pair, findings)

    def _look(self, pairs: int, findings: Findings) -> None:
        """Judge what is open by so many pairs; a look that was taken before is taken alike."""
        look = self._state.look(pairs)
        if look is None:
            look = Look(pairs=pairs, unchanged_from=self._unchanged_from(pairs, findings))
            self._state.add_look(look)
        both = [self._runs(self._pair(pair, findings)) for pair in range(1, pairs + 1)]
        bases, heads = zip(*both, strict=True)
        findings.look(bases, heads, unchanged_from=look.unchanged_from)
        self._progress.say(
            f"{pairs} pairs: {findings.decided} of {findings.suite} decided"
            + (f", {counted(len(findings.open), 'benchmark')} not yet" if findings.open else "")
        )

    def _unchanged_from(self, pairs: int, findings: Findings) -> int:
        """From how many pairs on things are called unchanged: later where a slow one may be gone.

        Five more pairs show a slow launch of a head that has them in a fifth about as surely as
        that pair would have (``docs/evidence/repeats.md``).
        """
        later = LOOK if may_hide(self._attempts(pairs, findings.open)) else 0
        return self._asked.unchanged_from + later

    def _end(self, pairs: int, findings: Findings) -> None:
        """Say that there is no time for the look after so many pairs."""
        new = range(pairs - LOOK + 1, pairs + 1)
        waiting = sum(self._state.complete(pair) is not None for pair in new)
        budget = time_text(self._asked.time_s or 0)
        why = f"--time={budget} left no time for the look at {pairs} pairs"
        why += f", for which {waiting} wait" * (waiting > 0)
        findings.end(why)
        self._progress.say(why)

    def disturbance_notes(self) -> list[str]:
        """How many of the judged launches were disturbed, and what to do about it."""
        pairs = sorted({done.pair for done in self._state.done} - {REHEARSAL})
        tries = [runs for pair in pairs for runs in self._tries(pair)]
        launches = {side: [runs[at] for runs in tries] for at, side in enumerate(SIDES)}
        return list(disturbance_notes(launches, self._attempts(max(pairs, default=0))))

    def _attempts(self, pairs: int, ids: Collection[str] | None = None) -> list[Attempt]:
        """All tries of so many pairs by the benchmarks `ids`, or by all that ran."""
        return [
            Attempt(
                pair=pair,
                base=is_disturbed(base, base.results if ids is None else ids),
                head=is_disturbed(head, head.results if ids is None else ids),
            )
            for pair in range(1, pairs + 1)
            for base, head in self._tries(pair)
        ]

    def _tries(self, pair: int) -> Iterator[tuple[Run, Run]]:
        for attempt in range(1, self._state.attempts(pair) + 1):
            if both := self._state.both(pair, attempt):
                yield self._runs(both)

    def locations(self) -> dict[str, tuple[str, int]]:
        """File and line of every benchmark of the head, by node id."""
        done = (self._state.rehearsal() or {}).get("head")
        if done is None:
            return {}
        report = self._state.folder / done.folder / "report"
        return dict(imported(report, self._contenders["head"].side).tests)

    @property
    def freezes_rounds(self) -> bool:
        """Whether the gpubench of both sides can be told how many rounds to take."""
        return all(one.offers.freezes_rounds for one in self._contenders.values())

    def _pair(self, pair: int, findings: Findings) -> Mapping[SideName, Done]:
        """Both launches of a pair, after a rehearsal: half a pair is repeated as a whole."""
        complete = self._state.complete(pair)
        if complete is not None:
            return complete
        if not self._warm:
            self._rehearse(findings)
        return self._launch_both(pair, findings)

    def _launch_both(self, pair: int, findings: Findings | None) -> Mapping[SideName, Done]:
        """Launch both sides, one after the other, until both end in order."""
        while True:
            attempt = self._state.attempts(pair) + 1
            sides = order(pair, self._state.seed)
            for number, side in enumerate(sides):
                self._announce(pair, attempt, sides[number:], findings)
                if self._launch(pair, attempt, side, findings).problem:
                    break
            if both := self._state.both(pair, attempt):
                return both

    def _announce(
        self, pair: int, attempt: int, running: tuple[SideName, ...], findings: Findings | None
    ) -> None:
        last, repeats, ended = self._asked.last_pair, self._state.repeats(), self._state.ended()
        begun = repeats + ended + (pair != REHEARSAL)
        left = last - ended - (pair != REHEARSAL)
        needed = last if findings is None else findings.pairs_needed or last
        self._progress.launch(
            Turn(
                pair=pair,
                pairs=last,
                side=running[0],
                launch=len(SIDES) * (begun + 1) - len(running) + 1,
                launches=len(SIDES) * (last + repeats + 1),
                again=attempt > 1,
                benchmarks=None if findings is None else len(findings.open),
                left_s=self._left_s(left, running),
                likely_s=self._left_s(max(left - last + needed, 0), running)
                if needed < last
                else None,
            )
        )

    def _left_s(self, pairs_left: int, running: tuple[SideName, ...]) -> float | None:
        """Seconds until so many more pairs have ended, or the pair in which time is over."""
        seconds = self._state.seconds()
        longest = longest_left(pairs_left=pairs_left, seconds=seconds, running=running)
        pair = longest_left(pairs_left=1, seconds=seconds, running=())
        if longest is None or pair is None:
            return None
        return min(longest, max(self._end_s - self._now(), 0) + pair)

    def _launch(self, pair: int, attempt: int, side: SideName, findings: Findings | None) -> Done:
        name = f"launches/{self._next_number():03}-{side}"
        folder = self._state.folder / name
        contender = self._contenders[side]
        launched = self._launcher.launch(
            Order(
                side=contender.side,
                folder=folder,
                offers=contender.offers,
                leave_out=None if findings is None else self._left_out(findings),
                rounds=self._rounds,
                timeout_s=self._timeout_s(pair, side),
            )
        )
        if not launched.problem:
            self._require_own_code(side, folder)
            self._require_own_commit(side, folder, launched.run)
            self._require_unchanged()
        done = Done(
            pair=pair,
            attempt=attempt,
            side=side,
            folder=name,
            run="" if launched.run is None else str(launched.run.relative_to(folder)),
            seconds=launched.seconds,
            problem=launched.problem,
        )
        self._state.add(done)
        self._note_failure(side, launched, folder)
        return done

    def _next_number(self) -> int:
        """One more than any launch has, also one whose end was not noted."""
        there = (self._state.folder / "launches").glob("[0-9]*-*")
        return 1 + max((int(path.name.partition("-")[0]) for path in there), default=0)

    def _note_failure(self, side: SideName, launched: Launched, folder: Path) -> None:
        if not launched.problem:
            self._failed = 0
            return
        self._failed += 1
        self._progress.say(f"a launch of the {side} {launched.problem}:", launched.last_lines)
        output = folder / "output.txt"
        if launched.refused:
            raise UsageProblem(
                f"pytest did not take its arguments on the {side}: "
                f"{_said(launched.last_lines)} (all of it: {output})"
            )
        if self._failed >= _FAILURES:
            raise ResultsError(
                f"{self._failed} launches in a row failed, the last one of the {side}, which "
                f"{launched.problem} (its output: {output}); what was measured is kept, go on "
                f"with --resume={self._state.folder}; with --isolate, one benchmark that crashes "
                "costs no other"
            )

    def _timeout_s(self, pair: int, side: SideName) -> float:
        if self._asked.launch_timeout_s is not None:
            return self._asked.launch_timeout_s
        rehearsal = self._state.rehearsal()
        if pair == REHEARSAL or rehearsal is None:
            return _REHEARSAL_S
        return rehearsal[side].seconds * _LAUNCHES_AT_MOST + _HANG_S

    def _left_out(self, findings: Findings) -> Path:
        file = self._state.folder / "left-out.json"
        json_files.write_text(file, json.dumps(findings.left_out))
        return file

    def _freeze(self, base: Run, head: Run) -> None:
        if self.freezes_rounds and base.path is not None and head.path is not None:
            self._rounds = self._state.folder / "rounds.json"
            freeze(self._rounds, base.path, head.path)

    def _runs(self, pair: Mapping[SideName, Done]) -> tuple[Run, Run]:
        base, head = (self._run(pair[side]) for side in SIDES)
        return base, head

    def _run(self, done: Done) -> Run:
        if done.folder not in self._read:
            label = self._contenders[done.side].source.label
            self._read[done.folder] = self._state.run_of(done, label)
        return self._read[done.folder]

    def _require_own_code(self, side: SideName, folder: Path) -> None:
        (other,) = (self._contenders[name].side for name in SIDES if name != side)
        mine = self._contenders[side].side
        modules = imported(folder / "report", mine).modules
        require_own_code(mine, other, modules, self._repository)

    def _require_own_commit(self, side: SideName, folder: Path, run: Path | None) -> None:
        """Refuse a launch of a commit that has recorded another one.

        Uncommitted changes are the benchmarks' own doing, or that of git's filters.
        """
        contender = self._contenders[side]
        tree, commit = contender.side.tree.resolve(), contender.source.commit
        rootdirs = imported(folder / "report", contender.side).rootdirs
        of_tree = bool(rootdirs) and all(rootdir.is_relative_to(tree) for rootdir in rootdirs)
        if commit is None or run is None or not of_tree:
            return
        recorded = StoredRun(RunDirectory(path=run)).run()
        if recorded.commit == commit:
            return
        raise UsageProblem(
            f"a launch of the {side}, which is {contender.source.label}, recorded "
            f"{recorded.commit or 'no commit'}: something else has changed {tree} or how "
            f"git knows it, so nothing is judged; begin again, or go on with "
            f"--resume={self._state.folder}"
        )

    def _require_unchanged(self) -> None:
        for name, contender in self._contenders.items():
            contender.source.require_unchanged(self._state.identity[name], self._files[name])


def _said(lines: tuple[str, ...]) -> str:
    """What of pytest's last lines is the error."""
    errors = [line for line in lines if line.lower().startswith("error") or "error:" in line]
    return "; ".join(line.strip() for line in errors or lines[-1:]) or "it said nothing"
