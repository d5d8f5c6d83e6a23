"""Comparison of variants of a step, in turns, on one rank."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING
from zlib import crc32

from gpubench_plugin.bench.extra_calls import inspect_call
from gpubench_plugin.bench.stages import Stages
from gpubench_plugin.bench.step import TimedStep, refuse_unfinished
from gpubench_plugin.bench.variants import Variants, turns_event
from gpubench_plugin.core.errors import Misuse
from gpubench_plugin.core.quality_flags import UNCHECKED

if TYPE_CHECKING:
    from collections.abc import Callable

    from gpubench_plugin.bench.agreement import Comparison as Agreement
    from gpubench_plugin.bench.agreement import ResultCheck
    from gpubench_plugin.core.records import Measurement, Samples, Work
    from gpubench_plugin.measure.progress import Progress
    from gpubench_plugin.measure.tracers import Tracers
    from gpubench_plugin.measure.turns import Variant


class Comparison(Stages):
    """Measures variants in turns; the record is the candidate's, with the speed-ups of all."""

    def _run_comparison(
        self, variants: Variants, stated: Work, result_check: ResultCheck
    ) -> Measurement:
        from gpubench_plugin.results import pytest_benchmark
        from gpubench_plugin.training.seeding import nondeterminism_errors

        if pytest_benchmark.measuring_disabled(self._carrier):
            return self._run_each_once(variants, result_check)
        traffic_before = self._group.control.traffic
        was_used = self._parts.stop_tracking()
        with nondeterminism_errors():
            check = self._prepare(None)
            samples, facts, agreement = self._measure_in_turns(variants, stated, result_check)
        self._notes.enter("inspect")
        candidate = samples[-1].flagged(
            *check.flags, *((UNCHECKED,) if agreement == "unchecked" else ())
        )
        if was_used or variants.have_been_used:
            candidate = replace(candidate, first_step_s=None)
        candidate, products, memory = inspect_call(
            variants.together,
            candidate,
            precision=self._precision,
            tensors=self._parts.tensor_memory,
        )
        operators = self._profile(variants.together)
        correctness = {**check.correctness, **products, **operators, "variants_agree": agreement}
        facts = {**check.facts, **facts, **memory}
        observations = {
            name: self._observation(of_variant, stated, facts)
            for name, of_variant in zip(variants.names, (*samples[:-1], candidate), strict=True)
        }
        measurement = self._conclude(observations, replace(check, correctness=correctness))
        return self._publish(measurement, candidate, traffic_before)

    def _run_each_once(self, variants: Variants, check: ResultCheck) -> Measurement:
        from gpubench_plugin.results import pytest_benchmark

        def run(_: str, timed: TimedStep) -> object:
            if timed is not variants.candidate:
                return timed.run()
            return pytest_benchmark.run_once(self._carrier, timed.call, timed.setup, timed.teardown)

        result, _ = self._compare_results(variants, run, check)
        return self._not_measured(result)

    def _compare_results(
        self, variants: Variants, run: Callable[[str, TimedStep], object], check: ResultCheck
    ) -> tuple[object, Agreement]:
        """Run each variant once by `run`, before anything is timed."""
        self._passed_by_all(partial(self._require_equal_names, variants))
        compare = partial(
            variants.compare_results,
            run,
            device=self._device,
            subjects=self._parts.subjects,
            check=check,
        )
        return self._passed_by_all(compare)

    def _require_equal_names(self, variants: Variants) -> None:
        """Refuse ranks with other variants, or another order: the n-th of all is measured as one.

        Every rank must call it.
        """
        names = ", ".join(variants.names)
        code = float(crc32(names.encode()))
        if self._group.agreement.mean([code]) != [code]:
            raise Misuse(
                f"gpubench.compare: this rank has the variants {names}, another rank others; "
                "allowed: the same on all ranks, in the same order"
            )

    def _measure_in_turns(
        self, variants: Variants, stated: Work, check: ResultCheck
    ) -> tuple[list[Samples], dict[str, float], Agreement]:
        """Samples of each variant, facts, and how their results were compared."""
        from gpubench_plugin.measure.probes.contention import Contention
        from gpubench_plugin.measure.tracers import Tracers
        from gpubench_plugin.measure.turns import measure_in_turns

        tracers, progress_log = Tracers(), self._progress_log(stated)
        prepared: list[Variant] = []

        def run(name: str, timed: TimedStep) -> object:
            variant = self._first_called(name, timed, tracers)
            prepared.append(variant)
            return variant.clock.take_result()

        _, agreement = self._compare_results(variants, run, check)
        clocks = [variant.clock for variant in prepared]

        def on_timed() -> None:
            progress_log.begin()
            probes.device_state.begin()

        def on_pass(progress: Progress) -> None:
            probes.growth.block_ended()
            progress_log.block_ended(progress)

        self._notes.enter("warm-up")
        with self._probed(clocks) as probes:
            probes.begin(variants.together.run)
            measured = partial(
                measure_in_turns,
                prepared,
                section=self._case.configuration.measure,
                agreement=self._group.agreement,
                fixed_rounds=self._case.fixed_rounds,
                make_contention=Contention,
                on_timed=on_timed,
                on_progress=on_pass,
            )
            with self._metric_log.refused():
                samples = tracers.paused(measured)
        result = clocks[-1].result
        refuse_unfinished(result, variants.candidate.call)
        self._result, self._has_result = result, True
        self._log_device_state(probes)
        self._notes.log(turns_event(dict(zip(variants.names, samples, strict=True))))
        self._run_traced(variants.together, tracers)
        pass_calls = [sum(calls) for calls in zip(*(s.block_calls for s in samples), strict=True)]
        flags = (*probes.flags(pass_calls, samples[-1].calls_per_duration), *tracers.flags)
        samples[-1] = samples[-1].flagged(*flags)
        return samples, {**probes.facts, **self._facts(None)}, agreement

    def _first_called(self, name: str, timed: TimedStep, tracers: Tracers) -> Variant:
        """The variant after its first call, whose result its clock holds."""
        from gpubench_plugin.measure.clocks.base import Task
        from gpubench_plugin.measure.turns import Variant

        clock = self._clock()
        task = Task(
            step=timed.call,
            setup=self._metric_log.around_calls(timed.setup),
            teardown=self._metric_log.around_calls(timed.teardown),
        )
        with self._metric_log.refused():
            first_call_s = tracers.paused(partial(clock.time_first_call, task))
        return Variant(name=name, task=task, clock=clock, first_call_s=first_call_s)
