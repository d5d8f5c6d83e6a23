"""The bench: one measurement on the rank side, from the untimed checks to the record.

Its stages, in order: check, measure, reduce over the ranks, compute the metrics.
"""

from __future__ import annotations

import math
import re
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from gpubench_plugin.errors import UsageProblem
from gpubench_plugin.measure import OwnMetric, measurement_of
from gpubench_plugin.records import Better, Check, Measurement, Observation, Samples, Work
from gpubench_plugin.results import RANKS_FOLDER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    import torch

    from gpubench_plugin.config import Case
    from gpubench_plugin.distributed import ProcessGroup, Reduction
    from gpubench_plugin.measure import Progress, Subject, Tracers
    from gpubench_plugin.precision import Precision
    from gpubench_plugin.results import BenchmarkFixture, Metadata, Notes

    Step = Callable[[], object]


class Bench:
    """What the fixture ``gpubench`` gives: call it once with the step to measure.

    Amounts are per rank and per call of the step. Training checks happen before the timing.
    """

    def __init__(
        self,
        *,
        item: pytest.Item,
        case: Case,
        carrier: BenchmarkFixture,
        device: torch.device,
        precision: Precision,
        group: ProcessGroup,
        subjects: Sequence[Subject],
        notes: Notes,
        traces: Path | None,
        carried: dict[str, Metadata],
        progress: Progress | None,
    ):
        self._item = item
        self._case = case
        self._carrier = carrier
        self._device = device
        self._precision = precision
        self._group = group
        self._subjects = subjects
        self._notes = notes
        self._traces = traces
        self._carried = carried
        self._progress = progress
        self._called = False
        self._own: dict[str, OwnMetric] = {}

    @property
    def _reduction(self) -> Reduction:
        from gpubench_plugin.distributed import Reduction

        grace_s = self._case.configuration.distributed.failure_grace_s
        return Reduction(self._group, self._case.id, grace_s=grace_s)

    def __call__(
        self,
        step: Step,
        *,
        samples: float | None = None,
        tokens: float | None = None,
        bytes: float | None = None,
        flops: float | None = None,
        setup: Step | None = None,
        teardown: Step | None = None,
    ) -> Measurement:
        """Measure `step` and return this rank's measurement.

        `setup` and `teardown` run around every call, outside the timed part.

        Raises:
            UsageProblem: called a second time, or an amount is not a positive number.
            CorrectnessError: what is measured computes something wrong.
            MeasurementError: the numbers cannot be true.
            Unsupported: an operation has no deterministic form, and must have one.
        """
        try:
            return self._measured(
                step,
                Work(samples=samples, tokens=tokens, bytes=bytes, flops=flops),
                setup=setup,
                teardown=teardown,
            )
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

    def _measured(
        self, step: Step, given: Work, *, setup: Step | None, teardown: Step | None
    ) -> Measurement:
        from gpubench_plugin.measure import Tracers
        from gpubench_plugin.results import pytest_benchmark
        from gpubench_plugin.training import naming_what_is_not_deterministic

        self._claim(given)
        if pytest_benchmark.measuring_disabled(self._carrier):
            return self._run_once(step, setup, teardown)
        before = self._group.traffic
        with naming_what_is_not_deterministic():
            check = self._prepare()
            seen, facts = self._measure(step, setup, teardown)
        if "first_step_s" in check.facts:  # the very first step was one of the check's
            seen = replace(seen, first_step_s=check.facts["first_step_s"])
        self._profile(step, setup, teardown)
        own = self._observation(seen, self._work(given), {**check.facts, **facts})
        measurement = self._conclude(own, check)
        if self._group.world.size > 1:
            self._notes.log({"event": "traffic", **asdict(self._group.traffic - before)})
            self._keep(seen)
        # Its own pause, which then has nothing to do, makes coverage lose the rest of the test:
        # 4 of 8 lines, pytest-benchmark 5.3.1 with coverage 7.
        Tracers().paused(partial(pytest_benchmark.carry, self._carrier, measurement))
        self._carried[self._case.id] = self._carrier.stats
        if self._group.world.is_root:  # the others' would be sent for nothing
            self._notes.measurement = measurement
        return measurement

    def _claim(self, given: Work) -> None:
        if self._called:
            raise UsageProblem(f"{self._case.id}: gpubench was called twice; one step per test")
        self._called = True
        for name, amount in asdict(given).items():
            if amount is not None and not _is_amount(amount):
                raise UsageProblem(
                    f"{self._case.id}: {name}={amount!r:.40}; allowed: a number above 0"
                )

    def _run_once(self, step: Step, setup: Step | None, teardown: Step | None) -> Measurement:
        from gpubench_plugin.results import pytest_benchmark

        pytest_benchmark.run_once(self._carrier, step, setup, teardown)
        self._notes.not_measured = "measuring is off (--benchmark-disable)"
        return self._case.record("not_measured", self._notes.not_measured)

    def _prepare(self) -> Check:
        """The subjects' untimed checks; one rank's failure is every rank's."""
        checks: list[Check] = []
        failure: BaseException | None = None
        try:
            checks = [subject.prepare(self._notes.log) for subject in self._subjects]
        except (Exception, pytest.skip.Exception, pytest.fail.Exception) as error:
            # Raised again below, once all ranks know: none may wait for one that gave up.
            failure = error
        self._reduction.checked(failure)
        return Check(
            correctness=_merged(check.correctness for check in checks),
            facts=_merged(check.facts for check in checks),
        )

    def _measure(
        self, step: Step, setup: Step | None, teardown: Step | None
    ) -> tuple[Samples, dict[str, float]]:
        from gpubench_plugin.measure import Tracers, measure
        from gpubench_plugin.measure.clocks import clock_for
        from gpubench_plugin.measure.probes import Contention, PeakMemory, Suspension, Throttling

        section = self._case.configuration.measure
        tracers = Tracers()
        with ExitStack() as probes:
            memory = probes.enter_context(PeakMemory(self._device))
            throttling = probes.enter_context(Throttling(self._device))
            contention = probes.enter_context(Contention())
            suspension = probes.enter_context(Suspension())
            measured = partial(
                measure,
                step,
                clock=clock_for(self._device, section),
                section=section,
                agreement=self._group.agreement,
                frozen=self._case.rounds,
                setup=setup,
                teardown=teardown,
                on_timed=self._begin,
                on_progress=self._progress,
            )
            samples = tracers.paused(measured)
        compiled = float(self._case.configuration.model.compile != "none")
        facts = memory.facts | {"compiled": compiled, "confidence": section.confidence}
        for subject in self._subjects:
            facts.update(subject.finish())
        self._show_tracers(tracers, step, setup, teardown)
        flags = (*memory.flags, *throttling.flags, *contention.flags)
        return samples.flagged(*flags, *suspension.flags, *tracers.flags), facts

    def _show_tracers(
        self, tracers: Tracers, step: Step, setup: Step | None, teardown: Step | None
    ) -> None:
        """Run a step once more where coverage, say, has not followed any; a subject's check was.

        One that fails then, as it has nothing left to read, takes nothing from what was measured.
        """
        if self._group.agreement.decide(int(tracers.were_paused and not self._subjects)):
            with suppress(Exception):
                _once(step, setup, teardown)

    def _begin(self) -> None:
        for subject in self._subjects:
            subject.begin()

    def _work(self, given: Work) -> Work:
        """The work the caller gave, completed by what the subjects know of themselves."""
        known = asdict(given)
        for subject in self._subjects:
            own = subject.work()
            known.update({k: v for k, v in asdict(own).items() if known[k] is None})
            if known["flops"] is None:
                known["flops"] = self._count_flops(subject)
        return Work(**known)

    def _count_flops(self, subject: Subject) -> float | None:
        """FLOPs of one call, counted on fake tensors; what has no formula is journalled."""
        from gpubench_plugin.measure.probes import count_flops

        counted = count_flops(subject.flops_step)
        self._notes.log(
            {"event": "flops", "per_call": counted.total, "uncounted_ops": counted.uncounted_ops}
        )
        return counted.total or None

    def _profile(self, step: Step, setup: Step | None, teardown: Step | None) -> None:
        """Trace a few extra steps, on every rank alike; rank zero writes the trace."""
        section = self._case.configuration.profiling
        if not section.enabled:
            return
        from gpubench_plugin.measure.probes import profile

        profile(
            partial(_once, step, setup, teardown),
            section=section,
            device=self._device,
            path=self._traces and self._traces / f"{file_name(self._case)}.json",
        )

    def _observation(self, samples: Samples, work: Work, facts: Mapping[str, float]) -> Observation:
        """What this rank saw."""
        return Observation(
            samples=samples,
            work=work,
            device=self._device.type,
            device_name=self._case.device.model,
            precision=self._precision.compute_dtype,
            world_size=1,
            facts=facts,
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

    def _keep(self, samples: Samples) -> None:
        """Write this rank's samples, all of them, into its own file of the run."""
        from gpubench_plugin.results import append

        folder = self._item.config.stash.get(RANKS_FOLDER, None)
        if folder is not None:
            append(folder, self._group.world.rank, self._case.id, samples)


def _once(step: Step, setup: Step | None, teardown: Step | None) -> None:
    """One untimed call with what belongs to it."""
    if setup is not None:
        setup()
    step()
    if teardown is not None:
        teardown()


def _is_amount(amount: object) -> bool:
    try:
        return isinstance(amount, int | float) and math.isfinite(amount) and amount > 0
    except OverflowError:  # a whole number that no float reaches
        return False


def _merged(parts: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {key: value for part in parts for key, value in part.items()}


def file_name(case: Case) -> str:
    """The case's name as a file's: what a file system might refuse is replaced."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", case.name).strip("-")
