"""Bench: one measurement on one rank: check, measure, reduce over the ranks, compute metrics."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from gpubench_plugin.bench.amounts import refuse_contradicting_amounts
from gpubench_plugin.bench.comparison import Comparison
from gpubench_plugin.bench.extra_calls import inspect_call
from gpubench_plugin.bench.metric_log import name_problem
from gpubench_plugin.bench.step import (
    FirstCallValidator,
    TimedStep,
    has_been_used,
    refuse_unfinished,
)
from gpubench_plugin.bench.variants import Variants
from gpubench_plugin.core.errors import Misuse, error_text
from gpubench_plugin.core.events import FlopsEvent
from gpubench_plugin.core.records import Better, Measurement, Samples, Work
from gpubench_plugin.measure.record_builder import CustomMetric

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch
    from torch import nn

    from gpubench_plugin.bench.agreement import ResultCheck
    from gpubench_plugin.bench.own_models import OwnModels
    from gpubench_plugin.measure.clocks.base import Step
    from gpubench_plugin.measure.progress import Progress
    from gpubench_plugin.measure.protocols import Subject

    OptimizerOf = Callable[[list[nn.Parameter]], torch.optim.Optimizer]


class Bench(Comparison):
    """Value of the ``gpubench`` fixture: call it once with the step to measure.

    Amounts are per rank and per call of the step. Checks run before the timing.
    """

    @property
    def result(self) -> object:
        """Result of the last timed call of the step, to be asserted on; not recorded.

        Raises:
            Misuse: nothing has been measured yet.
        """
        if not self._has_result:
            raise Misuse("gpubench.result was read before a measurement")
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
            Misuse: called a second time, `step` is not callable or returns unfinished work,
                or an amount is not a positive number or contradicts the subject's.
            CorrectnessError: a check failed, or the subject's step did not take one step.
            MeasurementError: a number is impossible.
            Throttled: the GPU was throttled, and ``measure.throttle=fail``.
            Unsupported: ``training.deterministic``, but an operation has no deterministic form.
        """
        amounts = {"samples": samples, "tokens": tokens, "bytes": bytes, "flops": flops}
        with self._noting():
            stated = self._claim_measurement(amounts)
            timed = TimedStep.of(
                step, setup=setup, teardown=teardown, subjects=self._parts.subjects
            )
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
            Misuse: these do not fit together, or contradict the configuration.
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
            Misuse: these do not fit together, or contradict the configuration.
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
            raise Misuse(
                f"gpubench.{method} was called after a measurement, or in its step; it measures "
                "itself, once per test"
            )
        self._precision = self._own_models.precision
        return self._own_models

    def compare(
        self,
        variants: Mapping[str, Step],
        *,
        check: ResultCheck = None,
        samples: float | None = None,
        tokens: float | None = None,
        bytes: float | None = None,
        flops: float | None = None,
        setup: Step | None = None,
        teardown: Step | None = None,
    ) -> Measurement:
        """Measure `variants` of a step in turns; return this rank's measurement of the last one.

        The first is the reference, over which each other one has its speed-up. Each is called once
        before anything is timed, and their results must agree: be equal, or close by the tolerances
        of :func:`torch.testing.assert_close`; or satisfy `check`, a function of the results by
        name, which raises or returns False where they disagree. ``check=False`` checks nothing.
        Amounts, `setup` and `teardown` are those of every variant, as of a single step.

        Raises:
            Misuse: called after a measurement, there are fewer than two variants, or one has
                an impossible name, is no plain callable or returns unfinished work.
            CorrectnessError: the results disagree, or another check failed.
            MeasurementError: a number is impossible.
            Throttled: the GPU was throttled, and ``measure.throttle=fail``.
            Unsupported: ``training.deterministic``, but an operation has no deterministic form.
        """
        amounts = {"samples": samples, "tokens": tokens, "bytes": bytes, "flops": flops}
        with self._noting():
            stated = self._claim_measurement(amounts)
            steps = Variants.of(variants, setup=setup, teardown=teardown)
            return self._run_comparison(steps, stated, check)

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
            Misuse: called after the measurement or twice, or the name is none. The measurement
                checks the unit and the value.
        """
        if problem := name_problem(name):
            raise Misuse(f"gpubench.record: {problem}")
        if self._measured_once:
            raise Misuse(f"gpubench.record({name!r}) was called after the measurement")
        if name in self._custom_metrics:
            raise Misuse(f"gpubench.record({name!r}) was called twice")
        self._custom_metrics[name] = CustomMetric(name=name, value=value, unit=unit, better=better)

    def log(self, /, *, step: int, **metrics: object) -> None:
        """Log numbers of a step of one's own, points of curves in the run's journal.

        It may be called any number of times, before and after the measurement, but not in the
        measured step. Tensors without a dimension are read, which waits for their device. Of
        several ranks rank zero's values count.

        Raises:
            Misuse: called in the measured step, or the step, a name or a value is none.
        """
        self._metric_log.log(step, metrics)

    def _run_measurement(self, timed: TimedStep, stated: Work) -> Measurement:
        from gpubench_plugin.results import pytest_benchmark
        from gpubench_plugin.training.seeding import nondeterminism_errors

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
                refuse_contradicting_amounts(stated, own_work, subject)
            samples, facts = self._measure(timed, stated, own_work)
        self._notes.enter("inspect")
        samples = samples.flagged(*check.flags)
        if may_have_warmed_up or first_s is not None:
            samples = replace(samples, first_step_s=None if may_have_warmed_up else first_s)
        samples, products, memory = inspect_call(
            timed, samples, precision=self._precision, tensors=self._parts.tensor_memory
        )
        operators = self._profile(timed)
        check = replace(check, correctness={**check.correctness, **products, **operators})
        observation = self._observation(
            samples, self._work(stated, own_work, subject), {**check.facts, **facts, **memory}
        )
        measurement = self._conclude({"": observation}, check)
        return self._publish(measurement, samples, traffic_before)

    def _run_once(self, timed: TimedStep) -> Measurement:
        from gpubench_plugin.results import pytest_benchmark

        result = pytest_benchmark.run_once(self._carrier, timed.call, timed.setup, timed.teardown)
        refuse_unfinished(result, timed.call)
        return self._not_measured(result)

    def _measure(
        self, timed: TimedStep, stated: Work, own_work: Work
    ) -> tuple[Samples, dict[str, float]]:
        from gpubench_plugin.measure.loop import measure
        from gpubench_plugin.measure.probes.contention import Contention
        from gpubench_plugin.measure.tracers import Tracers

        clock = self._clock()
        first_call = FirstCallValidator(timed, self._parts.subjects, stated=stated)
        tracers = Tracers()
        progress_log = self._progress_log(replace(own_work, **stated.known_amounts))

        def on_first_call() -> None:
            failure: Exception | None = None
            try:
                first_call.validate(clock.take_result())  # releases the result
            except Exception as error:  # raised below, once all ranks know
                failure = error
            self._reduction.raise_check_failures(failure)
            self._notes.enter("warm-up")
            probes.begin(timed.run_briefly)

        def on_timed() -> None:
            progress_log.begin()
            first_call.begin()
            probes.device_state.begin()

        def on_block(progress: Progress) -> None:
            probes.growth.block_ended()
            progress_log.block_ended(progress)

        with self._probed([clock]) as probes:
            measured = partial(
                measure,
                timed.call,
                clock=clock,
                section=self._case.configuration.measure,
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
        self._log_device_state(probes)
        facts = {
            **probes.facts,
            **self._facts(timed.subject),
            **self._finish(first_call.advanced, timed.subject),
        }
        if (wrapped := first_call.wrapped) is not None and stated.flops is not None:
            self._work(stated, wrapped.work(), wrapped)  # refuses FLOPs other than counted
        self._run_traced(timed, tracers)
        flags = probes.flags(samples.block_calls, samples.calls_per_duration)
        return samples.flagged(*flags, *tracers.flags), facts

    def _finish(
        self, advanced: Sequence[Subject], timed_subject: Subject | None
    ) -> dict[str, float]:
        """Have the `advanced` subjects check the timed calls; facts of the timed one."""
        facts: dict[str, float] = {}
        for subject in advanced:  # by foreign steps as well
            step_counts = subject.finish()
            if subject is timed_subject:
                facts.update(step_counts, **self._parts.facts(subject))
        return facts

    def _work(self, stated: Work, subject_work: Work, subject: Subject | None) -> Work:
        """Merge the `stated` amounts with the subject's, counting its FLOPs.

        Raises:
            Misuse: a stated amount contradicts the subject's.
        """
        if subject is None:
            return stated
        subject_work = replace(subject_work, flops=subject_work.flops or self._count_flops(subject))
        refuse_contradicting_amounts(stated, subject_work, subject)
        return replace(subject_work, **stated.known_amounts)

    def _count_flops(self, subject: Subject) -> float | None:
        """Count the FLOPs of one call on fake tensors; ops without a formula are journalled.

        So is the reason where they cannot be counted, None.
        """
        from gpubench_plugin.measure.probes.flops import count_flops

        try:
            flops = count_flops(subject.flops_step)
        except Exception as error:  # a model that needs values, while everything is measured
            self._notes.log(FlopsEvent(per_call=None, reason=error_text(error)).line())
            return None
        event = FlopsEvent(per_call=flops.total, uncounted_ops=flops.uncounted_ops)
        self._notes.log(event.line())
        return flops.total or None
