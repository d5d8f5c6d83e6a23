"""Measuring loop of one step: first call, preparation, timed blocks.

Rank zero takes every decision between two blocks and broadcasts it, so that all ranks run the same
number of calls. Nothing but the step runs inside a timed block.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from gpubench_plugin.measure.clocks.base import Clock, Step, Task
from gpubench_plugin.measure.plan import Planner
from gpubench_plugin.measure.preparation import prepare
from gpubench_plugin.measure.progress import Progress
from gpubench_plugin.measure.recording import TimedBlocks
from gpubench_plugin.measure.stopping import CheckSchedule, StoppingRule, make_rule
from gpubench_plugin.measure.timed_samples import timed_samples

if TYPE_CHECKING:
    from gpubench_plugin.config.rounds_file import FixedRounds
    from gpubench_plugin.config.sections import MeasureSection
    from gpubench_plugin.core.records import Samples
    from gpubench_plugin.measure.plan import Plan
    from gpubench_plugin.measure.probes.contention import Contention
    from gpubench_plugin.ranks.process_group import RankAgreement


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
    on_progress: Callable[[Progress], object] | None = None,
) -> Samples:
    """Measure `step` on this rank of the `agreement`.

    `setup` and `teardown` run around every call, outside the timed part. `fixed_rounds`, rank
    zero's on every rank, replace the stopping rule.

    `on_first` is called once, after the first call and before the warm-up; `on_timed` once, when
    the timed calls begin; `on_progress` between blocks.

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
    with gc_disabled(collected_while_timing=section.gc):
        agreement.barrier()
        first_step_s = clock.time_first_call(task)
        if on_first is not None:
            on_first()
        preparation = prepare(
            task,
            clock=clock,
            section=section,
            agreement=agreement,
            first_call_s=first_step_s,
            is_counted=fixed_rounds is None and section.by == "steps",
        )
        plan = planner.plan(preparation.pace, fixed=fixed_rounds).broadcast(agreement)
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
    return timed_samples(
        recording,
        preparation,
        clock=clock,
        tolerance=section.steady_tolerance,
        converged=bool(agreement.decide(int(rule.converged(recording)))),
    )


def _time_blocks(
    task: Task,
    plan: Plan,
    *,
    clock: Clock,
    rule: StoppingRule,
    section: MeasureSection,
    agreement: RankAgreement,
    contention: Contention | None,
    on_progress: Callable[[Progress], object] | None,
) -> TimedBlocks:
    """Time blocks until the stopping rule is met; the agreement after each acts as a barrier."""
    checks, recording = CheckSchedule(section), TimedBlocks(plan, section)
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
            on_progress(Progress(recording, rule, elapsed_s))
    recording.update_interval(checks.confidence)
    return recording


@contextmanager
def gc_disabled(*, collected_while_timing: bool) -> Iterator[None]:
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
