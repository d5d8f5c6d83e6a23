"""Measuring loop: first call, warm-up, calibration, timed blocks.

Rank zero takes every decision between two blocks and broadcasts it, so that all ranks run the same
number of calls. Nothing but the step runs inside a timed block.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING

from gpubench_plugin.measure.clocks import Clock, Step, Task
from gpubench_plugin.measure.outliers import has_outliers
from gpubench_plugin.measure.plan import Plan, Planner
from gpubench_plugin.measure.recording import Recording
from gpubench_plugin.measure.stopping import CheckSchedule, StoppingRule, make_rule
from gpubench_plugin.measure.trend import is_trending
from gpubench_plugin.measure.warmup import warm_up
from gpubench_plugin.quality_flags import (
    CONTENDED,
    DEPENDENT,
    DRIFTING,
    NOT_CONVERGED,
    OUTLIERS,
    SKETCHED,
    TIMER_OVERHEAD,
    UNCALIBRATED,
    UNSTEADY,
)
from gpubench_plugin.records import Samples

if TYPE_CHECKING:
    from gpubench_plugin.config import FixedRounds, MeasureSection
    from gpubench_plugin.distributed import RankAgreement
    from gpubench_plugin.measure.probes import Contention

# Seconds of a call, with its setup and teardown, from which no further calls are spent on
# calibrating the clock: a cold start or a compilation, whose flags are not worth minutes. Not
# measured.
_COSTLY_CALL_S = 1.0
# Number of calls, of warm-up and ``measure.steps``, below which none are spent on it either. Not
# measured.
_FEW_CALLS = 10

Progress = Callable[[int, float], object]


def measure(
    step: Step,
    *,
    clock: Clock,
    section: MeasureSection,
    agreement: RankAgreement,
    fixed_rounds: FixedRounds | None = None,
    setup: Step | None = None,
    teardown: Step | None = None,
    on_first: Step | None = None,
    contention: Contention | None = None,
    on_timed: Step | None = None,
    on_progress: Progress | None = None,
) -> Samples:
    """Measure `step` on this rank of the `agreement`.

    `setup` and `teardown` run around every call, outside the timed part. `fixed_rounds`, rank
    zero's on every rank, replace the stopping rule.

    `on_first` is called once, after the first call and before the warm-up; `on_timed` once, when
    the timed calls begin; `on_progress` between blocks with the rounds so far and the relative
    half-width of the median's confidence interval at the last check, infinite before the first.

    Raises:
        MeasurementError: a duration is not finite or not positive.
        UsageProblem: the rounds of ``measure.rounds_file`` cannot be timed on this clock.
    """
    task = Task(step=step, setup=setup, teardown=teardown)
    planner = Planner(
        clock=clock, section=section, world_size=agreement.world_size, is_bare=task.is_bare
    )
    if fixed_rounds is not None:
        fixed_rounds = planner.usable_rounds(fixed_rounds)
    with _gc_disabled(collected_while_timing=section.gc):
        agreement.barrier()
        first_step_s = clock.time_first_call(task)
        if on_first is not None:
            on_first()
        warmup = warm_up(
            task, clock=clock, section=section, agreement=agreement, first_call_s=first_step_s
        )
        steady = agreement.decide(int(warmup.steady))
        is_counted = fixed_rounds is None and section.by == "steps"
        is_few = is_counted and warmup.calls + section.steps < _FEW_CALLS
        is_costly = warmup.pace.wall_s >= _COSTLY_CALL_S
        is_calibrated = not agreement.decide(int(is_few or is_costly))
        calibration_calls = clock.calibration_calls if is_calibrated else 0
        clock.calibrate(task, may_call=is_calibrated)
        plan = planner.plan(warmup.pace, fixed=fixed_rounds).broadcast(agreement)
        rule = make_rule(section, agreement.decide(fixed_rounds.rounds if fixed_rounds else 0))
        if on_timed is not None:
            on_timed()
        recording = _time_blocks(
            task,
            plan,
            clock=clock,
            rule=rule,
            section=section,
            agreement=agreement,
            contention=contention,
            on_progress=on_progress,
        )
    converged = agreement.decide(int(rule.converged(recording)))
    sketch = recording.sketch
    durations = sketch.representative_values() if sketch and sketch.kll else recording.durations_s
    flags = {
        UNSTEADY: not steady,
        DRIFTING: is_trending([*warmup.tail_s, *recording.rounds_s], section.steady_tolerance),
        NOT_CONVERGED: not converged,
        DEPENDENT: recording.dependent,
        CONTENDED: recording.contended,
        OUTLIERS: has_outliers(durations or recording.rounds_s),
        UNCALIBRATED: calibration_calls < clock.calibration_calls,
        # At twice the length, so that groups that sped up a little are not flagged.
        TIMER_OVERHEAD: plan.calls_per_duration
        < min(clock.queued_calls, clock.group_size(2 * median(recording.rounds_s))),
    }
    samples = Samples(
        timer=clock.timer,
        durations_s=tuple(recording.durations_s),
        calls_per_duration=plan.calls_per_duration,
        durations_per_round=plan.durations_per_round,
        block_s=tuple(recording.block_s),
        block_calls=tuple(recording.block_calls),
        first_step_s=first_step_s,
        warmup_s=tuple(warmup.durations_s),
        warmup_calls=warmup.calls + calibration_calls,
    ).flagged(
        *(flag for flag, is_raised in flags.items() if is_raised), *clock.flags(recording.evidence)
    )
    if sketch is None:
        return samples
    # Too many durations to store: the medians of their rounds stand for them.
    return replace(
        samples,
        durations_s=tuple(recording.rounds_s),
        calls_per_duration=plan.calls_per_round,
        durations_per_round=1,
        reduced_from=replace(samples.timing, durations=recording.durations),
        sketch=sketch,
    ).flagged(SKETCHED)


def _time_blocks(
    task: Task,
    plan: Plan,
    *,
    clock: Clock,
    rule: StoppingRule,
    section: MeasureSection,
    agreement: RankAgreement,
    contention: Contention | None,
    on_progress: Progress | None,
) -> Recording:
    """Time blocks until the stopping rule is met; the agreement after each acts as a barrier."""
    checks, recording = CheckSchedule(section), Recording(plan, section)
    start_ns, elapsed_s = clock.now(), 0.0
    while durations := agreement.decide(rule.durations(recording, elapsed_s)):
        with contention or nullcontext():
            block = clock.block(
                task, durations=durations, calls_per_duration=plan.calls_per_duration
            )
        recording.add(block)
        recording.contended = contention is not None and contention.is_contended
        elapsed_s = (clock.now() - start_ns) * 1e-9
        if checks.due(recording.rounds, elapsed_s):
            recording.update_interval(checks.confidence)
        if on_progress is not None:
            on_progress(recording.rounds, recording.half_width)
    recording.update_interval(checks.confidence)
    return recording


@contextmanager
def _gc_disabled(*, collected_while_timing: bool) -> Iterator[None]:
    """Collect garbage, then disable the collector unless ``measure.gc`` is set."""
    gc.collect()
    was_enabled = gc.isenabled()
    if not collected_while_timing:
        gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
