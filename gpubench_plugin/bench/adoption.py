"""Recording of adopted tests: the measurement and options of pytest-benchmark.

A suite that computes on an accelerator gets a timer that synchronizes with it.
"""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from gpubench_plugin.bench.step import unfinished_reason
from gpubench_plugin.config.parametrization import FOREIGN_FIXTURE, id_of
from gpubench_plugin.core.errors import GpubenchError, UsageProblem
from gpubench_plugin.core.quality_flags import DEPENDENT, DRIFTING, OUTLIERS
from gpubench_plugin.core.records import Check, Measurement, Observation, Samples, Work
from gpubench_plugin.environment import cuda_devices
from gpubench_plugin.environment.torch_use import imported_torch
from gpubench_plugin.launchers.context import context_of, state_of
from gpubench_plugin.measure.interval import Autocorrelation
from gpubench_plugin.measure.probes.interference import Contention
from gpubench_plugin.measure.record_builder import build_measurement
from gpubench_plugin.measure.recording import has_outliers
from gpubench_plugin.measure.warmup import is_trending
from gpubench_plugin.results import pytest_benchmark
from gpubench_plugin.results.pytest_benchmark_files import SECTION, relevant_options, settings_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping

    from gpubench_plugin.config.case import Case
    from gpubench_plugin.results.pytest_benchmark import BenchmarkFixture, PytestBenchmarkTiming

# Most rounds on record: at 20 bytes each, 200 KB of a journal line.
_MOST_ROUNDS: Final = 10_000
_CALIBRATION: Final = "calibration_precision"
_ROUNDS: Final = ("rounds", "iterations", "warmup_rounds")
# Accelerators with ``torch.<kind>.is_initialized``.
_INITIALIZED: Final = ("cuda", "xpu")


class AdoptionPlugin:
    """Observes the ``benchmark`` fixture of adopted tests and records its measurements.

    Tests pass or fail as without it; the run says what could not be recorded. torch is used only if
    it is imported.
    """

    def __init__(self, torch: Callable[[], Any | None] = imported_torch) -> None:
        self._torch = torch
        self.fixture: _AdoptedFixture | None = None

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
            is_other = self.fixture is None or self.fixture.benchmark is not fixture_value
            if state is not None and state.case.adopted and is_other:
                self.fixture = _AdoptedFixture(self, fixture_value, request.node, state.case)
        return fixture_value

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Record the measurement once the test has passed."""
        result = yield
        state = state_of(item)
        if state is None or not state.case.adopted:
            return result
        if self.fixture is None:
            state.record.error_reason = f"{FOREIGN_FIXTURE} is not pytest-benchmark's fixture here"
            return result
        measurement = self.fixture.measurement()
        if isinstance(measurement, str):
            state.record.error_reason = measurement
        else:
            state.record.measurement = measurement
            if measurement.outcome == "measured":
                metadata = context_of(item.config).fixture_metadata
                metadata[id_of(item)] = self.fixture.benchmark.stats
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Keep failed tests out of the run's results file."""
        report = yield
        if not report.passed and self.fixture is not None:
            context_of(item.config).fixture_metadata.pop(id_of(item), None)
        if report.when == "teardown":
            self.fixture = None  # frees what the test measured with
        return report

    def find(self) -> Accelerator | None:
        """The accelerator, if there is one and torch is imported."""
        torch = self._torch()
        return None if torch is None else Accelerator.find(torch)


