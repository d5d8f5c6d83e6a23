"""Measuring loop of several variants of a step, which take turns in one process.

A *turn* is a block of one variant. In each *pass* every variant has one turn, there and back: A B
C, C B A, A B C … so that neighbouring turns see the same machine, and a steady drift slows down all
variants alike. Before each turn one call is not timed: it brings the data of the variant back into
the caches, out of which the others have driven them. As in the loop of a single step, rank zero
takes every decision, and nothing but the step runs inside a timed block.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from gpubench_plugin.measure.clocks.base import Clock, Step, Task
from gpubench_plugin.measure.loop import gc_disabled
from gpubench_plugin.measure.plan import Pace, Plan, Planner
from gpubench_plugin.measure.preparation import Preparation, prepare
from gpubench_plugin.measure.progress import Progress
from gpubench_plugin.measure.recording import TimedBlocks
from gpubench_plugin.measure.stopping import ByInterval, CheckSchedule, StoppingRule, make_rule
from gpubench_plugin.measure.timed_samples import timed_samples

if TYPE_CHECKING:
    from gpubench_plugin.config.rounds_file import FixedRounds
    from gpubench_plugin.config.sections import MeasureSection
    from gpubench_plugin.core.records import Samples
    from gpubench_plugin.measure.probes.contention import Contention
    from gpubench_plugin.ranks.process_group import RankAgreement

_TURN_S: Final = 0.01
"""Shortest turn, of which the untimed call before it is a tenth for steps of a millisecond. Not
measured."""

FEWEST_TURNS: Final = 10
"""Turns of each variant, if time allows: an interval at 95% needs six."""


@contextmanager
def naming(variant: str) -> Iterator[None]:
    """Add the name of the `variant` as a note to an exception that is raised by it."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in variant {variant!r}")
        raise


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A variant that was called once, which took `first_call_s`, with a clock of its own.

    A clock learns what its step costs, so that two steps cannot share one.
    """

    name: str
    task: Task
    clock: Clock
    first_call_s: float


def measure_in_turns(
    variants: Sequence[Variant],
    *,
    section: MeasureSection,
    agreement: RankAgreement,
    fixed_rounds: FixedRounds | None = None,
    make_contention: Callable[[], Contention] | None = None,
    on_timed: Step | None = None,
    on_progress: Callable[[Progress], object] | None = None,
) -> list[Samples]:
    """Measure `variants` in turns on this rank of the `agreement`; all have equally many turns.

    Each is warmed up to its steady state first. Turns go on until every variant meets the stopping
    rule or a limit; those of time count per variant. One that has met it takes its turns beside the
    others, and can have more than ``measure.max_rounds``. With ``measure.by=steps``
    all have equally many calls, with `fixed_rounds`, those of the last one, equally many rounds.
    The clock of the last variant keeps the result of
    its last call, the others release theirs after each turn.

    `on_timed` is called once, when the timed calls begin; `on_progress` after each pass with the
    progress of the variant with the widest interval.

    Raises:
        MeasurementError: a duration is not finite or not positive.
        UsageProblem: the rounds of ``measure.rounds_file`` cannot be timed on this clock.
    """
    planners = [
        Planner(
            clock=variant.clock,
            section=section,
            world_size=agreement.world_size,
            is_bare=variant.task.is_bare,
        )
        for variant in variants
    ]
    if fixed_rounds is not None:
        fixed_rounds = planners[0].usable_rounds(fixed_rounds)
    is_counted = fixed_rounds is None and section.by == "steps"
    with gc_disabled(collected_while_timing=section.gc):
        agreement.barrier()
        preparations = [
            _prepared(variant, section=section, agreement=agreement, is_counted=is_counted)
            for variant in variants
        ]
        plans = [
            plan.broadcast(agreement)
            for plan in _plans(planners, preparations, section, fixed_rounds)
        ]
        rule = make_rule(section, agreement.decide(fixed_rounds.rounds if fixed_rounds else 0))
        is_costly = any(preparation.is_costly for preparation in preparations)
        turns = _Turns(
            variants,
            plans,
            rule=rule,
            section=section,
            agreement=agreement,
            make_contention=make_contention,
            leads_in=not agreement.decide(int(is_costly)),
        )
        if on_timed is not None:
            on_timed()
        turns.take(on_progress)
    return [
        timed_samples(
            recording,
            preparation,
            clock=variant.clock,
            tolerance=section.steady_tolerance,
            converged=bool(agreement.decide(int(rule.converged(recording)))),
        )
        for variant, preparation, recording in zip(
            variants, preparations, turns.recordings, strict=True
        )
    ]


def _prepared(
    variant: Variant, *, section: MeasureSection, agreement: RankAgreement, is_counted: bool
) -> Preparation:
    with naming(variant.name):
        return prepare(
            variant.task,
            clock=variant.clock,
            section=section,
            agreement=agreement,
            first_call_s=variant.first_call_s,
            is_counted=is_counted,
        )


def _plans(
    planners: Sequence[Planner],
    preparations: Sequence[Preparation],
    section: MeasureSection,
    fixed: FixedRounds | None,
) -> list[Plan]:
    """Plan of each variant's turns.

    The rounds of the last variant are those that are `fixed`; where they are, or the calls are
    counted, all have as many rounds in a turn. Counted calls are grouped alike, by the fastest.
    """
    paces = [preparation.pace for preparation in preparations]
    if fixed is None and section.by == "steps":
        paces = [min(paces, key=lambda pace: pace.timed_s)] * len(paces)
    *others, last = planners
    plans = [planner.plan(pace) for planner, pace in zip(others, paces, strict=False)]
    plans.append(last.plan(paces[-1], fixed=fixed))
    rounds = [
        _rounds_per_turn(planner, plan, pace, section, fixed)
        for planner, plan, pace in zip(planners, plans, paces, strict=True)
    ]
    if fixed is not None:
        rounds = [min(rounds)] * len(rounds)
    return [
        replace(plan, rounds_per_block=count) for plan, count in zip(plans, rounds, strict=True)
    ]


def _rounds_per_turn(
    planner: Planner, plan: Plan, pace: Pace, section: MeasureSection, fixed: FixedRounds | None
) -> int:
    """Rounds in a turn: long enough, but few enough for :data:`FEWEST_TURNS`."""
    if fixed is not None:
        most_rounds = float(fixed.rounds)
    elif section.by == "steps":
        most_rounds = section.steps / plan.calls_per_round
    else:
        limit_s = section.time_s if section.by == "time" else section.max_time_s
        most_rounds = limit_s / (plan.calls_per_round * pace.wall_s)
    turn_rounds = math.ceil(_TURN_S / (plan.calls_per_round * pace.timed_s))
    rounds = min(
        max(plan.rounds_per_block, turn_rounds),
        int(most_rounds / FEWEST_TURNS),
        planner.clock.queued_calls // plan.calls_per_round,
    )
    return max(math.ceil(planner.clock.fewest_calls / plan.calls_per_round), rounds)


class _Turns:
    """Turns of the variants, and the recordings of their blocks."""

    def __init__(
        self,
        variants: Sequence[Variant],
        plans: Sequence[Plan],
        *,
        rule: StoppingRule,
        section: MeasureSection,
        agreement: RankAgreement,
        make_contention: Callable[[], Contention] | None,
        leads_in: bool,
    ) -> None:
        self._variants = variants
        self._rule = rule
        self._section = section
        self._agreement = agreement
        self._leads_in = leads_in
        self.recordings = [TimedBlocks(plan, section) for plan in plans]
        self._checks = [CheckSchedule(section) for _ in variants]
        self._contentions = [make_contention() if make_contention else None for _ in variants]

    def take(self, on_progress: Callable[[Progress], object] | None) -> None:
        """Take turns until the stopping rule is met."""
        now = self._variants[0].clock.now
        start_ns, elapsed_s = now(), 0.0
        order = list(range(len(self._variants)))
        while True:
            lengths = self._lengths(elapsed_s)
            for number in order:
                durations = self._agreement.decide(lengths[number])
                if durations == 0:  # of the first in the pass: then all have none
                    self._update_intervals()
                    return
                with naming(self._variants[number].name):
                    self._take_turn(number, durations)
            order.reverse()
            elapsed_s = (now() - start_ns) * 1e-9 / len(self._variants)
            self._check(elapsed_s)
            if on_progress is not None:
                widest = max(self.recordings, key=lambda recording: recording.half_width)
                variants = len(self.recordings)
                on_progress(Progress(widest, self._rule, elapsed_s, variants=variants))

    def _lengths(self, elapsed_s: float) -> list[int]:
        """Durations of each variant's next turn; all zero to stop."""
        lengths = [self._rule.durations(recording, elapsed_s) for recording in self.recordings]
        lacks_turns = (
            isinstance(self._rule, ByInterval)
            and len(self.recordings[0].block_s) < FEWEST_TURNS
            and elapsed_s < self._section.max_time_s
        )
        if not any(lengths) and not lacks_turns:
            return lengths
        return [
            length or recording.plan.durations_per_block
            for length, recording in zip(lengths, self.recordings, strict=True)
        ]

    def _take_turn(self, number: int, durations: int) -> None:
        """Time a block of that variant, after an untimed call."""
        variant, recording = self._variants[number], self.recordings[number]
        contention = self._contentions[number]
        if self._leads_in:
            variant.clock.time_first_call(variant.task)
            self._agreement.barrier()
        with contention or nullcontext():
            block = variant.clock.block(
                variant.task,
                durations=durations,
                calls_per_duration=recording.plan.calls_per_duration,
            )
        recording.add(block)
        recording.contended = contention is not None and contention.is_contended
        if number < len(self._variants) - 1:
            variant.clock.take_result()

    def _check(self, elapsed_s: float) -> None:
        """Update the intervals whose check is due."""
        for recording, checks in zip(self.recordings, self._checks, strict=True):
            if checks.due(recording.rounds, elapsed_s):
                recording.update_interval(checks.confidence)

    def _update_intervals(self) -> None:
        for recording, checks in zip(self.recordings, self._checks, strict=True):
            recording.update_interval(checks.confidence)
