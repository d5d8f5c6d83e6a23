"""The comparison loop: a warm-up pair, then pairs of launches until all is decided."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from time import monotonic
from typing import Final

from gpubench_plugin.cli.ab.disturbance import (
    Attempt,
    disturbance_notes,
    is_disturbed,
    may_hide_slow_launches,
    pair_to_remeasure,
    raised_flags,
)
from gpubench_plugin.cli.ab.launch import LaunchOutcome, PytestProcess
from gpubench_plugin.cli.ab.preflight import imports, require_own_code
from gpubench_plugin.cli.ab.progress import LaunchStatus, Progress
from gpubench_plugin.cli.ab.request import Request, format_duration
from gpubench_plugin.cli.ab.sides import SIDES, Side, SideName
from gpubench_plugin.cli.ab.state import WARMUP_PAIR, LaunchRecord, Look, State
from gpubench_plugin.cli.ab.tracker import Tracker
from gpubench_plugin.compare.looks import LOOK
from gpubench_plugin.config.rounds_file import to_text
from gpubench_plugin.core.errors import ResultsError, UsageProblem
from gpubench_plugin.core.format import counted
from gpubench_plugin.core.records import Run
from gpubench_plugin.environment import json_files
from gpubench_plugin.results.reader import StoredRun
from gpubench_plugin.results.run_directory import RunDirectory

# Of a warm-up launch, whose length is unknown: long enough for a large suite.
_WARMUP_TIMEOUT_S: Final = 3600.0
# Timeout of a launch in lengths of its side's warm-up launch, for noise.
_TIMEOUT_FACTOR: Final = 10.0
# Added to that: pytest's timeout of a hanging benchmark (600 s by default) and a minute.
_HANG_S: Final = 660.0
# Failed launches in a row that end the comparison: a single one may be the machine's fault.
_FAILURES: Final = 2


class ComparisonRunner:
    """Launches both sides alternately and records finished launches in `state`.

    Complete pairs of `state` are not launched again. `repository` is the top of the working tree
    that a side was taken from, if any; `now` is the clock of the time limit, which excludes the
    machine's sleep.
    """

    def __init__(
        self,
        state: State,
        request: Request,
        sides: Mapping[SideName, Side],
        *,
        repository: Path | None,
        launcher: PytestProcess,
        progress: Progress,
        now: Callable[[], float] = monotonic,
    ):
        self._state = state
        self._request = request
        self._sides = sides
        self._repository = repository
        self._launcher = launcher
        self._progress = progress
        self._now = now
        self._end_s = math.inf if request.time_s is None else now() + request.time_s
        self._runs_by_folder: dict[str, Run] = {}
        self._is_warm = False
        self._consecutive_failures = 0
        self._rounds: Path | None = None

    def run(self) -> Tracker:
        """Run until every benchmark is decided, the last pair has ended, or time is up.

        Raises:
            UsageProblem: pytest rejected its arguments, both sides ran the same code, a tree
                changed, or a launch recorded another commit than its side's.
            NothingComparable: no benchmark was selected.
            ResultsError: two launches in a row failed, or a file cannot be written.
        """
        self._require_unchanged()
        tracker = self._judge_warmup()
        last = max(self._request.max_pairs, self._state.judged_pairs)
        for pairs in range(LOOK, last + 1, LOOK):
            if not tracker.open:
                break
            if not self._measure_up_to(pairs, tracker):
                self._end(pairs, tracker)
                break
            self._look(pairs, tracker)
        return tracker

    def _judge_warmup(self) -> Tracker:
        """Judge the warm-up pair and fix the rounds of all later launches by it."""
        base, head = self._runs(self._state.warmup_launches() or self._run_warmup(None))
        tracker = Tracker(base, head, **self._request.judging)
        if base.path is not None and head.path is not None:
            self._rounds = self._state.folder / "rounds.json"
            fix_rounds(self._rounds, base.path, head.path)
        return tracker

    def _run_warmup(self, tracker: Tracker | None) -> Mapping[SideName, LaunchRecord]:
        """Launch both sides once without judging, to warm byte code and caches.

        Without it the first judged launch would compile all modules.
        """
        self._is_warm = True
        return self._launch_both(WARMUP_PAIR, tracker)

    def _measure_up_to(self, pairs: int, tracker: Tracker) -> bool:
        """Measure up to `pairs` and remeasure disturbed ones; False if time runs out."""
        for pair in range(pairs - LOOK + 1, pairs + 1):
            if self._state.pair_launches(pair) is None and not self._may_begin(pair, pairs):
                return False
            self._pair(pair, tracker)
        while self._now() < self._end_s and (disturbed := self._to_repeat(pairs, tracker)):
            self._remeasure(disturbed, tracker)
        return True

    def _may_begin(self, pair: int, pairs: int) -> bool:
        """Whether time is left for the pair, or at a look's first pair for all pairs up to it.

        The first look is always taken.
        """
        if pairs == LOOK:
            return True
        needed_s = 0.0
        if pair == pairs - LOOK + 1:
            seconds = self._state.durations()
            needed_s = estimate_remaining_s(LOOK, seconds) or 0.0
        return self._end_s - self._now() > needed_s

    def _to_repeat(self, pairs: int, tracker: Tracker) -> int | None:
        if self._state.look(pairs) is not None:
            return None
        return pair_to_remeasure(self._attempts(pairs, tracker.open), judged_up_to=pairs - LOOK)

    def _remeasure(self, pair: int, tracker: Tracker) -> None:
        """Remeasure both sides of a disturbed pair; the first launches stay in the record."""
        runs_by_side = zip(SIDES, self._runs(self._pair(pair, tracker)), strict=True)
        flags = {side: raised_flags(run, tracker.open) for side, run in runs_by_side}
        cause = "; ".join(f"{side}: {', '.join(names)}" for side, names in flags.items() if names)
        self._state.supersede(pair, cause)
        self._progress.message(f"pair {pair} was disturbed ({cause}) and is measured again")
        self._pair(pair, tracker)

    def _look(self, pairs: int, tracker: Tracker) -> None:
        """Judge what is open after so many pairs; a recorded look by its recorded rule."""
        look = self._state.look(pairs)
        if look is None:
            look = Look(pairs=pairs, unchanged_from=self._unchanged_from(pairs, tracker))
            self._state.add_look(look)
        pair_runs = [self._runs(self._pair(pair, tracker)) for pair in range(1, pairs + 1)]
        bases, heads = zip(*pair_runs, strict=True)
        tracker.judge(bases, heads, unchanged_from=look.unchanged_from)
        final = f"{tracker.decided} of {counted(tracker.suite, 'verdict')} final"
        outlook = f"; {_outlook(tracker)}" if tracker.open else ""
        self._progress.message(f"judged {pairs} pairs: {final}{outlook}")

    def _unchanged_from(self, pairs: int, tracker: Tracker) -> int:
        """Pairs required for "unchanged", more if a slow launch may have been remeasured away.

        Five more pairs detect a head that is slow in a fifth of its launches about as surely as the
        replaced pair would have (``docs/evidence/repeats.md``).
        """
        extra_pairs = LOOK if may_hide_slow_launches(self._attempts(pairs, tracker.open)) else 0
        return self._request.unchanged_from + extra_pairs

    def _end(self, pairs: int, tracker: Tracker) -> None:
        """Report that no time is left for the look after so many pairs."""
        new_pairs = range(pairs - LOOK + 1, pairs + 1)
        waiting_pairs = sum(self._state.pair_launches(pair) is not None for pair in new_pairs)
        budget = format_duration(self._request.time_s or 0)
        cause = f"--time={budget} left no time to judge {pairs} pairs"
        cause += f", {waiting_pairs} of them already measured" * (waiting_pairs > 0)
        tracker.stop(cause)
        self._progress.message(cause)

    def disturbance_notes(self) -> list[str]:
        """Notes on how many judged launches were disturbed, and remedies."""
        pairs = sorted({launch.pair for launch in self._state.launches} - {WARMUP_PAIR})
        attempt_runs = [runs for pair in pairs for runs in self._attempt_runs(pair)]
        launches = {side: [runs[at] for runs in attempt_runs] for at, side in enumerate(SIDES)}
        return list(disturbance_notes(launches, self._attempts(max(pairs, default=0))))

    def _attempts(self, pairs: int, ids: Collection[str] | None = None) -> list[Attempt]:
        """Disturbance of all attempts at so many pairs, by the benchmarks `ids` or all."""
        return [
            Attempt(
                pair=pair,
                base=is_disturbed(base, base.results if ids is None else ids),
                head=is_disturbed(head, head.results if ids is None else ids),
            )
            for pair in range(1, pairs + 1)
            for base, head in self._attempt_runs(pair)
        ]

    def _attempt_runs(self, pair: int) -> Iterator[tuple[Run, Run]]:
        for attempt in range(1, self._state.attempts(pair) + 1):
            if launches := self._state.attempt_launches(pair, attempt):
                yield self._runs(launches)

    def locations(self) -> dict[str, tuple[str, int]]:
        """File and line of every benchmark of the head, by node id."""
        launch = (self._state.warmup_launches() or {}).get("head")
        if launch is None:
            return {}
        return imports(self._state.folder / launch.folder, self._sides["head"]).tests

    def _pair(self, pair: int, tracker: Tracker) -> Mapping[SideName, LaunchRecord]:
        """Both launches of a pair, measured after a warm-up if missing; never half a pair."""
        launches = self._state.pair_launches(pair)
        if launches is not None:
            return launches
        if not self._is_warm:
            self._run_warmup(tracker)
        return self._launch_both(pair, tracker)

    def _launch_both(self, pair: int, tracker: Tracker | None) -> Mapping[SideName, LaunchRecord]:
        """Launch both sides one after the other, repeating until both end normally."""
        while True:
            attempt = self._state.attempts(pair) + 1
            sides = side_order(pair, self._state.seed)
            for number, side in enumerate(sides):
                self._announce(pair, attempt, sides[number:], tracker)
                if self._launch(pair, attempt, side, tracker).problem:
                    break
            if launches := self._state.attempt_launches(pair, attempt):
                return launches

    def _announce(
        self, pair: int, attempt: int, running: tuple[SideName, ...], tracker: Tracker | None
    ) -> None:
        last, remeasured = self._request.max_pairs, self._state.repeats()
        begun = self._state.complete() + (pair != WARMUP_PAIR)
        started, remaining = remeasured + begun, last - begun
        pairs_needed = last if tracker is None else tracker.pairs_needed or last
        self._progress.launch(
            LaunchStatus(
                pair=pair,
                pairs=last,
                side=running[0],
                launch=len(SIDES) * (started + 1) - len(running) + 1,
                launches=len(SIDES) * (last + remeasured + 1),
                is_repeat=attempt > 1,
                benchmarks=None if tracker is None else len(tracker.open),
                left_s=self._remaining_s(remaining, running),
                expected_s=self._remaining_s(max(remaining - last + pairs_needed, 0), running)
                if pairs_needed < last
                else None,
            )
        )

    def _remaining_s(self, pairs_left: int, running: tuple[SideName, ...]) -> float | None:
        """Estimated seconds until so many more pairs have ended, capped by the budget."""
        seconds = self._state.durations()
        estimate_s = estimate_remaining_s(pairs_left, seconds, running)
        pair = estimate_remaining_s(1, seconds)
        if estimate_s is None or pair is None:
            return None
        return min(estimate_s, max(self._end_s - self._now(), 0) + pair)

    def _launch(
        self, pair: int, attempt: int, side: SideName, tracker: Tracker | None
    ) -> LaunchRecord:
        name = f"launches/{self._next_number():03}-{side}"
        folder = self._state.folder / name
        outcome = self._launcher.launch(
            self._sides[side],
            folder,
            timeout_s=self._timeout_s(pair, side),
            leave_out=None if tracker is None else self._left_out(tracker),
            rounds=self._rounds,
        )
        if not outcome.error:
            self._require_own_code(side, folder, outcome.run)
            self._require_unchanged()
        record = LaunchRecord(
            pair=pair,
            attempt=attempt,
            side=side,
            folder=name,
            run="" if outcome.run is None else str(outcome.run.relative_to(folder)),
            seconds=outcome.seconds,
            problem=outcome.error,
        )
        self._state.add(record)
        self._note_failure(side, outcome, folder)
        return record

    def _next_number(self) -> int:
        """Next launch number, counting launches whose end was not recorded."""
        existing = (self._state.folder / "launches").glob("[0-9]*-*")
        return 1 + max((int(path.name.partition("-")[0]) for path in existing), default=0)

    def _note_failure(self, side: SideName, outcome: LaunchOutcome, folder: Path) -> None:
        if not outcome.error:
            self._consecutive_failures = 0
            return
        self._consecutive_failures += 1
        self._progress.message(f"a launch of the {side} {outcome.error}:", outcome.last_lines)
        output = folder / "output.txt"
        if outcome.usage_error:
            raise UsageProblem(
                f"pytest rejected its arguments on the {side}: "
                f"{_error_text(outcome.last_lines)} (full output: {output})"
            )
        if self._consecutive_failures >= _FAILURES:
            raise ResultsError(
                f"{self._consecutive_failures} launches in a row failed, the last one on the "
                f"{side}: it {outcome.error} (output: {output}); measured pairs are kept, "
                f"resume with --resume={self._state.folder}; with --isolate a crashing "
                "benchmark does not take others with it"
            )

    def _timeout_s(self, pair: int, side: SideName) -> float:
        if self._request.launch_timeout_s is not None:
            return self._request.launch_timeout_s
        warmup = self._state.warmup_launches()
        if pair == WARMUP_PAIR or warmup is None:
            return _WARMUP_TIMEOUT_S
        return warmup[side].seconds * _TIMEOUT_FACTOR + _HANG_S

    def _left_out(self, tracker: Tracker) -> Path:
        file = self._state.folder / "left-out.json"
        json_files.write_text(file, json.dumps(tracker.left_out))
        return file

    def _runs(self, pair: Mapping[SideName, LaunchRecord]) -> tuple[Run, Run]:
        base, head = (self._run(pair[side]) for side in SIDES)
        return base, head

    def _run(self, launch: LaunchRecord) -> Run:
        if launch.folder not in self._runs_by_folder:
            label = self._sides[launch.side].source.label
            self._runs_by_folder[launch.folder] = self._state.run_of(launch, label)
        return self._runs_by_folder[launch.folder]

    def _require_own_code(self, side_name: SideName, folder: Path, run: Path | None) -> None:
        """Refuse a launch that imported other code, or recorded another commit, than its side's.

        Uncommitted changes are allowed: benchmarks or git's filters make them.
        """
        (other,) = (side for name, side in self._sides.items() if name != side_name)
        side = self._sides[side_name]
        report = imports(folder, side)
        require_own_code(side, other, report.modules, self._repository)
        tree, source = side.tree.resolve(), side.source
        of_tree = report.rootdirs and all(path.is_relative_to(tree) for path in report.rootdirs)
        if source.folder is not None or run is None or not of_tree:
            return
        recorded = StoredRun(RunDirectory(path=run)).run().commit
        if recorded != source.commit:
            raise UsageProblem(
                f"a launch of the {side.name}, {source.label}, recorded "
                f"{recorded or 'no commit'}: something changed {tree} or its git metadata, so "
                f"nothing is judged; start again, or resume with --resume={self._state.folder}"
            )

    def _require_unchanged(self) -> None:
        for side in self._sides.values():
            side.source.require_unchanged()


def side_order(pair: int, seed: int) -> tuple[SideName, SideName]:
    """Order of sides in a pair: alternating, with a random start from `seed`.

    A slow drift, of the machine's temperature for example, then affects both sides alike.
    """
    first, second = SIDES
    return (first, second) if (pair + seed) % 2 == 0 else (second, first)


def estimate_remaining_s(
    pairs_left: int,
    seconds: Mapping[SideName, Sequence[float]],
    running: Sequence[SideName] = (),
) -> float | None:
    """Seconds until the last pair ends, assuming later launches take as long as recent ones.

    `pairs_left` have not started, `seconds` are durations of each side's launches in order,
    `running` the unfinished sides of the current pair. None before both sides were launched once.
    """
    latest = {side: fmean(durations[-2:]) for side, durations in seconds.items() if durations}
    if len(latest) < len(SIDES):
        return None
    return pairs_left * sum(latest.values()) + sum(latest[side] for side in running)


def fix_rounds(file: Path, base: Path, head: Path) -> None:
    """Write the rounds of the run in `base` into `file`, with the larger number of both runs.

    A minimum over more rounds is lower. Raises ResultsError.
    """
    fixed, others = (StoredRun(RunDirectory(path=run)).rounds() for run in (base, head))
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
