"""Measuring loop: preparation, then timed blocks of a step, or of several variants that take turns.

A *turn* is a block of one variant. In each *pass* every variant has one turn, there and back: A B
C, C B A, A B C … so that neighbouring turns see the same machine, and a steady drift slows down all
variants alike. Before each turn one call is not timed: it brings the data of the variant back into
the caches, out of which the others have driven them. A single step has one block after the other.

Rank zero takes every decision between two blocks and broadcasts it, so that all ranks run the same
number of calls. Nothing but the step runs inside a timed block.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from gpubench_plugin.core.errors import Unsupported
from gpubench_plugin.environment.devices import synchronize
from gpubench_plugin.measure.clocks.base import Clock, Step, Task
from gpubench_plugin.measure.plan import FEWEST_BLOCKS, Planner, plan_turns
from gpubench_plugin.measure.recording import TimedBlocks, timed_samples
from gpubench_plugin.measure.stopping import (
    ByInterval,
    CheckSchedule,
    Progress,
    StoppingRule,
    make_rule,
)
from gpubench_plugin.measure.warmup import warm_up

if TYPE_CHECKING:
    import torch

    from gpubench_plugin.config.marks import Timing
    from gpubench_plugin.config.rounds_file import FixedRounds
    from gpubench_plugin.config.sections import MeasureSection
    from gpubench_plugin.core.records import Samples
    from gpubench_plugin.measure.probes.interference import Contention
    from gpubench_plugin.ranks.agreement import RankAgreement


@contextmanager
def naming(variant: str) -> Iterator[None]:
    """Add the name of the `variant`, if it has one, as a note to an exception that it raises."""
    try:
        yield
    except BaseException as error:
        if variant:
            error.add_note(f"in variant {variant!r}")
        raise


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A step with a clock of its own, which learns what it costs.

    `first_call_s` is the time of its first call, None before it. A single step has no name.
    """

    task: Task
    clock: Clock
    name: str = ""
    first_call_s: float | None = None


def measure(
    variants: Sequence[Variant],
    *,
    section: MeasureSection,
    agreement: RankAgreement,
    on_first: Step | None = None,
    fixed_rounds: FixedRounds | None = None,
    make_contention: Callable[[], Contention] | None = None,
    on_timed: Step | None = None,
    on_progress: Callable[[Progress], object] | None = None,
) -> list[Samples]:
    """Measure `variants` in turns on this rank of the `agreement`; all have equally many turns.

    Each is called first, unless it was before, and warmed up to its steady state. Turns go on until
    every variant meets the stopping rule or a limit; those of time count per variant. One that has
    met it takes its turns beside the others, and can have more than ``measure.max_rounds``. With
    ``measure.by=steps`` all have equally many calls, with `fixed_rounds`, those of the last one,
    equally many rounds; rank zero's `fixed_rounds`, on every rank, replace the stopping rule. The
    clock of the last variant keeps the result of its last call, the others release theirs after
    each turn.

    `on_first` is called once, before the warm-up, `on_timed` when the timed calls begin;
    `on_progress` after each pass with the progress of the variant with the widest interval.

    Raises:
        MeasurementError: a duration is not finite or not positive.
        UsageProblem: the rounds of ``measure.rounds_file`` cannot be timed on this clock.
    """
    planners = [
        Planner(clock=variant.clock, section=section, is_bare=variant.task.is_bare)
        for variant in variants
    ]
    if fixed_rounds is not None:
        fixed_rounds = planners[-1].usable_rounds(fixed_rounds)
    with gc_disabled(collected_while_timing=section.gc):
        agreement.barrier()
        first_calls_s = [
            v.clock.time_single_call(v.task) if v.first_call_s is None else v.first_call_s
            for v in variants
        ]
        if on_first is not None:
            on_first()
        is_counted = fixed_rounds is None and section.by == "steps"
        warmups = []
        for variant, planner, first_s in zip(variants, planners, first_calls_s, strict=True):
            with naming(variant.name):
                warmup = warm_up(
                    variant.task, planner, agreement, first_call_s=first_s, is_counted=is_counted
                )
            warmups.append(warmup)
        paces = [warmup.pace for warmup in warmups]
        plans = plan_turns(planners, paces, fixed_rounds)
        rounds = agreement.decide(fixed_rounds.rounds if fixed_rounds else 0)
        is_costly = agreement.decide(int(any(warmup.is_costly for warmup in warmups)))
        courses = [
            _Course(
                variant=variant,
                blocks=TimedBlocks(plan.broadcast(agreement), section),
                checks=CheckSchedule(section),
                contention=make_contention() if make_contention else None,
            )
            for variant, plan in zip(variants, plans, strict=True)
        ]
        turns = _Turns(
            courses=courses,
            rule=make_rule(section, rounds),
            agreement=agreement,
            leads_in=len(variants) > 1 and not is_costly,
        )
        if on_timed is not None:
            on_timed()
        turns.take(on_progress)
    return [
        timed_samples(course.blocks, warmup, is_cut_short=course.blocks.rounds < rounds).flagged(
            *(course.contention.flags if course.contention else ())
        )
        for course, warmup in zip(courses, warmups, strict=True)
    ]


