"""Stages of one measurement on one rank: checks, probes, reduction over the ranks, the record."""

from __future__ import annotations

import os
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

import pytest

from gpubench_plugin.bench.amounts import stated_work
from gpubench_plugin.bench.extra_calls import profile_steps, run_traced
from gpubench_plugin.bench.metric_log import MetricLog
from gpubench_plugin.bench.probing import Probes, probed
from gpubench_plugin.bench.progress import ProgressLog
from gpubench_plugin.bench.throttling import ThrottlePolicy
from gpubench_plugin.bench.variants import with_variants
from gpubench_plugin.config.parametrization import fixture_names
from gpubench_plugin.core.errors import Misuse
from gpubench_plugin.core.events import TrafficEvent
from gpubench_plugin.core.records import Check, Measurement, Observation, Samples, Work
from gpubench_plugin.measure.record_builder import CustomMetric, build_measurement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    import torch

    from gpubench_plugin.bench.benchmark_parts import BenchmarkParts
    from gpubench_plugin.bench.own_models import OwnModels
    from gpubench_plugin.bench.step import TimedStep
    from gpubench_plugin.config.case import Case
    from gpubench_plugin.launchers.context import BenchmarkState, RunContext
    from gpubench_plugin.measure.clocks.base import Clock
    from gpubench_plugin.measure.protocols import Subject
    from gpubench_plugin.measure.tracers import Tracers
    from gpubench_plugin.precision.base import Precision
    from gpubench_plugin.ranks.control_plane import Traffic
    from gpubench_plugin.ranks.process_group import ProcessGroup
    from gpubench_plugin.ranks.reduction import Reduction

T = TypeVar("T")


