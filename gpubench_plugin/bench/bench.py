"""Bench: one measurement on one rank: check, measure, reduce over the ranks, compute metrics."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.bench.amounts import refuse_contradicting_amounts, stated_work
from gpubench_plugin.bench.extra_calls import inspect_call, profile_steps, run_traced
from gpubench_plugin.bench.metric_log import MetricLog
from gpubench_plugin.bench.progress import ProgressLog
from gpubench_plugin.bench.step import (
    FirstCallValidator,
    TimedStep,
    has_been_used,
    refuse_unfinished,
)
from gpubench_plugin.bench.throttling import ThrottlePolicy
from gpubench_plugin.config import fixture_names
from gpubench_plugin.errors import UsageProblem, error_text
from gpubench_plugin.measure import CustomMetric, build_measurement
from gpubench_plugin.records import Better, Check, Measurement, Observation, Samples, Work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import torch
    from torch import nn

    from gpubench_plugin.bench.benchmark_parts import BenchmarkParts
    from gpubench_plugin.bench.own_models import OwnModels
    from gpubench_plugin.config import Case
    from gpubench_plugin.distributed import ProcessGroup, Reduction
    from gpubench_plugin.launchers import BenchmarkState, RunContext
    from gpubench_plugin.measure import Progress, Subject
    from gpubench_plugin.measure.clocks import Step
    from gpubench_plugin.precision import Precision

    OptimizerOf = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


class Bench:
    """Value of the ``gpubench`` fixture: call it once with the step to measure.

    Amounts are per rank and per call of the step. Checks run before the timing.
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
        parts: BenchmarkParts,
        own_models: OwnModels | None = None,
    ):
        assert state.carrier is not None
        self._item = item
        self._state = state
        self._carrier = state.carrier
        self._notes = state.notes
        self._context = context
        self._device = device
        self._precision = precision
        self._group = group
        self._parts = parts
        self._own_models = own_models
        self._measured_once = False
        self._result: object = None
        self._has_result = False
        self._custom_metrics: dict[str, CustomMetric] = {}
        self._metric_log = MetricLog(state.case.id, state.notes.log)

    @property
    def _case(self) -> Case:
        """The case, which is reconfigured where a batch size is fitted."""
        return self._state.case

    @property
    def _reduction(self) -> Reduction:
        from gpubench_plugin.distributed import Reduction

        grace_s = self._case.configuration.distributed.failure_grace_s
        return Reduction(self._group, self._case.id, grace_s=grace_s)

    @property
    def _throttling(self) -> ThrottlePolicy:
        return ThrottlePolicy(case=self._case, notes=self._notes, context=self._context)

    @property
    def result(self) -> object:
        """Result of the last timed call of the step, to be asserted on; not recorded.

        Raises:
            UsageProblem: nothing has been measured yet.
        """
        if not self._has_result:
            raise UsageProblem(f"{self._case.id}: gpubench.result was read before a measurement")
        return self._result

    def release(self) -> None:
        """Drop the reference to the result at the end of the test."""
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

        A subject (`trainer`, `inference`, …), or its own ``step``, has its amounts, FLOPs and
        facts. Any other callable has the amounts stated here. `setup` and `teardown` run around
        every call, outside the timed part.

        Raises:
            UsageProblem: called a second time, `step` is not callable or returns unfinished work,
                or an amount is not a positive number or contradicts the subject's.
            CorrectnessError: a check failed, or the subject's step did not take one step.
            MeasurementError: a number is impossible.
            Throttled: the GPU was throttled, and ``measure.throttle=fail``.
            Unsupported: ``training.deterministic``, but an operation has no deterministic form.
        """
        amounts = {"samples": samples, "tokens": tokens, "bytes": bytes, "flops": flops}
        with self._noting():
            stated = self._claim_measurement(amounts)
            timed = TimedStep.of(step, self._case.id, setup=setup, teardown=teardown)
            return self._run_measurement(timed, stated)

    def train(
        self,
        model: nn.Module | Callable[[], nn.Module],
        batch: object,
        loss: Callable[..., torch.Tensor] | None = None,
        *,
        optimizer: str | OptimizerOf | None = None,
        samples: int | None = None,
        tokens: float | None = None,
        flops: float | None = None,
    ) -> Measurement:
        """Measure a training step of a copy of `model` on `batch`, as of the fixture ``trainer``.

        A function as `model` builds it. A tuple as `batch` is the model's inputs, then the targets
        of `loss`; a dictionary has the model's keyword arguments, and is the loss' second argument.
        A loss of (model, batch) calls the model itself; None takes the loss in the model's output.
        `optimizer` is a name of ``training.optimizer``, or a function of the parameters.

        Raises:
            UsageProblem: these do not fit together, or contradict the configuration.
            CorrectnessError: the model does not learn, or differs from fp32.
        """
        with self._noting():
            models = self._claim_models("train")
            trainer = models.trainer(model, batch, loss, optimizer=optimizer, samples=samples)
        return self(trainer, tokens=tokens, flops=flops)

    def infer(
        self,
        model: nn.Module | Callable[[], nn.Module],
        batch: object,
        *,
        samples: int | None = None,
        tokens: float | None = None,
        flops: float | None = None,
    ) -> Measurement:
        """Measure a forward pass of a copy of `model` on `batch`, as of the fixture ``inference``.

        A function as `model` builds it. A tuple or dictionary as `batch` has its arguments.

        Raises:
            UsageProblem: these do not fit together, or contradict the configuration.
            CorrectnessError: an output is not finite.
        """
        with self._noting():
            models = self._claim_models("infer")
            inference = models.inference(model, batch, samples=samples)
        return self(inference, tokens=tokens, flops=flops)

    def _claim_models(self, method: str) -> OwnModels:
        """What builds own models, in the benchmark's precision: without the fixture, fp32."""
        assert self._own_models is not None
        if self._measured_once:
            raise UsageProblem(f"{self._case.id}: gpubench.{method} was called after a measurement")
        self._precision = self._own_models.precision
        return self._own_models

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """Note what is raised, since the test may catch it and pass."""
        try:
            yield
        except BaseException as error:
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
        """Add a custom metric to the record; must be called before the step is measured.

        A function is called after the timed calls. Of several ranks rank zero's value counts.

        Raises:
            UsageProblem: called after the measurement or twice. The measurement checks the unit.
        """
        if self._measured_once:
            raise UsageProblem(
                f"{self._case.id}: gpubench.record({name!r}) was called after the measurement"
            )
        if name in self._custom_metrics:
            raise UsageProblem(f"{self._case.id}: gpubench.record({name!r}) was called twice")
        self._custom_metrics[name] = CustomMetric(name=name, value=value, unit=unit, better=better)

    def log(self, /, *, step: int, **metrics: object) -> None:
        """Log numbers of a step of one's own, points of curves in the run's journal.

        It may be called any number of times, before and after the measurement, but not in the
        measured step. Tensors without a dimension are read, which waits for their device. Of
        several ranks rank zero's values count.

        Raises:
            UsageProblem: called in the measured step, or the step, a name or a value is none.
        """
        self._metric_log.log(step, metrics)

    def _run_measurement(self, timed: TimedStep, stated: Work) -> Measurement:
        from gpubench_plugin.measure import Tracers
        from gpubench_plugin.results import append, pytest_benchmark
        from gpubench_plugin.training import nondeterminism_errors

        subject = timed.subject
        if subject is not None:
            self._parts.include(subject)
        if pytest_benchmark.measuring_disabled(self._carrier):
            return self._run_once(timed)
        traffic_before = self._group.control.traffic
        was_used = self._parts.stop_tracking() or has_been_used(timed)
        with nondeterminism_errors():
            check = self._prepare(subject)
            first_s = check.facts.get("first_step_s")  # if the check took the first step
            # Checks of a subject beside a foreign step may have compiled and allocated for it.
            has_other_subject = subject is None and bool(self._parts.subjects)
            may_have_warmed_up = was_used or (
                first_s is None and (has_other_subject or has_been_used(timed))
            )
            own_work = Work() if subject is None else subject.work()
            if subject is not None:
                refuse_contradicting_amounts(stated, own_work, subject, self._case.id)
            samples, facts = self._measure(timed, stated, own_work)
        self._notes.enter("inspect")
        samples = samples.flagged(*check.flags)
        if may_have_warmed_up or first_s is not None:
            samples = replace(samples, first_step_s=None if may_have_warmed_up else first_s)
        samples, products, memory = inspect_call(
            timed, samples, precision=self._precision, tensors=self._parts.tensor_memory
        )
        check = replace(check, correctness={**check.correctness, **products})
        if self._case.configuration.profiling.enabled:
            self._notes.enter("profile")
        profile_steps(timed, case=self._case, context=self._context, device=self._device)
        observation = Observation(
            samples=samples,
            work=self._work(stated, own_work, subject),
            device=self._device.type,
            device_name=self._case.device.model,
            precision="" if self._precision is None else self._precision.compute_dtype,
            world_size=1,
            facts={**check.facts, **facts, **memory},
        )
        measurement = self._conclude(observation, check)
        if self._group.world.size > 1:
            self._notes.log(
                {"event": "traffic", **asdict(self._group.control.traffic - traffic_before)}
            )
            if self._context.ranks_folder is not None:
                append(self._context.ranks_folder, self._group.world.rank, self._case.id, samples)
        # Paused here, since pytest-benchmark's own pause makes coverage lose the rest of the test:
        # 4 of 8 lines, pytest-benchmark 5.3.1 with coverage 7.
        Tracers().paused(partial(pytest_benchmark.store_result, self._carrier, measurement))
        self._context.carried[self._case.id] = self._carrier.stats
        if self._group.world.is_root:  # only rank zero's is reported
            self._notes.measurement = measurement
        return measurement

    def _claim_measurement(self, amounts: Mapping[str, object]) -> Work:
        """Claim the benchmark's single measurement; return the stated `amounts`."""
        if self._measured_once:
            raise UsageProblem(f"{self._case.id}: gpubench was called twice; one step per test")
        self._measured_once = True
        return stated_work(amounts, self._case.id)

    def _run_once(self, timed: TimedStep) -> Measurement:
        from gpubench_plugin.results import pytest_benchmark

        result = pytest_benchmark.run_once(self._carrier, timed.call, timed.setup, timed.teardown)
        refuse_unfinished(result, timed.call, self._case.id)
        self._result, self._has_result = result, True
        self._notes.error_reason = "measuring is disabled (--benchmark-disable)"
        return self._case.unmeasured("not_measured", self._notes.error_reason)

    def _prepare(self, subject: Subject | None) -> Check:
        """Run the untimed checks, the timed `subject`'s last; a failure on one rank fails all."""
        self._notes.enter("compile" if self._is_compiled(subject) else "check")
        check = Check()
        failure: BaseException | None = None
        try:
            check = self._parts.check(subject, self._notes.log)
        except (Exception, pytest.skip.Exception, pytest.fail.Exception) as error:
            failure = error  # raised below, once all ranks know: none may wait for a failed one
        self._reduction.raise_check_failures(failure)
        return check

    def _measure(
        self, timed: TimedStep, stated: Work, own_work: Work
    ) -> tuple[Samples, dict[str, float]]:
        from gpubench_plugin.measure import Tracers, measure
        from gpubench_plugin.measure.clocks import clock_for
        from gpubench_plugin.measure.probes import (
            Contention,
            DeviceState,
            MemoryGrowth,
            PeakMemory,
            Suspension,
        )

        section = self._case.configuration.measure
        clock = clock_for(self._device, timing=self._case.timing, cache=section.cache)
        first_call = FirstCallValidator(timed, self._parts.subjects, self._case.id, stated=stated)
        tracers, tensors = Tracers(), self._parts.tensor_memory
        growth = MemoryGrowth(self._device)
        amounts = replace(own_work, **stated.known_amounts)
        progress_log = ProgressLog(self._notes.log, amounts, self._group.world.size)

        def on_first_call() -> None:
            failure: Exception | None = None
            try:
                first_call.validate(clock.take_result())  # releases the result
            except Exception as error:  # raised below, once all ranks know
                failure = error
            self._reduction.raise_check_failures(failure)
            self._notes.enter("warm-up")
            if tensors is not None:
                tensors.watch(timed.run_briefly)
            growth.begin()

        def on_timed() -> None:
            progress_log.begin()
            first_call.begin()
            device_state.begin()

        def on_block(progress: Progress) -> None:
            growth.block_ended()
            progress_log.block_ended(progress)

        with ExitStack() as probes:
            memory = probes.enter_context(PeakMemory(self._device, clock.prepare()))
            device_state = probes.enter_context(
                DeviceState(self._device, sharing_ranks=self._sharing_ranks)
            )
            clock.on_launched = device_state.sample
            self._throttling.guard(
                device_state, agreement=self._group.agreement, reduction=self._reduction
            )
            suspension = probes.enter_context(Suspension())
            measured = partial(
                measure,
                timed.call,
                clock=clock,
                section=section,
                agreement=self._group.agreement,
                fixed_rounds=self._case.fixed_rounds,
                setup=self._metric_log.around_calls(timed.setup),
                teardown=self._metric_log.around_calls(timed.teardown),
                contention=Contention(),
                on_first=on_first_call,
                on_timed=on_timed,
                on_progress=on_block,
            )
            with self._metric_log.refused():
                samples = tracers.paused(measured)
        first_call.end(samples.calls, clock.result)
        self._result, self._has_result = clock.result, True
        facts = {**memory.facts, **device_state.facts, **self._facts(timed)}
        if (event := device_state.event) is not None:
            self._notes.log(event)
        for subject in first_call.advanced:
            step_counts = subject.finish()  # checks the timed calls, of foreign steps as well
            if subject is timed.subject:
                facts.update(step_counts, **self._parts.facts(subject))
        if (wrapped := first_call.wrapped) is not None and stated.flops is not None:
            self._work(stated, wrapped.work(), wrapped)  # refuses FLOPs other than counted
        run_traced(
            timed,
            tracers,
            agreement=self._group.agreement,
            has_census=self._precision is not None or tensors is not None,
        )
        growth_flags = growth.flags(samples.block_calls, samples.calls_per_duration)
        flags = (
            *memory.flags,
            *growth_flags,
            *device_state.flags,
            *suspension.flags,
            *tracers.flags,
        )
        return samples.flagged(*flags), facts

    @property
    def _sharing_ranks(self) -> int:
        """Ranks that use this one's device."""
        return self._group.world.local_size if self._case.shares_device else 1

    def _facts(self, timed: TimedStep) -> dict[str, float]:
        """Facts about the step from the configuration."""
        return {
            "compiled": float(self._is_compiled(timed.subject)),
            "confidence": self._case.configuration.measure.confidence,
            "processors": float(os.cpu_count() or 0),
        }

    def _is_compiled(self, subject: Subject | None) -> bool:
        has_model = subject is not None or "model" in fixture_names(self._item)
        return has_model and self._case.configuration.model.compile != "none"

    def _work(self, stated: Work, subject_work: Work, subject: Subject | None) -> Work:
        """Merge the `stated` amounts with the subject's, counting its FLOPs.

        Raises:
            UsageProblem: a stated amount contradicts the subject's.
        """
        if subject is None:
            return stated
        subject_work = replace(subject_work, flops=subject_work.flops or self._count_flops(subject))
        refuse_contradicting_amounts(stated, subject_work, subject, self._case.id)
        return replace(subject_work, **stated.known_amounts)

    def _count_flops(self, subject: Subject) -> float | None:
        """Count the FLOPs of one call on fake tensors; ops without a formula are journalled.

        So is the reason where they cannot be counted, None.
        """
        from gpubench_plugin.measure.probes import count_flops

        try:
            flops = count_flops(subject.flops_step)
        except Exception as error:  # a model that needs values, while everything is measured
            self._notes.log({"event": "flops", "per_call": None, "reason": error_text(error)})
            return None
        self._notes.log(
            {"event": "flops", "per_call": flops.total, "uncounted_ops": flops.uncounted_ops}
        )
        return flops.total or None

    def _conclude(self, observation: Observation, check: Check) -> Measurement:
        """Build the measurement over all ranks; ranks other than zero get their own.

        Errors on rank zero fail the benchmark on every rank.
        """
        failure: Exception | None = None
        try:
            reduced = self._reduction.merge(observation)
            measurement = build_measurement(
                self._item, self._case, reduced, check, custom_metrics=self._custom_metrics.values()
            )
            if self._group.world.is_root:  # whose flags are those of all ranks
                self._throttling.refuse(measurement)
        except Exception as error:
            failure = error
        self._reduction.raise_conclusion(failure)
        return measurement
