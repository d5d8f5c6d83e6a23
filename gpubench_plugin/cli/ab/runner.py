"""The comparison loop: a warm-up pair, then pairs of launches until all is decided."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic
from typing import Final, TextIO

from gpubench_plugin.cli.ab.disturbance import (
    Attempt,
    disturbance_notes,
    disturbing_flags,
    may_hide_slow_launches,
    pair_to_remeasure,
)
from gpubench_plugin.cli.ab.launch import PytestProcess, imports, require_own_code
from gpubench_plugin.cli.ab.saved_state import WARMUP_PAIR, LaunchRecord, Look, SavedState
from gpubench_plugin.cli.ab.sides import Side
from gpubench_plugin.cli.ab.tracker import Tracker
from gpubench_plugin.compare.effective_limits import SIDES, SideName
from gpubench_plugin.compare.looks import LOOK
from gpubench_plugin.compare.matching import BROKEN, failure_text
from gpubench_plugin.config.rounds_file import to_text
from gpubench_plugin.core.errors import ResultsError, UsageProblem
from gpubench_plugin.core.format import counted, rough_duration
from gpubench_plugin.core.records import Run
from gpubench_plugin.reports.status import StatusLine
from gpubench_plugin.reports.text import encodable, printable
from gpubench_plugin.results.reader import RunReader
from gpubench_plugin.results.run_directory import RunDirectory
from gpubench_plugin.system import json_files
from gpubench_plugin.system.child_process import last_lines


class Progress:
    """Writes progress to `stream`; on a terminal the launch line is rewritten in place.

    Nothing is written while a launch runs, so as not to disturb the measurement.
    """

    def __init__(self, stream: TextIO):
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._line = StatusLine(self._write, self._is_terminal)

    def launch(self, text: str) -> None:
        """Show what a starting launch is."""
        if self._is_terminal:
            self._line.show(f"gpubench ab: {text}", at_once=True)
        else:
            self.message(text)

    def message(self, text: str, lines: Iterable[str] = ()) -> None:
        """Print a permanent message, with `lines` indented below."""
        self.clear()
        self._write(f"gpubench ab: {printable(text)}\n")
        for line in lines:
            self._write(f"    {printable(line)}\n")

    def clear(self) -> None:
        """Erase the launch line."""
        self._line.clear()

    def _write(self, text: str) -> None:
        self._stream.write(encodable(text, self._stream))
        self._stream.flush()


# Of a warm-up launch, whose length is unknown: long enough for a large suite.
_WARMUP_TIMEOUT_S: Final = 3600.0
# Timeout of a launch in lengths of its side's warm-up launch, for noise.
_TIMEOUT_FACTOR: Final = 10.0
# Added to that: pytest's timeout of a hanging benchmark (600 s by default) and a minute.
_HANG_S: Final = 660.0
# Failed launches in a row that end the comparison: a single one may be the machine's fault.
_FAILURES: Final = 2


@dataclass(kw_only=True)
class ComparisonRunner:
    """Launches both sides alternately and records finished launches in `state`.

    Complete pairs of `state` are not launched again. `repository` is the top of the working tree
    that a side was taken from, if any; `now` is the clock of the time limit, which excludes the
    machine's sleep.
    """

    state: SavedState
    sides: Mapping[SideName, Side]
    repository: Path | None
    launcher: PytestProcess
    progress: Progress
    now: Callable[[], float] = monotonic
    _runs_by_folder: dict[str, Run] = field(default_factory=dict, init=False)
    _is_warm: bool = field(default=False, init=False)
    _consecutive_failures: int = field(default=0, init=False)
    _rounds: Path | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        time_s = self.state.request.time_s
        self._end_s = math.inf if time_s is None else self.now() + time_s

    def run(self) -> Tracker:
        """Run until every benchmark is decided, the last pair has ended, or time is up.

        Raises:
            UsageProblem: pytest rejected its arguments, both sides ran the same code, a tree
                changed, or a launch recorded another commit than its side's.
            NothingComparable: no benchmark was selected.
            ResultsError: two launches in a row failed, or a file cannot be written.
        """
        for side in self.sides.values():
            side.require_unchanged()
        warmup = self.state.warmup_launches() or self._launch_both(WARMUP_PAIR, None)
        base, head = self._runs(warmup)
        tracker = Tracker(base, head, **self.state.request.judging)
        if base.path is not None and head.path is not None:
            self._rounds = self.state.folder / "rounds.json"
            fix_rounds(self._rounds, base.path, head.path)
        last = max(self.state.request.pairs, self.state.judged_pairs)
        for pairs in range(LOOK, last + 1, LOOK):
            if not tracker.open:
                break
            if not self._measure_up_to(pairs, tracker):
                cause = f"--time left no time to judge {pairs} pairs"
                tracker.stop(cause)
                self.progress.message(cause)
                break
            self._look(pairs, tracker)
        return tracker

    def _measure_up_to(self, pairs: int, tracker: Tracker) -> bool:
        """Measure up to `pairs` and remeasure disturbed ones; False if time runs out."""
        for pair in range(pairs - LOOK + 1, pairs + 1):
            if self.state.pair_launches(pair) is None and not self._may_begin(pair, pairs):
                return False
            self._pair(pair, tracker)
        while self.now() < self._end_s and self.state.look(pairs) is None:
            attempts = self._attempts(pairs, tracker.open)
            disturbed = pair_to_remeasure(attempts, judged_up_to=pairs - LOOK)
            if disturbed is None:
                break
            self._remeasure(disturbed, tracker)
        return True

    def _may_begin(self, pair: int, pairs: int) -> bool:
        """Whether time is left for the pair, or at a look's first pair for all pairs up to it.

        The first look is always taken.
        """
        if pairs == LOOK:
            return True
        new_pairs = LOOK if pair == pairs - LOOK + 1 else 0
        return self._end_s - self.now() > new_pairs * sum(self.state.launch_seconds().values())

    def _remeasure(self, disturbed: Attempt, tracker: Tracker) -> None:
        """Remeasure both sides of a disturbed pair; the first launches stay in the record."""
        pair, flags = disturbed.pair, disturbed.flags.items()
        cause = "; ".join(f"{side}: {', '.join(names)}" for side, names in flags if names)
        self.state.supersede(pair, cause)
        self.progress.message(f"pair {pair} was disturbed ({cause}) and is measured again")
        self._pair(pair, tracker)

    def _look(self, pairs: int, tracker: Tracker) -> None:
        """Judge what is open after so many pairs; a recorded look by its recorded rule."""
        look = self.state.look(pairs)
        if look is None:
            look = Look(pairs=pairs, unchanged_from=self._unchanged_from(pairs, tracker))
            self.state.looks.append(look)
            self.state.write()
        pair_runs = [self._runs(self._pair(pair, tracker)) for pair in range(1, pairs + 1)]
        bases, heads = zip(*pair_runs, strict=True)
        tracker.judge(bases, heads, unchanged_from=look.unchanged_from)
        final = f"{tracker.decided} of {counted(tracker.suite, 'verdict')} final"
        outlook = f"; {_outlook(tracker)}" if tracker.open else ""
        self.progress.message(f"judged {pairs} pairs: {final}{outlook}")

    def _unchanged_from(self, pairs: int, tracker: Tracker) -> int:
        """Pairs required for "unchanged", more if a slow launch may have been remeasured away.

        Five more pairs detect a head that is slow in a fifth of its launches about as surely as the
        replaced pair would have (``docs/evidence/repeats.md``).
        """
        extra_pairs = LOOK if may_hide_slow_launches(self._attempts(pairs, tracker.open)) else 0
        return self.state.request.unchanged_from + extra_pairs

    def disturbance_notes(self) -> list[str]:
        """Notes on how many judged launches were disturbed, and remedies."""
        last = max((launch.pair for launch in self.state.launches), default=0)
        results = [r for run in self._runs_by_folder.values() for r in run.results.values()]
        return list(disturbance_notes(self._attempts(last), results))

    def _attempts(self, pairs: int, ids: Collection[str] | None = None) -> list[Attempt]:
        """Disturbance of all attempts at so many pairs, by the benchmarks `ids` or all."""
        return [
            Attempt(
                pair=pair,
                flags={
                    side: disturbing_flags(run, run.results if ids is None else ids)
                    for side, run in zip(SIDES, self._runs(launches), strict=True)
                },
            )
            for pair in range(1, pairs + 1)
            for launches in self.state.all_attempts(pair)
        ]

    def locations(self) -> dict[str, tuple[str, int]]:
        """File and line of every benchmark of the head, or where it failed, by node id."""
        launch = (self.state.warmup_launches() or {})["head"]
        return imports(self.state.folder / launch.folder, self.sides["head"]).tests

    def _pair(self, pair: int, tracker: Tracker) -> Mapping[SideName, LaunchRecord]:
        """Both launches of a pair, measured if missing; never half a pair.

        Before the first one a warm-up pair warms byte code and caches: else the first judged launch
        would compile all modules.
        """
        launches = self.state.pair_launches(pair)
        if launches is not None:
            return launches
        if not self._is_warm:
            self._launch_both(WARMUP_PAIR, tracker)
        return self._launch_both(pair, tracker)

    def _launch_both(self, pair: int, tracker: Tracker | None) -> Mapping[SideName, LaunchRecord]:
        """Launch both sides one after the other, repeating until both end normally."""
        self._is_warm = True
        while True:
            attempt = self.state.attempts(pair) + 1
            sides = side_order(pair, self.state.seed)
            for number, side in enumerate(sides):
                self._announce(pair, attempt, sides[number:], tracker)
                if self._launch(pair, attempt, side, tracker).problem:
                    break
            if launches := self.state.pair_launches(pair):
                return launches

    def _announce(
        self, pair: int, attempt: int, running: tuple[SideName, ...], tracker: Tracker | None
    ) -> None:
        """``launch 13 of 32, pair 6 of at most 15, head, 3 benchmarks, at most 12 min left``."""
        last, remeasured = self.state.request.pairs, self.state.repeats()
        begun = self.state.complete() + (pair != WARMUP_PAIR)
        number = len(SIDES) * (remeasured + begun + 1) - len(running) + 1
        name = "warm-up pair" if pair == WARMUP_PAIR else f"pair {pair} of at most {last}"
        parts = [
            f"launch {number} of {len(SIDES) * (last + remeasured + 1)}",
            name + " (repeated)" * (attempt > 1),
            running[0],
        ]
        if tracker is not None:
            parts.append(counted(len(tracker.open), "benchmark"))
        if left := self._time_left(last - begun, running):
            parts.append(f"at most {left} left")
        needed = None if tracker is None else tracker.pairs_needed
        if needed and needed < last:
            parts.append(f"about {self._time_left(max(needed - begun, 0), running)} expected")
        self.progress.launch(", ".join(parts))

    def _time_left(self, pairs_left: int, running: tuple[SideName, ...]) -> str:
        """Estimated time until so many more pairs have ended, capped by the budget."""
        seconds = self.state.launch_seconds()
        if len(seconds) < len(SIDES):
            return ""
        pair_s = sum(seconds.values())
        estimate_s = pairs_left * pair_s + sum(seconds[side] for side in running)
        return rough_duration(min(estimate_s, max(self._end_s - self.now(), 0) + pair_s))

    def _launch(
        self, pair: int, attempt: int, side: SideName, tracker: Tracker | None
    ) -> LaunchRecord:
        # Those whose end was not recorded count, too.
        existing = (self.state.folder / "launches").glob("[0-9]*-*")
        last = max((int(path.name.partition("-")[0]) for path in existing), default=0)
        name = f"launches/{last + 1:03}-{side}"
        folder = self.state.folder / name
        launch = self.launcher.launch(
            self.sides[side],
            folder,
            timeout_s=self._timeout_s(pair, side),
            leave_out=() if tracker is None else tracker.left_out,
            rounds=self._rounds,
        )
        record = replace(launch, pair=pair, attempt=attempt, folder=name)
        if not record.problem:
            self._consecutive_failures = 0
            self._require_own_code(record)
            for one in self.sides.values():
                one.require_unchanged()
            results = self._run(record).results.values()
            if failures := [f"{r.id}: {failure_text(r)}" for r in results if r.outcome in BROKEN]:
                self.progress.message(f"failed on the {side} ({folder / 'output.txt'}):", failures)
        self.state.add(record)
        if record.problem:
            self._note_failure(record)
        return record

    def _note_failure(self, launch: LaunchRecord) -> None:
        self._consecutive_failures += 1
        output = self.state.folder / launch.folder / "output.txt"
        lines = last_lines(output)
        self.progress.message(f"a launch of the {launch.side} {launch.problem}:", lines)
        if launch.usage_error:
            raise UsageProblem(
                f"pytest rejected its arguments on the {launch.side}: {_error_text(lines)} "
                f"(full output: {output})"
            )
        if self._consecutive_failures >= _FAILURES:
            raise ResultsError(
                f"{self._consecutive_failures} launches in a row failed, the last one on the "
                f"{launch.side}: it {launch.problem} (output: {output}); measured pairs are kept, "
                f"resume with --resume={self.state.folder}; with --isolate a crashing "
                "benchmark does not take others with it"
            )

    def _timeout_s(self, pair: int, side: SideName) -> float:
        if self.state.request.launch_timeout_s is not None:
            return self.state.request.launch_timeout_s
        warmup = self.state.warmup_launches()
        if warmup is None:
            return _WARMUP_TIMEOUT_S
        return warmup[side].seconds * _TIMEOUT_FACTOR + _HANG_S

    def _runs(self, pair: Mapping[SideName, LaunchRecord]) -> tuple[Run, Run]:
        return self._run(pair["base"]), self._run(pair["head"])

    def _run(self, launch: LaunchRecord) -> Run:
        """Its run, with the places where benchmarks failed in their reasons."""
        if launch.folder not in self._runs_by_folder:
            side = self.sides[launch.side]
            run = self.state.run_of(launch, side.label)
            results = dict(run.results)
            for i, (file, line) in imports(self.state.folder / launch.folder, side).tests.items():
                if i in results and results[i].outcome in BROKEN:
                    results[i] = replace(results[i], reason=f"{file}:{line}: {results[i].reason}")
            self._runs_by_folder[launch.folder] = replace(run, results=results)
        return self._runs_by_folder[launch.folder]

    def _require_own_code(self, launch: LaunchRecord) -> None:
        """Refuse a launch that imported other code, or recorded another commit, than its side's.

        Uncommitted changes are allowed: benchmarks or git's filters make them.
        """
        (other,) = (side for name, side in self.sides.items() if name != launch.side)
        side = self.sides[launch.side]
        report = imports(self.state.folder / launch.folder, side)
        require_own_code(side, other, report.modules, self.repository)
        tree = side.tree.resolve()
        of_tree = report.rootdirs and all(path.is_relative_to(tree) for path in report.rootdirs)
        if side.code is not None or not launch.run or not of_tree:
            return
        recorded = self._run(launch).commit
        if recorded != side.commit:
            raise UsageProblem(
                f"a launch of the {side.name}, {side.label}, recorded "
                f"{recorded or 'no commit'}: something changed {tree} or its git metadata, so "
                f"nothing is judged; start again, or resume with --resume={self.state.folder}"
            )


def side_order(pair: int, seed: int) -> tuple[SideName, SideName]:
    """Order of sides in a pair: alternating, with a random start from `seed`.

    A slow drift, of the machine's temperature for example, then affects both sides alike.
    """
    first, second = SIDES
    return (first, second) if (pair + seed) % 2 == 0 else (second, first)


def fix_rounds(file: Path, base: Path, head: Path) -> None:
    """Write the rounds of the run in `base` into `file`, with the larger number of both runs.

    A minimum over more rounds is lower. Raises ResultsError.
    """
    fixed, others = (RunReader(RunDirectory(path=run)).rounds() for run in (base, head))
    fixed = {
        node_id: replace(plan, rounds=max(plan.rounds, others[node_id].rounds))
        for node_id, plan in fixed.items()
        if node_id in others
    }
    json_files.write_text(file, to_text(fixed))


def _outlook(tracker: Tracker) -> str:
    """What is open: ``2 benchmarks are inconclusive, about 25 pairs needed``."""
    number = len(tracker.open)
    text = f"{counted(number, 'benchmark')} {'is' if number == 1 else 'are'} inconclusive"
    return f"{text}, about {needed} pairs needed" if (needed := tracker.pairs_needed) else text


def _error_text(lines: tuple[str, ...]) -> str:
    """Error message among pytest's last lines."""
    errors = [line for line in lines if line.lower().startswith("error") or "error:" in line]
    return "; ".join(line.strip() for line in errors or lines[-1:]) or "no error message"