class _AdoptedFixture:
    """A test's `benchmark` fixture with its options and the accelerator in use.

    Numbers with different options do not compare.
    """

    def __init__(
        self, plugin: AdoptionPlugin, benchmark: BenchmarkFixture, item: pytest.Item, case: Case
    ) -> None:
        self._plugin = plugin
        self.benchmark = benchmark
        self._item = item
        self._case = case
        self._accelerator = plugin.find()
        self._contention: Contention | None = None
        self._error: str | None = None
        self._rounds: dict[str, int] = {}
        if self._accelerator is not None:
            self._accelerator.reset_peak()
        pytest_benchmark.observe(benchmark, self._begin, self._check_call)

    def measurement(self) -> Measurement | str:
        """The record, failed if its times are impossible, or the reason why there is none."""
        if self._contention is None:
            return "the test did not call the benchmark fixture itself"
        timing = pytest_benchmark.own_measurement(self.benchmark)
        if isinstance(timing, str):
            return timing
        if self._error is not None:
            return self._error
        if fault := timing.fault:
            return self._case.unmeasured("failed", fault)
        try:
            observation = self._observation(timing)
            measurement = build_measurement(self._item, self._case, observation, Check())
        except (GpubenchError, ArithmeticError) as error:
            return str(error)
        options = self._options()
        return replace(
            measurement,
            samples=measurement.samples and _limited(measurement.samples),
            configuration={**measurement.configuration, SECTION: options},
            settings={**settings_of(options), **measurement.settings},
            **pytest_benchmark.labels(self.benchmark),
        )

    def _begin(self) -> Contention:
        """Prepare for measuring; torch may have been imported since the fixture's creation."""
        self._accelerator = self._plugin.find()
        if self._accelerator is not None:
            pytest_benchmark.change_timer(self.benchmark, self._synchronised)
        self._plugin.fixture = self  # of several, one in front of the other, that which measures
        self._contention = Contention()
        return self._contention

    def _check_call(
        self, result: object, function: Callable[..., object], rounds: Mapping[str, Any]
    ) -> None:
        """Check whether a call did its work; its `result` is left unchanged."""
        self._rounds = {name: int(rounds[name]) for name in _ROUNDS if name in rounds}
        self._error = unfinished_reason(result, function, FOREIGN_FIXTURE)

    def _observation(self, timing: PytestBenchmarkTiming) -> Observation:
        """pytest-benchmark's measurement, with the accelerator that was used, if any.

        What precedes the timed rounds (calibration, warm-up) it does not report.
        """
        accelerator, device = self._accelerator, self._case.device
        is_used = accelerator is not None and accelerator.is_started
        peak = None if accelerator is None else accelerator.peak_bytes()
        rounds_s, iterations = timing.durations_s, timing.iterations
        return Observation(
            samples=Samples(
                timer=timing.timer,
                durations_s=rounds_s,
                calls_per_duration=iterations,
                block_s=(sum(rounds_s) * iterations,),
                block_calls=(len(rounds_s) * iterations,),
                first_step_s=None,
                warmup_s=(),
                warmup_calls=0,
                flags=self._flags(rounds_s),
            ),
            work=Work(),
            device=accelerator.kind if accelerator and is_used else device.type,
            device_name=accelerator.name if accelerator and is_used else device.model,
            precision="",
            world_size=1,
            facts={} if peak is None else {"peak_memory_bytes": float(peak)},
        )

    def _flags(self, rounds_s: tuple[float, ...]) -> tuple[str, ...]:
        """Flags raised by the rounds, and by what disturbed them."""
        section = self._case.configuration.measure
        assert self._contention is not None
        flags = {
            DRIFTING: is_trending(rounds_s, section.steady_tolerance),
            DEPENDENT: Autocorrelation(rounds_s).hides_interval(section.confidence),
            OUTLIERS: has_outliers(rounds_s),
        }
        return (*(flag for flag, is_raised in flags.items() if is_raised), *self._contention.flags)

    def _synchronised(self, timer: Callable[[], float]) -> Callable[[], float]:
        """Synchronized timer, the same each time: pytest-benchmark calibrates each timer once."""
        assert self._accelerator is not None
        synchronised = _synchronised_timer(timer, self._accelerator)
        synchronised.refresh()
        return synchronised

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = self.benchmark.stats.options
        if self._rounds:
            return {**relevant_options(options, in_pedantic_mode=True), **self._rounds}
        # Results do not contain this option: it is that of the mark, or of the command line.
        mark = self._item.get_closest_marker(FOREIGN_FIXTURE)
        calibration = self._item.config.getoption(f"benchmark_{_CALIBRATION}", None)
        if mark is not None:
            calibration = mark.kwargs.get(_CALIBRATION, calibration)
        return relevant_options({**options, _CALIBRATION: calibration})


