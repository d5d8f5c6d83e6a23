"""The adopter: records what pytest-benchmark measured of adopted tests, and with which options."""

from __future__ import annotations

import inspect
import sys
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Final

import pytest

from gpubench_plugin.bench import unfinished
from gpubench_plugin.config import FOREIGN_FIXTURE
from gpubench_plugin.errors import GpubenchError
from gpubench_plugin.flags import CONTENDED, DEPENDENT, DRIFTING, NOT_CONVERGED, OUTLIERS
from gpubench_plugin.launchers import Notes, context_of, state_of
from gpubench_plugin.measure import Dependence, has_outliers, is_trending, measurement_of
from gpubench_plugin.measure.probes import Contention
from gpubench_plugin.records import Check, Measurement, Observation, Samples, Work
from gpubench_plugin.results import SECTION, pytest_benchmark, settings_of, thinned, told
from gpubench_plugin.session.adoption.timer import Accelerator, SynchronisedTimer

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from gpubench_plugin.config import Case, MeasureSection
    from gpubench_plugin.environment import Device
    from gpubench_plugin.results import BenchmarkFixture, Recorded


def observation_of(recorded: Recorded, device: Device, facts: Mapping[str, float]) -> Observation:
    """What pytest-benchmark has measured, as an observation of one rank; a round is one here too.

    What came before the timed rounds (calibration, warm-up) pytest-benchmark does not tell.
    """
    durations = recorded.durations_s
    samples = Samples(
        timer=recorded.timer,
        durations_s=durations,
        calls_per_duration=recorded.iterations,
        block_s=(sum(durations) * recorded.iterations,),
        block_calls=(len(durations) * recorded.iterations,),
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
    """What the rounds say against their median; pytest-benchmark ends them by rules of its own.

    Rounds too few for an interval are not said to have missed one.
    """
    dependence = Dependence(rounds_s)
    interval = dependence.interval(section.confidence)
    flags = {
        DRIFTING: is_trending(rounds_s, section.steady_tolerance),
        NOT_CONVERGED: interval is not None and interval.half_width > section.ci_half_width,
        DEPENDENT: dependence.strong,
        OUTLIERS: has_outliers(rounds_s),
    }
    return tuple(flag for flag, holds in flags.items() if holds)


_MOST_ROUNDS: Final = 10_000


def kept(samples: Samples) -> Samples:
    """The samples to record: of very many the journal gets ten thousand.

    They have the same extremes and the same distribution; the metrics are those of all.
    """
    fewer = tuple(thinned(samples.durations_s, _MOST_ROUNDS))
    if len(fewer) == len(samples.durations_s):
        return samples
    return replace(samples, durations_s=fewer, reduced_from=samples.timing)


_CALIBRATION: Final = "calibration_precision"
_ROUNDS: Final = ("rounds", "iterations", "warmup_rounds")


class Options:
    """The options of one test's fixture `benchmark`, which has not measured yet.

    Numbers of pytest-benchmark compare where they were measured with equal options.
    """

    def __init__(self, benchmark: BenchmarkFixture, item: pytest.Item) -> None:
        self._benchmark = benchmark
        self._item = item
        self._rounds: dict[str, int] | None = None
        # Nothing that pytest-benchmark keeps tells how `pedantic` was called.
        setattr(benchmark, "pedantic", self._noting(benchmark.pedantic))  # noqa: B010 # a method

    def added_to(self, measurement: Measurement) -> Measurement:
        """`measurement`, which the fixture has made, with what it was made with."""
        options = self._told()
        return replace(
            measurement,
            configuration={**measurement.configuration, SECTION: options},
            settings={**settings_of(options), **measurement.settings},
        )

    def _told(self) -> dict[str, Any]:
        kept: dict[str, Any] = self._benchmark.stats.options
        if self._rounds is not None:
            return {**told(kept, pedantic=True), **self._rounds}
        return told({**kept, _CALIBRATION: self._calibration()})

    def _calibration(self) -> object:
        """What alone is not kept with the results: as the mark says, or the command line."""
        mark = self._item.get_closest_marker(FOREIGN_FIXTURE)
        stated = {} if mark is None else mark.kwargs
        if _CALIBRATION in stated:
            return stated[_CALIBRATION]
        return self._item.config.getoption(f"benchmark_{_CALIBRATION}", None)

    def _noting(self, pedantic: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(pedantic)

        @wraps(pedantic)
        def noting(*args: Any, **kwargs: Any) -> Any:
            made = pedantic(*args, **kwargs)
            called = signature.bind(*args, **kwargs)
            called.apply_defaults()
            self._rounds = {name: int(called.arguments[name]) for name in _ROUNDS}
            return made

        return noting


class Adopter:
    """Watches the ``benchmark`` fixture of adopted tests, and notes what it has measured.

    Nothing a test or its session sees depends on it: what cannot be recorded is said in the run,
    and the test passes or fails as ever. torch is looked for in `modules`, and not imported.
    """

    def __init__(self, modules: Mapping[str, Any] = sys.modules) -> None:
        self._modules = modules
        self._accelerator: Accelerator | None = None
        self._looked = False
        self._timers: dict[object, SynchronisedTimer] = {}
        self._watched: _Watched | None = None

    def pytest_runtestloop(self) -> None:
        """Import beforehand what a test might hide, by a file system of its own say."""
        from gpubench_plugin.measure.metrics import prepare

        prepare()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, object, object]:
        """Watch the fixture from the moment it is there."""
        made = yield
        if fixturedef.argname == FOREIGN_FIXTURE and pytest_benchmark.is_fixture(made):
            state = state_of(request.node)
            if state is not None and state.case.adopted:
                self._watch(request.node, made)
        return made

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Note what was measured, once the test has passed."""
        result = yield
        state = state_of(item)
        if state is not None and state.case.adopted:
            state.notes = self._notes(item, state.case)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """What did not pass is no result of the run's own file."""
        report = yield
        if not report.passed and self._watched is not None:
            context_of(item.config).carried.pop(item.nodeid, None)
        if report.when == "teardown":
            self._watched = None  # lets go of what the test measured with
        return report

    def _watch(self, item: pytest.Item, benchmark: BenchmarkFixture) -> None:
        options = Options(benchmark, item)
        self._watched = watched = _Watched(benchmark, options, self._find, self._timers)
        pytest_benchmark.while_measuring(benchmark, watched.begin, watched.look)

    def _find(self) -> Accelerator | None:
        if not self._looked and "torch" in self._modules:
            self._accelerator = Accelerator.found(self._modules)
            self._looked = True  # asking the driver takes milliseconds
        return self._accelerator

    def _notes(self, item: pytest.Item, case: Case) -> Notes:
        notes = Notes()
        watched = self._watched
        if watched is None:
            notes.not_measured = f"{FOREIGN_FIXTURE} is no fixture of pytest-benchmark here"
            return notes
        measured = watched.conclude(item, case)
        if isinstance(measured, str):
            notes.not_measured = measured
        else:
            notes.measurement = measured
            context_of(item.config).carried[item.nodeid] = watched.benchmark.stats
        return notes


class _Watched:
    """One test's fixture and the accelerator beside it."""

    def __init__(
        self,
        benchmark: BenchmarkFixture,
        options: Options,
        find: Callable[[], Accelerator | None],
        timers: dict[object, SynchronisedTimer],
    ) -> None:
        self.benchmark = benchmark
        self._options = options
        self._find = find
        self._accelerator = find()
        self._timers = timers
        self._contention = Contention()
        self._problem: str | None = None
        if self._accelerator is not None:
            self._accelerator.forget_peak()

    def begin(self) -> Contention:
        """The test is about to measure; it may have imported torch by now."""
        self._accelerator = self._find()
        if self._accelerator is not None:
            pytest_benchmark.change_timer(self.benchmark, self._synchronised)
        self._contention = Contention()
        return self._contention

    def look(self, result: object, function: Callable[..., object]) -> None:
        """See whether a call did its work; the `result` is the test's, and stays as it is."""
        self._problem = unfinished(result, function, FOREIGN_FIXTURE)

    def conclude(self, item: pytest.Item, case: Case) -> Measurement | str:
        """The record, or why there is none."""
        recorded = pytest_benchmark.recorded(self.benchmark)
        if isinstance(recorded, str):
            return recorded
        if self._problem is not None:
            return self._problem
        try:
            observation = observation_of(recorded, case.device, self._facts())
            flags = flags_of(recorded.durations_s, case.configuration.measure)
            contended = (CONTENDED,) if self._contention.contended else ()
            flagged = observation.samples.flagged(*flags, *contended)
            observation = self._placed(replace(observation, samples=flagged))
            measurement = measurement_of(item, case, observation, Check())
        except (GpubenchError, ArithmeticError) as error:
            return str(error)
        samples = measurement.samples
        measurement = replace(measurement, samples=samples and kept(samples))
        return self._options.added_to(measurement)

    def _placed(self, observation: Observation) -> Observation:
        """The observation with the accelerator that was in use, if one was."""
        accelerator = self._accelerator
        if accelerator is None or not accelerator.is_started:
            return observation
        return replace(observation, device=accelerator.kind, device_name=accelerator.name)

    def _synchronised(self, timer: Callable[[], float]) -> Callable[[], float]:
        """The same for equal timers: pytest-benchmark finds out the precision of each."""
        assert self._accelerator is not None
        if timer not in self._timers:
            self._timers[timer] = SynchronisedTimer(timer, self._accelerator)
        self._timers[timer].refresh()
        return self._timers[timer]

    def _facts(self) -> dict[str, float]:
        peak = None if self._accelerator is None else self._accelerator.peak_bytes()
        return {} if peak is None else {"peak_memory_bytes": float(peak)}