class Stages:
    """What measuring a single step and comparing several have in common, in the order of use.

    A benchmark has one measurement, of which the subclasses are the ways.
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
        self._metric_log = MetricLog(state.notes.log)

    @property
    def _case(self) -> Case:
        """The case, which is reconfigured where a batch size is fitted."""
        return self._state.case

    @property
    def _reduction(self) -> Reduction:
        from gpubench_plugin.ranks.reduction import Reduction

        grace_s = self._case.configuration.distributed.failure_grace_s
        return Reduction(self._group, self._case.id, grace_s=grace_s)

    @property
    def _throttling(self) -> ThrottlePolicy:
        return ThrottlePolicy(case=self._case, notes=self._notes, context=self._context)

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """Note what is raised, since the test may catch it and pass."""
        try:
            yield
        except BaseException as error:
            self._notes.raised(error)
            raise

    def _claim_measurement(self, amounts: Mapping[str, object]) -> Work:
        """Claim the benchmark's single measurement; return the stated `amounts`."""
        if self._measured_once:
            raise Misuse("gpubench was called twice; one step per test")
        self._measured_once = True
        return stated_work(amounts)

    def _prepare(self, subject: Subject | None) -> Check:
        """Run the untimed checks, the timed `subject`'s last; a failure on one rank fails all."""
        self._notes.enter("compile" if self._is_compiled(subject) else "check")
        return self._passed_by_all(partial(self._parts.check, subject, self._notes.log))

    def _passed_by_all(self, check: Callable[[], T]) -> T:
        """Value of the `check` on this rank, once all ranks have passed it."""
        failure: BaseException | None = None
        value: T | None = None
        try:
            value = check()
        except (Exception, pytest.skip.Exception, pytest.fail.Exception) as error:
            failure = error  # raised below, once all ranks know: none may wait for a failed one
        self._reduction.raise_check_failures(failure)
        return cast("T", value)

    def _clock(self) -> Clock:
        from gpubench_plugin.measure.clocks.select import clock_for

        cache = self._case.configuration.measure.cache
        return clock_for(self._device, timing=self._case.timing, cache=cache)

    def _probed(self, clocks: Sequence[Clock]) -> AbstractContextManager[Probes]:
        """Probes of a measurement by `clocks`, which waits while the GPU is throttled."""
        return probed(
            self._device,
            clocks,
            sharing_ranks=self._sharing_ranks,
            tensors=self._parts.tensor_memory,
            guard=partial(
                self._throttling.guard, agreement=self._group.agreement, reduction=self._reduction
            ),
        )

    def _progress_log(self, work: Work) -> ProgressLog:
        return ProgressLog(self._notes.log, work, self._group.world.size)

    def _log_device_state(self, probes: Probes) -> None:
        if (event := probes.device_state.event) is not None:
            self._notes.log(event)

    def _run_traced(self, timed: TimedStep, tracers: Tracers) -> None:
        has_census = self._precision is not None or self._parts.tensor_memory is not None
        run_traced(timed, tracers, agreement=self._group.agreement, has_census=has_census)

    @property
    def _sharing_ranks(self) -> int:
        """Ranks that use this one's device."""
        return self._group.world.local_size if self._case.shares_device else 1

    def _facts(self, subject: Subject | None) -> dict[str, float]:
        """Facts about the step from the configuration."""
        return {
            "compiled": float(self._is_compiled(subject)),
            "confidence": self._case.configuration.measure.confidence,
            "processors": float(os.cpu_count() or 0),
        }

    def _is_compiled(self, subject: Subject | None) -> bool:
        has_model = subject is not None or "model" in fixture_names(self._item)
        return has_model and self._case.configuration.model.compile != "none"

    def _profile(self, timed: TimedStep) -> dict[str, Any]:
        """Profile a few steps, if configured; what is recorded of them."""
        if self._case.configuration.profiling.enabled:
            self._notes.enter("profile")
        return profile_steps(timed, case=self._case, context=self._context, device=self._device)

    def _observation(self, samples: Samples, work: Work, facts: Mapping[str, float]) -> Observation:
        """Observation of this rank."""
        return Observation(
            samples=samples,
            work=work,
            device=self._device.type,
            device_name=self._case.device.model,
            precision="" if self._precision is None else self._precision.compute_dtype,
            world_size=1,
            facts=facts,
        )

    def _publish(
        self, measurement: Measurement, samples: Samples, traffic_before: Traffic
    ) -> Measurement:
        """Hand the `measurement` on, with this rank's own `samples`, and return it."""
        from gpubench_plugin.measure.tracers import Tracers
        from gpubench_plugin.results import pytest_benchmark
        from gpubench_plugin.results.recorder import append

        if self._group.world.size > 1:
            traffic = self._group.control.traffic - traffic_before
            self._notes.log(TrafficEvent(**vars(traffic)).line())
            if self._context.ranks_folder is not None:
                append(self._context.ranks_folder, self._group.world.rank, self._case.id, samples)
        # Paused here, since pytest-benchmark's own pause makes coverage lose the rest of the test:
        # 4 of 8 lines, pytest-benchmark 5.3.1 with coverage 7.
        Tracers().paused(partial(pytest_benchmark.store_result, self._carrier, measurement))
        self._context.carried[self._case.id] = self._carrier.stats
        if self._group.world.is_root:  # only rank zero's is reported
            self._notes.measurement = measurement
        return measurement

    def _conclude(self, observations: Mapping[str, Observation], check: Check) -> Measurement:
        """Build the measurement over all ranks; ranks other than zero get their own.

        Of several variants, whose `observations` have their names, it is the last one's.

        Errors on rank zero fail the benchmark on every rank.
        """
        failure: Exception | None = None
        try:
            merged = self._reduction.merge_all([*observations.values()])
            reduced, check = with_variants(dict(zip(observations, merged, strict=True)), check)
            measurement = build_measurement(
                self._item, self._case, reduced, check, custom_metrics=self._custom_metrics.values()
            )
            if self._group.world.is_root:  # whose flags are those of all ranks
                self._throttling.refuse(measurement)
        except Exception as error:
            failure = error
        self._reduction.raise_conclusion(failure)
        return measurement

    def _not_measured(self, result: object) -> Measurement:
        """Record of a benchmark whose step was run once, with this `result`."""
        self._result, self._has_result = result, True
        self._notes.error_reason = "measuring is disabled (--benchmark-disable)"
        return self._case.unmeasured("not_measured", self._notes.error_reason)