def _limited(samples: Samples) -> Samples:
    """Samples to record: subsampled, with the same extremes, distribution and metrics."""
    subsampled = tuple(pytest_benchmark.subsample(samples.durations_s, _MOST_ROUNDS))
    if len(subsampled) == len(samples.durations_s):
        return samples
    return replace(samples, durations_s=subsampled, reduced_from=samples.timing)


class Accelerator:
    """The devices of one `kind` (``cuda``, ``xpu``, ``mps``) as known to torch.

    Nothing here initializes them: a context takes memory and half a second, and a process with one
    can no longer fork. Nor does it start CUDA's driver; see ``environment/cuda_devices.py``.
    """

    def __init__(self, torch: Any, kind: str) -> None:
        self.kind = kind
        self._module = getattr(torch, kind)

    @classmethod
    @cache  # asking the driver takes milliseconds
    def find(cls, torch: Any) -> Accelerator | None:
        """Find the accelerator; None without one."""
        with warnings.catch_warnings():  # for example of a driver too old: then there is none
            warnings.simplefilter("ignore")
            with suppress(UsageProblem):
                if cuda_devices.visible():
                    return cls(torch, "cuda")
            if torch.xpu.device_count():
                return cls(torch, "xpu")
            return cls(torch, "mps") if torch.backends.mps.is_available() else None

    @property
    def is_started(self) -> bool:
        """Whether this process has initialized it, and so may have work on it."""
        if self.kind == "mps":
            return bool(self._module.current_allocated_memory())
        return bool(self._module.is_initialized())

    def synchronizers(self) -> tuple[Callable[[], object], ...]:
        """Functions that synchronize the current device and those with memory; once started."""
        if self.kind == "mps" or self._module.device_count() == 1:
            return (self._module.synchronize,)
        current_index = self._module.current_device()
        return tuple(
            partial(self._module.synchronize, index)
            for index in range(self._module.device_count())
            if index == current_index or self._module.memory_allocated(index)
        )

    @property
    def name(self) -> str:
        """Model of the current device; call only once started."""
        return str(self._module.get_device_name()) if self.kind in _INITIALIZED else self.kind

    def reset_peak(self) -> None:
        """Reset the memory peak."""
        if self.is_started and self.kind in _INITIALIZED:
            self._module.reset_peak_memory_stats()

    def peak_bytes(self) -> int | None:
        """Peak memory allocated by torch on the current device; None if unsupported."""
        if not self.is_started or self.kind not in _INITIALIZED:
            return None
        return int(self._module.max_memory_allocated()) or None


class SynchronisedTimer:
    """Reads `timer` after synchronizing with `accelerator`.

    Launching work on an accelerator takes microseconds, whatever the work: without synchronizing,
    only the launch is timed. Until torch starts the accelerator, each reading checks for that.
    """

    def __init__(self, timer: Callable[[], float], accelerator: Accelerator) -> None:
        name = getattr(timer, "__name__", str(timer))
        suffix = "" if name == "perf_counter" else f"_{name}"
        self.__name__ = f"{accelerator.kind}_synchronised{suffix}"
        self._timer = timer
        self._accelerator = accelerator
        self._waits: tuple[Callable[[], object], ...] = (self._check_started,)

    def __call__(self) -> float:
        """Synchronized reading in seconds."""
        for wait in self._waits:
            wait()
        return self._timer()

    def refresh(self) -> None:
        """Determine the devices in use, once per benchmark since it is slow."""
        if self._accelerator.is_started:
            self._waits = self._accelerator.synchronizers()

    def _check_started(self) -> None:
        if self._accelerator.is_started:
            self.refresh()
            self()


_synchronised_timer: Final = cache(SynchronisedTimer)
