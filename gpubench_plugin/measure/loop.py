"""The measuring loop: first call, warm-up, calibration, then timed blocks until the rule stops it.

Every decision between two blocks is rank zero's, through the agreement, so that all ranks run the
same number of calls whatever each of them sees. Nothing but the step runs inside a timed block.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING

from gpubench_plugin.flags import (
    CONTENDED,
    DEPENDENT,
    DRIFTING,
    NOT_CONVERGED,
    OUTLIERS,
    SKETCHED,
    UNSTEADY,
)
from gpubench_plugin.measure.clocks import Clock, Step, Task
from gpubench_plugin.measure.outliers import has_outliers
from gpubench_plugin.measure.plan import Plan, Planner
from gpubench_plugin.measure.recording import Recording
from gpubench_plugin.measure.stopping import Looks, StopRule, rule_for
from gpubench_plugin.measure.trend import is_trending
from gpubench_plugin.measure.warmup import warm_up
from gpubench_plugin.records import Samples, Sketch

if TYPE_CHECKING:
    from gpubench_plugin.config import FrozenRounds, MeasureSection
    from gpubench_plugin.distributed import RankAgreement
    from gpubench_plugin.measure.probes import Contention

Progress = Callable[[int, float], object]


def measure(
    step: Step,
    *,
    clock: Clock,
    section: MeasureSection,
    agreement: RankAgreement,
    frozen: FrozenRounds | None = None,
    setup: Step | None = None,
    teardown: Step | None = None,
    on_first: Step | None = None,
    contention: Contention | None = None,
    on_timed: Step | None = None,
    on_progress: Progress | None = None,
) -> Samples:
    """Measure `step` on this rank, one of those of the `agreement`.

    `setup` and `teardown` run around every call of it, outside the timed part. Rounds that are
    `frozen`, rank zero's on every rank, take the place of the rule that ends measuring.

    `on_first` is called once, after the first call and before the warm-up; `on_timed` once, when
    the timed calls begin; `on_progress` between blocks with the rounds so far and the relative
    half-width of the median's confidence interval at the last look, infinite before the first.

    Raises:
        MeasurementError: a duration that is not finite or not above zero.
        UsageProblem: the frozen rounds of a file cannot be timed on this clock.
    """
    task = Task(step=step, setup=setup, teardown=teardown)
    planner = Planner(clock=clock, section=section, world_size=agreement.world_size, bare=task.bare)
    if frozen is not None:
        frozen = planner.usable(frozen)
    with _garbage(collected_while_timing=section.gc):
        agreement.barrier()
        first_step_s = clock.first(task)
        if on_first is not None:
            on_first()
        warm = warm_up(task, clock=clock, section=section, agreement=agreement)
        steady = agreement.decide(int(warm.steady))
        calibration_calls = clock.calibrate(task)
        plan = planner.frozen(frozen, warm.pace) if frozen else planner.plan(warm.pace)
        plan = plan.agreed(agreement)
        rule = rule_for(section, agreement.decide(frozen.rounds if frozen else 0))
        if on_timed is not None:
            on_timed()
        recording = _timed(
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
    durations = sketch.typical() if sketch and sketch.kll else recording.durations_s
    flags = {
        UNSTEADY: not steady,
        DRIFTING: is_trending([*warm.tail_s, *recording.rounds_s], section.steady_tolerance),
        NOT_CONVERGED: not converged,
        DEPENDENT: recording.dependent,
        CONTENDED: recording.contended,
        OUTLIERS: has_outliers(durations or recording.rounds_s),
    }
    samples = Samples(
        timer=clock.timer,
        durations_s=tuple(recording.durations_s),
        calls_per_duration=plan.calls_per_duration,
        durations_per_round=plan.durations_per_round,
        block_s=tuple(recording.block_s),
        block_calls=tuple(recording.block_calls),
        first_step_s=first_step_s,
        warmup_s=tuple(warm.durations_s),
        warmup_calls=warm.calls + calibration_calls,
    ).flagged(*(flag for flag, holds in flags.items() if holds), *clock.flags(recording.evidence))
    return samples if sketch is None else _of_rounds(samples, recording, sketch)


def _of_rounds(samples: Samples, recording: Recording, sketch: Sketch) -> Samples:
    """The medians of the rounds in the place of durations that were too many to keep."""
    return replace(
        samples,
        durations_s=tuple(recording.rounds_s),
        calls_per_duration=recording.plan.calls_per_round,
        durations_per_round=1,
        reduced_from=replace(samples.timing, durations=recording.durations),
        sketch=sketch,
    ).flagged(SKETCHED)


def _timed(
    task: Task,
    plan: Plan,
    *,
    clock: Clock,
    rule: StopRule,
    section: MeasureSection,
    agreement: RankAgreement,
    contention: Contention | None,
    on_progress: Progress | None,
) -> Recording:
    """Timed blocks until the rule wants no more; the agreement on each is its barrier too."""
    looks, recording = Looks(section), Recording(plan, section)
    start_ns, elapsed_s = clock.now(), 0.0
    while durations := agreement.decide(rule.durations(recording, elapsed_s)):
        with contention or nullcontext():
            block = clock.block(
                task, durations=durations, calls_per_duration=plan.calls_per_duration
            )
        recording.add(block)
        recording.contended = contention is not None and contention.contended
        elapsed_s = (clock.now() - start_ns) * 1e-9
        if looks.due(recording.rounds, elapsed_s):
            recording.look(looks.confidence)
        if on_progress is not None:
            on_progress(recording.rounds, recording.half_width)
    recording.look(looks.confidence)
    return recording


@contextmanager
def _garbage(*, collected_while_timing: bool) -> Iterator[None]:
    """Start without garbage, and keep the collector out of the timing unless it is wanted."""
    gc.collect()
    enabled = gc.isenabled()
    if not collected_while_timing:
        gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
