"""Recording of adopted tests: measurement and options of pytest-benchmark."""

from __future__ import annotations

import inspect
import sys
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

import pytest

from gpubench_plugin.bench.adoption.timer import Accelerator, SynchronisedTimer
from gpubench_plugin.bench.misuse import unfinished_reason
from gpubench_plugin.config.parametrization import FOREIGN_FIXTURE
from gpubench_plugin.core.errors import GpubenchError
from gpubench_plugin.core.quality_flags import (
    CONTENDED,
    DEPENDENT,
    DRIFTING,
    NOT_CONVERGED,
    OUTLIERS,
)
from gpubench_plugin.core.records import Check, Measurement, Observation, Samples, Work
from gpubench_plugin.launchers.context import context_of, state_of
from gpubench_plugin.measure.interval import Autocorrelation
from gpubench_plugin.measure.probes.interference import Contention
from gpubench_plugin.measure.record_builder import build_measurement
from gpubench_plugin.measure.recording import has_outliers
from gpubench_plugin.measure.trend import is_trending
from gpubench_plugin.results import pytest_benchmark
from gpubench_plugin.results.pytest_benchmark import subsample
from gpubench_plugin.results.pytest_benchmark_files import SECTION, relevant_options, settings_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from gpubench_plugin.config.case import Case
    from gpubench_plugin.config.sections import MeasureSection
    from gpubench_plugin.environment.devices import Device
    from gpubench_plugin.launchers.report_payload import Notes
    from gpubench_plugin.results.pytest_benchmark import BenchmarkFixture, PytestBenchmarkTiming


def observation_of(
    own_measurement: PytestBenchmarkTiming, device: Device, facts: Mapping[str, float]
) -> Observation:
    """Convert pytest-benchmark's measurement to a one-rank observation.

    pytest-benchmark does not report what precedes the timed rounds (calibration, warm-up).
    """
    durations = own_measurement.durations_s
    samples = Samples(
        timer=own_measurement.timer,
        durations_s=durations,
        calls_per_duration=own_measurement.iterations,
        block_s=(sum(durations) * own_measurement.iterations,),
        block_calls=(len(durations) * own_measurement.iterations,),
        first_step_s=None,
        warmup_s=(),
        warmup_calls=0,
    )
    return Observation(
        samples=samples,
        work=Work(),
        device=device.type,
        device_name=device.model,
        precision="",
        world_size=1,
        facts=facts,
    )


def flags_of(rounds_s: Sequence[float], section: MeasureSection) -> tuple[str, ...]:
    """Flags raised by the rounds; too few for an interval raise no flag for its width."""
    autocorrelation = Autocorrelation(rounds_s)
    interval = autocorrelation.interval(section.confidence)
    flags = {
        DRIFTING: is_trending(rounds_s, section.steady_tolerance),
        NOT_CONVERGED: interval is not None and interval.half_width > section.ci_half_width,
        DEPENDENT: autocorrelation.is_strong,
        OUTLIERS: has_outliers(rounds_s),
    }
    return tuple(flag for flag, is_raised in flags.items() if is_raised)


_MOST_ROUNDS: Final = 10_000
"""At 20 bytes each, 200 KB of a journal line."""


def limited_samples(samples: Samples) -> Samples:
    """Samples to record: subsampled, with the same extremes, distribution and metrics."""
    subsampled = tuple(subsample(samples.durations_s, _MOST_ROUNDS))
    if len(subsampled) == len(samples.durations_s):
        return samples
    return replace(samples, durations_s=subsampled, reduced_from=samples.timing)


_CALIBRATION: Final = "calibration_precision"
_ROUNDS: Final = ("rounds", "iterations", "warmup_rounds")


