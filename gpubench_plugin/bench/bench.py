"""The bench: one measurement on the rank side, from the untimed checks to the record.

Its stages, in order: check, measure, reduce over the ranks, compute the metrics.
"""

from __future__ import annotations

import math
import os
import re
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any, cast

import pytest

from gpubench_plugin.bench.step import (
    FirstCall,
    TimedStep,
    has_been_used,
    refuse_contradiction,
    refuse_unfinished,
)
from gpubench_plugin.config import fixture_names
from gpubench_plugin.errors import UsageProblem
from gpubench_plugin.flags import PRECISION_UNUSED
from gpubench_plugin.measure import OwnMetric, measurement_of
from gpubench_plugin.records import Better, Check, Measurement, Observation, Samples, Work

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import torch

    from gpubench_plugin.bench.parts import Parts
    from gpubench_plugin.config import Case
    from gpubench_plugin.distributed import ProcessGroup, Reduction
    from gpubench_plugin.launchers import BenchmarkState, RunContext
    from gpubench_plugin.measure import Subject, Tracers
    from gpubench_plugin.measure.clocks import Step
    from gpubench_plugin.precision import Precision


class Bench:
    """What the fixture ``gpubench`` gives: call it once with the step to measure.

    Amounts are per rank and per call of the step. Checks happen before the timing.
    """

    def __init__(
        self,
        item: pytest.Item,
        *,
        state: BenchmarkState,
        context: RunContext,
        device: torch.device,
        precision: Precision | None,
        group: ProcessGroup,
        parts: Parts,
    ):
        assert state.carrier is not None
        self._item = item
        self._case = state.case
        self._carrier = state.carrier
        self._notes = state.notes
        self._context = context
        self._device = device
        self._precision = precision
        self._group = group
        self._parts = parts
        self._called = False
        self._result: object = None
        self._has_result = False
        self._own: dict[str, OwnMetric] = {}

    @property
    def _reduction(self) -> Reduction:
        from gpubench_plugin.distributed import Reduction

        grace_s = self._case.configuration.distributed.failure_grace_s
        return Reduction(self._group, self._case.id, grace_s=grace_s)

    @property
    def result(self) -> object:
        """What the last timed call of the step returned; it is never recorded.

        It is what was timed, to be asserted on. It lives no longer than the test.

        Raises:
            UsageProblem: nothing has been measured yet.
        """
        if not self._has_result:
            raise UsageProblem(f"{self._case.id}: gpubench.result without a measurement")
        return self._result

    def release(self) -> None:
        """Let go of the result: the test is over."""
        self._result = None

    def __call__(
        self,
        step: Step | Subject,
        *,
        samples: float | None = None,
        tokens: float | None = None,
        bytes: float | None = None,
        flops: float | None = None,
        setup: Step | None = None,
        teardown: Step | None = None,
    ) -> Measurement:
        """Measure `step` and return this rank's measurement.

        A subject (`trainer`, `inference`, …), or its own ``step``, brings its amounts, FLOPs and
        facts. Any other callable has the amounts that are given here, whatever else the test asks
        for. `setup` and `teardown` run around every call, outside the timed part.

        Raises:
            UsageProblem: called a second time, `step` cannot be called or returns something that
                is still to be run, or an amount is no positive number or not the subject's.
            CorrectnessError: what is measured computes something wrong, or the subject's step did
                not take one step.
            MeasurementError: the numbers cannot be true.
            Unsupported: an operation has no deterministic form, and must have one.
        """
        amounts = {"samples": samples, "tokens": tokens, "bytes": bytes, "flops": flops}
        try:
            stated_work = self._claim(amounts)
            timed = TimedStep.of(step, self._case.id, setup=setup, teardown=teardown)
            return self._measured(timed, stated_work)
        except BaseException as error:  # the test may catch it, and pass
            self._notes.raised(error)
            raise

    def record(
        self,
        name: str,
        value: float | Callable[[], float],
        *,
        unit: str = "1",
        better: Better = "none",
    ) -> None:
        """Add a metric of your own to the record; say so before the step is measured.

        A function is asked after the timed calls. Of several ranks rank zero's value counts.

        Raises:
            UsageProblem: said too late or twice, or the unit is not in :data:`.metrics.base.UNITS`.
        """
        if self._called:
            raise UsageProblem(f"{self._case.id}: gpubench.record({name!r}) after the measurement")
        if name in self._own:
            raise UsageProblem(f"{self._case.id}: gpubench.record({name!r}) was said twice")
        self._own[name] = OwnMetric(name=name, value=value, unit=unit, better=better)

    def _measured(self, timed: TimedStep, stated_work: Work) -> Measurement:
        from gpubench_plugin.measure import Tracers
        from gpubench_plugin.results import append, pytest_benchmark
        from gpubench_plugin.training import naming_what_is_not_deterministic

        subject = timed.subject
        if subject is not None:
            self._parts.include(subject)
        if pytest_benchmark.measuring_disabled(self._carrier):
            return self._run_once(timed)
        before = self._group.control.traffic
        used = self._parts.end_watching() or has_been_used(timed)
        with naming_what_is_not_deterministic():
            check = self._prepare(subject)
            first_s = check.facts.get("first_step_s")  # where the very first step was the check's
            # The checks, which are over, may have made the first call of what is timed: that of a
            # subject beside a foreign step has compiled, and allocated, what the step calls.
            beside = subject is None and bool(self._parts.subjects)
            unseen = used or (first_s is None and (beside or has_been_used(timed)))
            own_work = Work() if subject is None else subject.work()
            if subject is not None:
                refuse_contradiction(stated_work, own_work, subject, self._case.id)
            samples, facts = self._measure(timed, stated_work)
        samples = samples.flagged(*check.flags)
        if unseen or first_s is not None:
            samples = replace(samples, first_step_s=None if unseen else first_s)
        samples, products, memory = self._take_census(samples, timed)
        check = replace(check, correctness={**check.correctness, **products})
        self._profile(timed)
        work = self._work(stated_work, own_work, subject)
        own = Observation(
            samples=samples,
            work=work,
            device=self._device.type,
            device_name=self._case.device.model,
            precision="" if self._precision is None else self._precision.compute_dtype,
            world_size=1,
            facts={**check.facts, **facts, **memory},
        )
        measurement = self._conclude(own, check)
        if self._group.world.size > 1:
            self._notes.log({"event": "traffic", **asdict(self._group.control.traffic - before)})
            if self._context.ranks_folder is not None:
                append(self._context.ranks_folder, self._group.world.rank, self._case.id, samples)
        # Its own pause, which then has nothing to do, makes coverage lose the rest of the test:
        # 4 of 8 lines, pytest-benchmark 5.3.1 with coverage 7.
        Tracers().paused(partial(pytest_benchmark.carry, self._carrier, measurement))
        self._context.carried[self._case.id] = self._carrier.stats
        if self._group.world.is_root:  # the others' would be sent for nothing
            self._notes.measurement = measurement
        return measurement

    def _claim(self, amounts: Mapping[str, object]) -> Work:
        """Let the benchmark be measured once; the `amounts` that its caller states."""
        if self._called:
            raise UsageProblem(f"{self._case.id}: gpubench was called twice; one step per test")
        self._called = True
        stated = {name: amount for name, amount in amounts.items() if amount is not None}
        for name, amount in stated.items():
            if not _is_amount(amount):
                raise UsageProblem(
                    f"{self._case.id}: {name}={_shown(amount)}; allowed: a number above 0"
                )
        return Work(**{name: float(cast("float", amount)) for name, amount in stated.items()})

    def _run_once(self, timed: TimedStep) -> Measurement:
        from gpubench_plugin.results import pytest_benchmark

        result = pytest_benchmark.run_once(self._carrier, timed.call, timed.setup, timed.teardown)
        refuse_unfinished(result, timed.call, self._case.id)
        self._result, self._has_result = result, True
        self._notes.not_measured = "measuring is off (--benchmark-disable)"
        return self._case.record("not_measured", self._notes.not_measured)

    def _prepare(self, subject: Subject | None) -> Check:
        """The untimed checks, of the timed `subject` last; one rank's failure is every rank's."""
        check = Check()
        failure: BaseException | None = None
        try:
            check = self._parts.check(subject, self._notes.log)
        except (Exception, pytest.skip.Exception, pytest.fail.Exception) as error:
            # Raised again below, once all ranks know: none may wait for one that gave up.
            failure = error
        self._reduction.checked(failure)
        return check

    def _measure(self, timed: TimedStep, stated: Work) -> tuple[Samples, dict[str, float]]:
        from gpubench_plugin.measure import Tracers, measure
        from gpubench_plugin.measure.clocks import clock_for
        from gpubench_plugin.measure.probes import (
            Contention,
            MemoryGrowth,
            PeakMemory,
            Suspension,
            Throttling,
        )

        section = self._case.configuration.measure
        clock = clock_for(self._device, section)
        first = FirstCall(timed, self._parts.subjects, self._case.id, stated=stated)
        tracers, tensors = Tracers(), self._parts.tensor_memory
        growth = MemoryGrowth(self._device)

        def first_ended() -> None:
            failure: Exception | None = None
            try:
                first.look(clock.taken())  # which is gone then, and in nobody's memory
            except Exception as error:  # raised again below, once all ranks know
                failure = error
            self._reduction.checked(failure)
            if tensors is not None:
                tensors.watch(timed.run_briefly)
            growth.begin()

        def block_ended(rounds: int, half_width: float) -> None:
            growth.block_ended()
            if self._context.progress is not None:
                self._context.progress(rounds, half_width)

        with ExitStack() as probes:
            memory = probes.enter_context(PeakMemory(self._device))
            throttling = probes.enter_context(Throttling(self._device))
            suspension = probes.enter_context(Suspension())
            measured = partial(
                measure,
                timed.call,
                clock=clock,
                section=section,
                agreement=self._group.agreement,
                frozen=self._case.rounds,
                setup=timed.setup,
                teardown=timed.teardown,
                contention=Contention(),
                on_first=first_ended,
                on_timed=first.begin,
                on_progress=block_ended,
            )
            samples = tracers.paused(measured)
        first.end(samples.calls, clock.result)
        self._result, self._has_result = clock.result, True
        facts = memory.facts | self._facts(timed)
        for subject in first.advanced:
            counted = subject.finish()  # its check of them, too, which holds for a foreign step
            if subject is timed.subject:
                facts.update(counted, **self._parts.facts(subject))
        if first.wrapped is not None and stated.flops is not None:
            self._work(stated, first.wrapped.work(), first.wrapped)  # refused if not those counted
        self._show_tracers(tracers, timed)
        grown = growth.flags(samples.block_calls, samples.calls_per_duration)
        flags = (*memory.flags, *grown, *throttling.flags, *suspension.flags, *tracers.flags)
        return samples.flagged(*flags), facts

    def _facts(self, timed: TimedStep) -> dict[str, float]:
        """What the configuration says of the step."""
        configuration = self._case.configuration
        has_model = timed.subject is not None or "model" in fixture_names(self._item)
        return {
            "compiled": float(has_model and configuration.model.compile != "none"),
            "confidence": configuration.measure.confidence,
            "processors": float(os.cpu_count() or 0),
        }

    def _show_tracers(self, tracers: Tracers, timed: TimedStep) -> None:
        """Run a step once more where coverage, say, has not followed any; a subject's check was.

        One that fails then, as it has nothing left to read, takes nothing from what was measured.
        """
        # The census, where there is one, is a traced call as well.
        counted = self._precision is not None or self._parts.tensor_memory is not None
        unseen = tracers.were_paused and timed.subject is None and not counted
        if self._group.agreement.decide(int(unseen)):
            with suppress(Exception):
                timed.run()

    def _take_census(
        self, samples: Samples, timed: TimedStep
    ) -> tuple[Samples, dict[str, Any], dict[str, float]]:
        """What one more call, untimed, works on: correctness and facts of it.

        It is made where the benchmark claims a precision, and on a CPU, whose tensors are counted.
        The samples get the flag ``precision_unused`` where nothing bears the claim out.
        """
        tensors = self._parts.tensor_memory
        if self._precision is None and tensors is None:
            return samples, {}, {}
        from gpubench_plugin.measure.probes import take_census

        census = take_census(timed.run_briefly)
        if tensors is not None:
            tensors.add_older(None if census is None else census.inputs)
        facts = {} if tensors is None else tensors.facts
        if self._precision is None:
            return samples, {}, facts
        if census is None or not census.bears_out(self._precision.compute_dtype):
            samples = samples.flagged(PRECISION_UNUSED)
        return samples, {"product_dtypes": census and dict(census.products)}, facts

    def _work(self, stated: Work, own: Work, subject: Subject | None) -> Work:
        """The work the caller gave, completed by the timed subject's `own`; its FLOPs counted.

        Raises:
            UsageProblem: FLOPs were given, and are not those counted.
        """
        if subject is None:
            return stated
        own = replace(own, flops=own.flops or self._count_flops(subject))
        refuse_contradiction(stated, own, subject, self._case.id)
        return replace(own, **stated.known)

    def _count_flops(self, subject: Subject) -> float | None:
        """FLOPs of one call, counted on fake tensors; what has no formula is journalled."""
        from gpubench_plugin.measure.probes import count_flops

        counted = count_flops(subject.flops_step)
        self._notes.log(
            {"event": "flops", "per_call": counted.total, "uncounted_ops": counted.uncounted_ops}
        )
        return counted.total or None

    def _profile(self, timed: TimedStep) -> None:
        """Trace a few extra steps, on every rank alike; rank zero writes the trace."""
        section, run = self._case.configuration.profiling, self._context.run
        if not section.enabled:
            return
        from gpubench_plugin.measure.probes import profile

        profile(
            timed.run,
            section=section,
            device=self._device,
            path=None if run is None else run.traces / f"{file_name(self._case)}.json",
        )

    def _conclude(self, own: Observation, check: Check) -> Measurement:
        """The measurement of all ranks; on ranks other than zero, of this one.

        What rank zero finds wrong with the numbers fails the benchmark on every rank.
        """
        failure: Exception | None = None
        try:
            seen = self._reduction.over_ranks(own)
            measurement = measurement_of(
                self._item, self._case, seen, check, own=self._own.values()
            )
        except Exception as error:
            failure = error
        self._reduction.concluded(failure)
        return measurement


def _is_amount(amount: object) -> bool:
    if isinstance(amount, bool) or not isinstance(amount, Real):
        return False
    try:
        return 0 < float(amount) < math.inf
    except OverflowError:  # a whole number that no float reaches
        return False


def _shown(amount: object) -> str:
    try:
        return f"{amount!r:.40}"
    except ValueError:  # Python writes no more than 4,300 digits
        return "a number of thousands of digits"


def file_name(case: Case) -> str:
    """The case's name as a file's: what a file system might refuse is replaced."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", case.name).strip("-")