@dataclass(frozen=True, kw_only=True)
class _Course:
    """A variant with its timed blocks, the checks of its interval, and what watches the blocks."""

    variant: Variant
    blocks: TimedBlocks
    checks: CheckSchedule
    contention: Contention | None


@dataclass(frozen=True, kw_only=True)
class _Turns:
    """Turns of the variants; before each an untimed call if it `leads_in`."""

    courses: Sequence[_Course]
    rule: StoppingRule
    agreement: RankAgreement
    leads_in: bool

    def take(self, on_progress: Callable[[Progress], object] | None) -> None:
        """Take turns until the stopping rule is met; every decision acts as a barrier."""
        now, count = self.courses[0].variant.clock.now, len(self.courses)
        start_ns, elapsed_s, direction = now(), 0.0, 1
        while True:
            lengths = self._lengths(elapsed_s)
            for course, length in [*zip(self.courses, lengths, strict=True)][::direction]:
                durations = self.agreement.decide(length)
                if durations == 0:  # of the first in the pass: then all have none
                    return
                with naming(course.variant.name):
                    self._take_turn(course, durations)
            direction = -direction
            elapsed_s = (now() - start_ns) * 1e-9 / count
            for course in self.courses:
                if course.checks.due(course.blocks.rounds, elapsed_s):
                    course.blocks.update_interval(course.checks.confidence)
            if on_progress is not None:
                widest = max((c.blocks for c in self.courses), key=lambda b: b.half_width)
                on_progress(Progress(widest, self.rule, elapsed_s, variants=count))

    def _lengths(self, elapsed_s: float) -> list[int]:
        """Durations of each variant's next turn; all zero to stop."""
        all_blocks = [course.blocks for course in self.courses]
        lengths = [self.rule.durations(blocks, elapsed_s) for blocks in all_blocks]
        lacks_turns = (
            len(lengths) > 1
            and isinstance(self.rule, ByInterval)
            and len(all_blocks[0].block_s) < FEWEST_BLOCKS
            and elapsed_s < self.rule.section.max_time_s
        )
        if not any(lengths) and not lacks_turns:
            return lengths
        return [
            length or blocks.plan.durations_per_block
            for length, blocks in zip(lengths, all_blocks, strict=True)
        ]

    def _take_turn(self, course: _Course, durations: int) -> None:
        """Time a block of that variant, of several after an untimed call."""
        variant, blocks = course.variant, course.blocks
        if self.leads_in:
            variant.clock.time_single_call(variant.task)
            self.agreement.barrier()
        with course.contention or nullcontext():
            block = variant.clock.block(
                variant.task, durations=durations, calls_per_duration=blocks.plan.calls_per_duration
            )
        blocks.add(block)
        if course is not self.courses[-1]:
            variant.clock.take_result()


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


def clock_for(
    device: torch.device, *, timing: Timing = "step", cache: Literal["hot", "cold"] = "hot"
) -> Clock:
    """Clock for `device`; call after setting the number of CPU threads.

    Only CUDA knows the `timing` ``kernel``, and only there the `cache` matters.

    Raises:
        Unsupported: there is no clock for this type of device.
    """
    from gpubench_plugin.measure.clocks import host

    if device.type == "cpu":
        return host.CpuClock()
    from gpubench_plugin.measure.clocks import cuda_device, cuda_kernel, cuda_step

    match device.type:
        case "cuda" if timing == "kernel":
            return cuda_kernel.CudaKernelClock(cuda_device.TorchCuda(device), cache=cache)
        case "cuda":
            return cuda_step.CudaStepClock(cuda_device.TorchCuda(device))
        case "mps" | "xpu" as name:
            wait = partial(synchronize, device)
            return host.SynchronisedClock(wait, timer=f"{name}_synchronised")
        case other:
            raise Unsupported(f"no clock for device type {other!r}")