class BenchmarkOptions:
    """Options of a test's `benchmark` fixture; numbers with different options do not compare."""

    def __init__(self, benchmark: BenchmarkFixture, item: pytest.Item) -> None:
        self._benchmark = benchmark
        self._item = item
        self._rounds: dict[str, int] | None = None
        # pytest-benchmark does not store the arguments of `pedantic`.
        setattr(benchmark, "pedantic", self._recording(benchmark.pedantic))  # noqa: B010 # a method

    def add_to(self, measurement: Measurement) -> Measurement:
        """Add the options to the fixture's `measurement`."""
        options = self._option_values()
        return replace(
            measurement,
            configuration={**measurement.configuration, SECTION: options},
            settings={**settings_of(options), **measurement.settings},
        )

    def _option_values(self) -> dict[str, Any]:
        options: dict[str, Any] = self._benchmark.stats.options
        if self._rounds is not None:
            return {**relevant_options(options, in_pedantic_mode=True), **self._rounds}
        return relevant_options({**options, _CALIBRATION: self._calibration()})

    def _calibration(self) -> object:
        """Calibration option, which results do not contain: from the mark or the command line."""
        mark = self._item.get_closest_marker(FOREIGN_FIXTURE)
        mark_options = {} if mark is None else mark.kwargs
        if _CALIBRATION in mark_options:
            return mark_options[_CALIBRATION]
        return self._item.config.getoption(f"benchmark_{_CALIBRATION}", None)

    def _recording(self, pedantic: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(pedantic)

        @wraps(pedantic)
        def recording(*args: Any, **kwargs: Any) -> Any:
            result = pedantic(*args, **kwargs)
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            self._rounds = {name: int(bound.arguments[name]) for name in _ROUNDS}
            return result

        return recording


class AdoptionPlugin:
    """Observes the ``benchmark`` fixture of adopted tests and records its measurements.

    Tests pass or fail as without it; the run says what could not be recorded. torch is used only if
    it is in `modules`, and not imported.
    """

    def __init__(self, modules: Mapping[str, Any] = sys.modules) -> None:
        self._modules = modules
        self._accelerator: Accelerator | None = None
        self._has_looked_up = False
        self._timers: dict[object, SynchronisedTimer] = {}
        self._wrapper: _FixtureWrapper | None = None

    def pytest_runtestloop(self) -> None:
        """Import modules in advance that a test might hide, for example by a fake file system."""
        from gpubench_plugin.measure.metrics._all import preload

        preload()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, object, object]:
        """Wrap the fixture as soon as it is created."""
        fixture_value = yield
        if fixturedef.argname == FOREIGN_FIXTURE and pytest_benchmark.is_fixture(fixture_value):
            state = state_of(request.node)
            if state is not None and state.case.adopted:
                self._wrap(request.node, fixture_value)
        return fixture_value

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Record the measurement once the test has passed."""
        result = yield
        state = state_of(item)
        if state is not None and state.case.adopted:
            self._note(item, state.case, state.notes)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Keep failed tests out of the run's results file."""
        report = yield
        if not report.passed and self._wrapper is not None:
            context_of(item.config).carried.pop(item.nodeid, None)
        if report.when == "teardown":
            self._wrapper = None  # frees what the test measured with
        return report

    def _wrap(self, item: pytest.Item, benchmark: BenchmarkFixture) -> None:
        options = BenchmarkOptions(benchmark, item)
        self._wrapper = wrapper = _FixtureWrapper(benchmark, options, self._find, self._timers)
        pytest_benchmark.wrap_measuring(benchmark, wrapper.begin, wrapper.check_call)

    def _find(self) -> Accelerator | None:
        if not self._has_looked_up and "torch" in self._modules:
            self._accelerator = Accelerator.find(self._modules)
            self._has_looked_up = True  # asking the driver takes milliseconds
        return self._accelerator

    def _note(self, item: pytest.Item, case: Case, notes: Notes) -> None:
        """Add the measurement, or why there is none, to `notes`."""
        wrapper = self._wrapper
        if wrapper is None:
            notes.error_reason = f"{FOREIGN_FIXTURE} is not pytest-benchmark's fixture here"
            return
        result = wrapper.finish(item, case)
        if isinstance(result, str):
            notes.error_reason = result
        else:
            notes.measurement = result
            context_of(item.config).carried[item.nodeid] = wrapper.benchmark.stats


class _FixtureWrapper:
    """A test's fixture with the accelerator in use."""

    def __init__(
        self,
        benchmark: BenchmarkFixture,
        options: BenchmarkOptions,
        find: Callable[[], Accelerator | None],
        timers: dict[object, SynchronisedTimer],
    ) -> None:
        self.benchmark = benchmark
        self._options = options
        self._find = find
        self._accelerator = find()
        self._timers = timers
        self._contention = Contention()
        self._error: str | None = None
        if self._accelerator is not None:
            self._accelerator.reset_peak()

    def begin(self) -> Contention:
        """Prepare for measuring; torch may have been imported since the fixture's creation."""
        self._accelerator = self._find()
        if self._accelerator is not None:
            pytest_benchmark.change_timer(self.benchmark, self._synchronised)
        self._contention = Contention()
        return self._contention

    def check_call(self, result: object, function: Callable[..., object]) -> None:
        """Check whether a call did its work; its `result` is left unchanged."""
        self._error = unfinished_reason(result, function, FOREIGN_FIXTURE)

    def finish(self, item: pytest.Item, case: Case) -> Measurement | str:
        """The record, or the reason why there is none."""
        own_measurement = pytest_benchmark.own_measurement(self.benchmark)
        if isinstance(own_measurement, str):
            return own_measurement
        if self._error is not None:
            return self._error
        try:
            observation = observation_of(own_measurement, case.device, self._facts())
            flags = flags_of(own_measurement.durations_s, case.configuration.measure)
            contended = (CONTENDED,) if self._contention.is_contended else ()
            flagged = observation.samples.flagged(*flags, *contended)
            observation = self._with_accelerator(replace(observation, samples=flagged))
            measurement = build_measurement(item, case, observation, Check())
        except (GpubenchError, ArithmeticError) as error:
            return str(error)
        samples = measurement.samples
        measurement = replace(measurement, samples=samples and limited_samples(samples))
        return self._options.add_to(measurement)

    def _with_accelerator(self, observation: Observation) -> Observation:
        """The observation with the accelerator that was used, if any."""
        accelerator = self._accelerator
        if accelerator is None or not accelerator.is_started:
            return observation
        return replace(observation, device=accelerator.kind, device_name=accelerator.name)

    def _synchronised(self, timer: Callable[[], float]) -> Callable[[], float]:
        """Synchronized timer, cached since pytest-benchmark calibrates each timer once."""
        assert self._accelerator is not None
        if timer not in self._timers:
            self._timers[timer] = SynchronisedTimer(timer, self._accelerator)
        self._timers[timer].refresh()
        return self._timers[timer]

    def _facts(self) -> dict[str, float]:
        peak = None if self._accelerator is None else self._accelerator.peak_bytes()
        return {} if peak is None else {"peak_memory_bytes": float(peak)}
