"""One measurement on one rank: checks, timed calls, reduction over the ranks, the record."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

from gpubench_plugin.bench import probing
from gpubench_plugin.bench.changed_work import lasting_answer, question_about
from gpubench_plugin.bench.journal_events import MetricLog, ProgressLog
from gpubench_plugin.bench.pedantic import warmed_up
from gpubench_plugin.bench.step import (
    FirstCallValidator,
    ResultCheck,
    TimedStep,
    refuse_contradicting_amounts,
    refuse_unfinished,
)
from gpubench_plugin.bench.variants import Variants, with_variants
from gpubench_plugin.config.parametrization import fixture_names
from gpubench_plugin.core.errors import Misuse
from gpubench_plugin.core.events import TrafficEvent, TurnsEvent
from gpubench_plugin.core.quality_flags import CHANGED_WORK, LEFT_RUNNING, UNCHECKED
from gpubench_plugin.core.records import Check, Measurement, Observation, Samples, Work
from gpubench_plugin.environment.system_facts import rank_machine
from gpubench_plugin.measure.loop import Variant, clock_for, measure
from gpubench_plugin.measure.paired_turns import turns_s
from gpubench_plugin.measure.probes.interference import Contention
from gpubench_plugin.measure.probes.nvml import DeviceState
from gpubench_plugin.measure.process_state import running_tasks
from gpubench_plugin.measure.record_builder import CustomMetric, build_measurement
from gpubench_plugin.measure.tracers import Tracers
from gpubench_plugin.ranks.reduction import Reduction
from gpubench_plugin.results import pytest_benchmark
from gpubench_plugin.results.recorder import append

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from gpubench_plugin.bench.subjects import Subjects
    from gpubench_plugin.config.case import Case
    from gpubench_plugin.launchers.context import BenchmarkState, RunContext
    from gpubench_plugin.measure.clocks.base import Clock, Step
    from gpubench_plugin.measure.protocols import Subject
    from gpubench_plugin.measure.stopping import Progress
    from gpubench_plugin.precision.base import Precision
    from gpubench_plugin.ranks.process_group import ProcessGroup
    from gpubench_plugin.ranks.ranks import Alone
    from gpubench_plugin.results.pytest_benchmark import BenchmarkFixture

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class _Timed:
    """Samples of each variant with what was observed beside; `agreement` of several variants."""

    samples: Sequence[Samples]
    flags: Sequence[str]
    facts: Mapping[str, float]
    agreement: str | None = None


class TorchImported(Exception):
    """The first call has imported torch: the benchmark is to be resolved anew, and measured."""


@dataclass(kw_only=True)
class Measuring:
    """Measures the steps of one benchmark: a single one, or variants that take turns.

    Their record is that of the last one, with the speed-ups of all. `result` is what its last timed
    call returned, if `has_result`. It `is_claimed` once the test has called it.
    """

    item: pytest.Item
    state: BenchmarkState
    fixture: BenchmarkFixture
    context: RunContext
    precision: Precision | None
    group: ProcessGroup | Alone
    subjects: Subjects
    custom_metrics: dict[str, CustomMetric] = field(default_factory=dict)
    result: object = None
    has_result: bool = False
    is_claimed: bool = False
    is_pedantic: bool = False

    def __post_init__(self) -> None:
        """Log to the benchmark's record, and reduce over its ranks."""
        self.join(self.group)
        self._was_called = False  # before the benchmark was resolved anew
        self.record = self.state.record
        self.metric_log = MetricLog(self.record.log)

    def join(self, group: ProcessGroup | Alone) -> None:
        """Measure on the ranks of this `group`."""
        grace_s = self._case.configuration.distributed.failure_grace_s
        self.group, self._reduction = group, Reduction(group, self._case.id, grace_s=grace_s)

    def measure(
        self, steps: Variants, stated: Work, result_check: ResultCheck = None
    ) -> Measurement:
        """Measure `steps` with the `stated` amounts; the results of several must agree."""
        if self._case.configuration.measure.check is False:
            result_check = False
        subject = steps.candidate.subject
        if subject is not None:
            self.subjects.add(subject)
        if pytest_benchmark.measuring_disabled(self.fixture):
            return self._run_once(steps, result_check)
        traffic_before = dict(self.group.control.traffic)
        was_used = self.subjects.stop_tracking() or steps.have_been_used or self._was_called
        tracers = Tracers()
        with self._nondeterminism_errors():
            check = self._prepare(subject)
            own_work = Work() if subject is None else subject.work()
            first_s = check.facts.get("first_step_s")  # if the check took the first step
            # Checks of a subject beside a foreign step may have compiled and allocated for it.
            has_other_subject = subject is None and bool(self.subjects.all)
            was_used |= first_s is None and (has_other_subject or steps.have_been_used)
            was_used |= self.is_pedantic
            if subject is not None:
                refuse_contradicting_amounts(stated, own_work, subject)
            question, ran_before = self._question(steps, result_check, first_s), running_tasks()
            if steps.is_single:
                timed = self._time_step(steps.candidate, tracers, stated, own_work)
            else:
                timed = self._time_variants(steps, tracers, stated, result_check)
            left = sorted({text for key, text in running_tasks().items() if key not in ran_before})
            self._run_traced(steps.together, tracers)
        self.record.enter("inspect")
        changed = lasting_answer(question, self.group.agreement, alike=not steps.is_single)
        remarks = {CHANGED_WORK: changed, LEFT_RUNNING: left}
        remarks = {name: remark for name, remark in remarks.items() if remark}
        unchecked = (UNCHECKED,) * (timed.agreement == "unchecked")
        flags = (*timed.flags, *tracers.flags, *check.flags, *unchecked, *remarks)
        samples = timed.samples[-1].flagged(*flags)
        if was_used or first_s is not None:
            samples = replace(samples, first_step_s=None if was_used else first_s)
        profiled = self._profile(steps.together)
        samples, inspected, counts = probing.inspect_call(
            steps.together,
            samples,
            precision=self.precision,
            tensors=self.subjects.tensor_memory,
            group=self.group if self._case.uses_torch and not self.is_pedantic else None,
            root=self.item.config.rootpath,
        )
        correctness = {**check.correctness, **inspected, **profiled, **remarks}
        if "kernels" in profiled.get("operators", {}):
            counts["kernels_per_step"] = profiled["operators"]["kernels"]
        if timed.agreement is not None:
            correctness["variants_agree"] = timed.agreement
        work = self._work(stated, own_work, subject)
        facts = {**check.facts, **self._facts(subject), **timed.facts, **counts}
        machine = rank_machine(
            self.context.ranks.variables, self._case.device, uses_torch=self._case.uses_torch
        )
        observations = {
            name: Observation(
                samples=of_variant,
                work=work,
                device=self.group.device.type,
                device_name=self._case.device.model,
                precision="" if self.precision is None else self.precision.compute_dtype,
                world_size=1,
                facts=facts,
                machine=machine,
            )
            for name, of_variant in zip(steps.steps, (*timed.samples[:-1], samples), strict=True)
        }
        measurement = self._conclude(observations, replace(check, correctness=correctness))
        return self._publish(measurement, samples, traffic_before)

    def make_no_further_call(self) -> None:
        """Neither check nor inspect: only the calls that are asked for are made."""
        self.is_pedantic, self.precision, self.subjects.tensor_memory = True, None, None

    def _nondeterminism_errors(self) -> AbstractContextManager[None]:
        if not (self._case.uses_torch and self._case.configuration.training.deterministic):
            return nullcontext()
        from gpubench_plugin.training.seeding import nondeterminism_errors

        return nondeterminism_errors()

    @property
    def _case(self) -> Case:
        """The case, which is reconfigured where a batch size is fitted."""
        return self.state.case

    def _run_once(self, steps: Variants, check: ResultCheck) -> Measurement:
        """Run each step once, since measuring is disabled."""

        def run(timed: TimedStep) -> object:
            if timed is not steps.candidate:
                return timed.run()
            return pytest_benchmark.run_once(self.fixture, timed.step, timed.setup, timed.teardown)

        if steps.is_single:
            result = run(steps.candidate)
            refuse_unfinished(result, steps.candidate.step)
        else:
            result, _ = self._compare_results(steps, lambda _, timed: run(timed), check)
        self.result, self.has_result = result, True
        self.record.error_reason = "measuring is disabled (--benchmark-disable)"
        return self._case.unmeasured("not_measured", self.record.error_reason)

    def _prepare(self, subject: Subject | None) -> Check:
        """Run the untimed checks, the timed `subject`'s last; a failure on one rank fails all."""
        self.record.enter("compile" if self._is_compiled(subject) else "check")
        return self._passed_by_all(partial(self.subjects.check, subject, self.record.log))

    def _passed_by_all(self, check: Callable[[], T]) -> T:
        """Value of the `check` on this rank, once all ranks have passed it."""
        try:
            value = check()
        except (Exception, pytest.skip.Exception, pytest.fail.Exception) as error:
            self._reduction.raise_check_failures(error)  # none may wait for a failed one
            raise
        self._reduction.raise_check_failures(None)
        return value

    def _question(self, steps: Variants, check: ResultCheck, first_s: float | None) -> Step:
        """What is to be asked after the timing, with an error where a call then does other work.

        Every rank must call it.
        """
        if self._case.configuration.measure.check is False:
            return list
        if not steps.is_single:
            return self._comparison(steps, lambda _, timed: timed.run(), check)
        # Compiled code is not to be run eagerly before it is timed.
        counts = not self._is_compiled(steps.candidate.subject)
        return question_about(steps.candidate, first_s, self.group.agreement, counts=counts)

    def _time_step(
        self, timed: TimedStep, tracers: Tracers, stated: Work, own_work: Work
    ) -> _Timed:
        variant = self._variant("", timed)
        if self.is_pedantic:
            variant = warmed_up(variant, self._case.configuration.measure.warmup_iterations)
        first_call = FirstCallValidator(timed, self.subjects.all, stated=stated)

        def on_first_call() -> None:
            self._passed_by_all(lambda: first_call.validate(variant.clock.take_result()))
            self._require_settled()
            self.record.enter("warm-up")
            probes.begin(timed.run_briefly)

        with self._probed([variant.clock]) as probes:
            (samples,) = self._timed_calls(
                [variant],
                probes,
                tracers,
                replace(own_work, **stated.known_amounts),
                on_first=on_first_call,
                on_timed=first_call.begin,
            )
        self.result, self.has_result = variant.clock.result, True
        first_call.end(samples.calls, self.result)
        facts = {**probes.facts}
        for subject in first_call.advanced:  # by foreign steps as well
            counts = subject.finish()
            if subject is timed.subject:
                facts.update(counts)
        if (wrapped := first_call.wrapped) is not None and stated.flops is not None:
            self._work(stated, wrapped.work(), wrapped)  # refuses FLOPs other than counted
        flags = probes.flags(samples.block_calls, samples.calls_per_duration)
        return _Timed(samples=[samples], flags=flags, facts=facts)

    def _require_settled(self) -> None:
        """Refuse to time a step that uses torch, but is resolved as one that uses none."""
        self.state.imports.end()
        if not self._case.uses_torch and self.state.imports.have_torch():
            if self.is_pedantic:  # which makes no further call
                raise Misuse("gpubench.pedantic: its calls import torch; import it before")
            self._was_called = True
            raise TorchImported

    def _time_variants(
        self, steps: Variants, tracers: Tracers, stated: Work, check: ResultCheck
    ) -> _Timed:
        variants: list[Variant] = []

        def run(name: str, timed: TimedStep) -> object:
            variant = self._variant(name, timed)
            with self.metric_log.refused():
                first_call_s = tracers.paused(partial(variant.clock.time_single_call, variant.task))
            variants.append(replace(variant, first_call_s=first_call_s))
            return variant.clock.take_result()

        _, agreement = self._compare_results(steps, run, check)
        self._require_settled()
        self.record.enter("warm-up")
        with self._probed([variant.clock for variant in variants]) as probes:
            probes.begin(steps.together.run)
            samples = self._timed_calls(variants, probes, tracers, stated)
        self.result, self.has_result = variants[-1].clock.result, True
        refuse_unfinished(self.result, steps.candidate.step)
        step_s = {name: tuple(turns_s(s)) for name, s in zip(steps.steps, samples, strict=True)}
        self.record.log(TurnsEvent(step_s=step_s).line())  # of each turn of this rank
        pass_calls = [sum(calls) for calls in zip(*(s.block_calls for s in samples), strict=True)]
        flags = probes.flags(pass_calls, samples[-1].calls_per_duration)
        return _Timed(samples=samples, flags=flags, facts=probes.facts, agreement=agreement)

    def _variant(self, name: str, timed: TimedStep) -> Variant:
        cache = self._case.configuration.measure.cache
        return Variant(
            name=name,
            clock=clock_for(self.group.device, timing=self._case.timing, cache=cache),
            task=replace(
                timed,
                setup=self.metric_log.around_calls(timed.setup),
                teardown=self.metric_log.around_calls(timed.teardown),
            ),
        )

    def _timed_calls(
        self,
        variants: Sequence[Variant],
        probes: probing.Probes,
        tracers: Tracers,
        work: Work,
        *,
        on_first: Step | None = None,
        on_timed: Step | None = None,
    ) -> list[Samples]:
        """Samples of `variants`, without tracers; `work` is that of a call, for the journal."""
        progress_log = ProgressLog(self.record.log, work, self.group.world.size)

        def begin() -> None:
            progress_log.begin()
            if on_timed is not None:
                on_timed()
            probes.device_state.begin()

        def on_progress(progress: Progress) -> None:
            probes.growth.block_ended()
            progress_log.block_ended(progress)

        measured = partial(
            measure,
            variants,
            section=self._case.configuration.measure,
            agreement=self.group.agreement,
            on_first=on_first,
            fixed_rounds=self._case.fixed_rounds,
            make_contention=partial(Contention, *self._ranks_of_host()),
            on_timed=begin,
            on_progress=on_progress,
        )
        with self.metric_log.refused():
            return tracers.paused(measured)

    def _ranks_of_host(self) -> list[int]:
        """Process ids of the benchmark's ranks on this host.

        Every rank must call it. Ranks of a host are numbered in a row.
        """
        world = self.group.world
        pids = [0.0] * world.size
        pids[world.rank] = os.getpid() * world.size
        first = world.rank - world.local_rank
        return [*map(round, self.group.agreement.mean(pids)[first : first + world.local_size])]

    def _compare_results(
        self, steps: Variants, run: Callable[[str, TimedStep], object], check: ResultCheck
    ) -> tuple[object, str]:
        """Run each variant once by `run`, before anything is timed."""
        self._passed_by_all(partial(steps.require_equal_names, self.group.agreement))
        return self._passed_by_all(self._comparison(steps, run, check))

    def _comparison(
        self, steps: Variants, run: Callable[[str, TimedStep], object], check: ResultCheck
    ) -> Callable[[], tuple[object, str]]:
        device, subjects = self.group.device, self.subjects.all
        return partial(steps.compare_results, run, device=device, subjects=subjects, check=check)

    @contextmanager
    def _probed(self, clocks: Sequence[Clock]) -> Iterator[probing.Probes]:
        """Probes of a measurement by `clocks`, which waits while the GPU is throttled."""
        group, tensors = self.group, self.subjects.tensor_memory
        sharing_ranks = group.world.local_size if self._case.shares_device else 1
        state = DeviceState(group.device, sharing_ranks=sharing_ranks)
        with probing.probed(group.device, clocks, device_state=state, tensors=tensors) as probes:
            self._guard(state)
            yield probes
        if (event := state.event) is not None:
            self.record.log(event)

    def _guard(self, device_state: DeviceState) -> None:
        """With ``measure.throttle=wait`` or ``fail`` require NVML, and wait with the former."""
        throttle = self._case.configuration.measure.throttle
        if throttle == "flag" or self._case.device.type != "cuda":
            return
        self._passed_by_all(partial(probing.require_nvml, self._case, device_state))
        if throttle == "wait":
            timeout_s = self._case.timeout_s(self.context.settings.timeout_s)
            limit_s = min(probing.LONGEST_WAIT_S, probing.TIMEOUT_SHARE * timeout_s)
            reasons, agreement = device_state.slowing_reasons, self.group.agreement
            wait = probing.wait_while_throttled(reasons, agreement, limit_s=limit_s)
            if wait is not None:
                self.record.log(wait.line())

    def _run_traced(self, timed: TimedStep, tracers: Tracers) -> None:
        """Run the step once more under tracers (coverage) that were paused, ignoring errors.

        The call of a census, if there is one, is traced.
        """
        has_census = self.is_pedantic or self._case.uses_torch
        is_untraced = tracers.were_paused and timed.subject is None and not has_census
        if self.group.agreement.decide(int(is_untraced)):
            with suppress(Exception):
                timed.run()

    def _facts(self, subject: Subject | None) -> dict[str, float]:
        """Facts about the step from the configuration."""
        return {
            "compiled": float(self._is_compiled(subject)),
            "confidence": self._case.configuration.measure.confidence,
            "processors": float(os.cpu_count() or 0),
        }

    def _is_compiled(self, subject: Subject | None) -> bool:
        has_model = subject is not None or "model" in fixture_names(self.item)
        return has_model and self._case.configuration.model.compile != "none"

    def _profile(self, timed: TimedStep) -> dict[str, Any]:
        """Profile a few steps on every rank, if configured; what rank zero records of them."""
        section, run = self._case.configuration.profiling, self.context.run
        if not section.enabled:
            return {}
        from gpubench_plugin.measure.probes.profiler import profile

        self.record.enter("profile")
        path = None if run is None else run.traces / f"{probing.file_name(self._case)}.json"
        operators = profile(timed.run, section=section, device=self.group.device, path=path)
        return {"operators": operators}

    def _work(self, stated: Work, subject_work: Work, subject: Subject | None) -> Work:
        """Merge the `stated` amounts with the subject's, counting its FLOPs.

        Raises:
            Misuse: a stated amount contradicts the subject's.
        """
        if subject is None:
            return stated
        flops = subject_work.flops or probing.count_flops(subject, self.record.log)
        subject_work = replace(subject_work, flops=flops)
        refuse_contradicting_amounts(stated, subject_work, subject)
        return replace(subject_work, **stated.known_amounts)

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
                self.item, self._case, reduced, check, custom_metrics=self.custom_metrics.values()
            )
            is_refused = self._case.configuration.measure.throttle == "fail"
            if is_refused and self.group.world.is_root:  # with the flags of all ranks
                probing.refuse_throttled(measurement, self.record)
        except Exception as error:
            failure = error
        self._reduction.raise_conclusion(failure)
        return measurement

    def _publish(
        self, measurement: Measurement, samples: Samples, traffic_before: Mapping[str, int]
    ) -> Measurement:
        """Hand the `measurement` on, with this rank's own `samples`, and return it."""
        if self.group.world.size > 1:
            traffic = self.group.control.traffic
            added = {name: count - traffic_before[name] for name, count in traffic.items()}
            self.record.log(TrafficEvent(**added).line())
            if self.context.ranks_folder is not None:
                rank = self.group.world.rank
                append(self.context.ranks_folder, rank, self._case.id, samples=asdict(samples))
        # Paused here, since pytest-benchmark's own pause makes coverage lose the rest of the test:
        # 4 of 8 lines, pytest-benchmark 5.3.1 with coverage 7.
        Tracers().paused(partial(pytest_benchmark.store_result, self.fixture, measurement))
        self.context.fixture_metadata[self._case.id] = self.fixture.stats
        if self.group.world.is_root:  # only rank zero's is reported
            self.record.measurement = measurement
        return measurement
