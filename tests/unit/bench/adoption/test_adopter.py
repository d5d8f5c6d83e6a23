"""The role that records what pytest-benchmark measures."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from gpubench_plugin.bench.adoption import AdoptionPlugin
from gpubench_plugin.config.case import Case
from gpubench_plugin.config.marks import BenchmarkMark
from gpubench_plugin.config.sections import Configuration, GateSection, ModelSection
from gpubench_plugin.core.records import Measurement
from gpubench_plugin.environment import cuda_devices
from gpubench_plugin.environment.devices import Device
from gpubench_plugin.launchers.context import CONTEXT, STATE, BenchmarkState
from gpubench_plugin.measure.probes.interference import Contention
from gpubench_plugin.results.report_payload import LiveRecord
from gpubench_plugin.system import stored
from tests.support.messages import mentions
from tests.unit.bench.adoption.conftest import Torch

MS = 1_000_000
ID = "test_theirs.py::test_step"


def case(*, adopted: bool = True) -> Case:
    return Case(
        id=ID,
        params={},
        mark=BenchmarkMark(),
        world_size=1,
        device=Device(torch_name="cpu", model="a CPU", memory_gib=None),
        configuration=Configuration[ModelSection](
            model=ModelSection(), gate=GateSection(limits={"step_time_s": "3%"})
        ),
        adopted=adopted,
    )


class Test:
    """A test with pytest-benchmark's fixture, run by hand under an adopter."""

    __test__ = False

    def __init__(
        self,
        torch: Torch | None,
        *,
        adopted: bool = True,
        disabled: bool = False,
        calibration_precision: int = 10,
        mark: Mapping[str, Any] = {},
        **options: Any,
    ):
        self.torch = torch or Torch()
        self.adopter = AdoptionPlugin(lambda: torch)
        hook = SimpleNamespace(
            pytest_gpubench_metrics=lambda **_: [], pytest_gpubench_measurement=lambda **_: None
        )
        self.options = {"benchmark_calibration_precision": calibration_precision}
        self.item: Any = SimpleNamespace(
            name="test_step",
            nodeid=ID,
            stash=pytest.Stash(),
            config=SimpleNamespace(stash=pytest.Stash(), getoption=self.options.get),
            get_closest_marker={"benchmark": SimpleNamespace(kwargs=mark)}.get,
            ihook=hook,
        )
        self.state = self.item.stash[STATE] = BenchmarkState(case=case(adopted=adopted))
        self.fixture_metadata: dict[str, Any] = {}
        self.item.config.stash[CONTEXT] = SimpleNamespace(fixture_metadata=self.fixture_metadata)
        self.timed: list[Any] = []
        self.benchmark = BenchmarkFixture(
            self.item,
            timer=SimpleNamespace(target=self.torch.perf_counter),
            **{
                "disable_gc": False,
                "min_rounds": 5,
                "min_time": 0.000005,
                "max_time": 1.0,
                "precision": None,
                "confidence": None,
                "warmup": False,
                "warmup_iterations": 100_000,
                "calibration_precision": calibration_precision,
                **options,
                **mark,
            },
            add_stats=self.timed.append,
            logger=SimpleNamespace(debug=lambda *_, **__: None),
            warner=None,
            disabled=disabled,
            cprofile=False,
            cprofile_loops=None,
            cprofile_dump=None,
        )

    def run(
        self, body: Callable[[BenchmarkFixture], object], name: str = "benchmark"
    ) -> LiveRecord:
        """What is noted of a test with this body, which passes."""
        setup = self.adopter.pytest_fixture_setup(
            SimpleNamespace(argname=name),  # type: ignore[arg-type] # a stand-in
            SimpleNamespace(node=self.item),  # type: ignore[arg-type] # a stand-in
        )
        _wrapped(setup, self.benchmark)
        call = self.adopter.pytest_runtest_call(self.item)
        next(call)
        body(self.benchmark)
        with pytest.raises(StopIteration):
            call.send(None)
        return self.state.record

    def measured(self, body: Callable[[BenchmarkFixture], object]) -> Measurement:
        """The measurement of such a test."""
        record = self.run(body)
        assert record.measurement is not None, record.error_reason
        return record.measurement

    def step(self) -> None:
        """Hands 2 ms of work over in 10 µs."""
        self.torch.devices[0].launch(enqueue_ns=10_000, device_ns=2 * MS)


def _wrapped(generator: Any, result: object) -> object:
    """What a wrapper makes of `result`."""
    next(generator)
    with pytest.raises(StopIteration) as stopped:
        generator.send(result)
    return stopped.value.value


@pytest.mark.parametrize("pedantic", [True, False])
def test_a_step_on_a_gpu_is_timed_until_the_device_is_done(torch: Torch, pedantic: bool) -> None:
    """With its own timer pytest-benchmark would see 10 µs; calibrating takes the same one."""
    test = Test(torch)
    test.benchmark._get_precision = lambda _: 1e-9
    measured = test.measured(
        lambda benchmark: (
            benchmark.pedantic(test.step, rounds=7) if pedantic else benchmark(test.step)
        )
    )
    assert measured.metrics["step_time_s"].value == pytest.approx(0.00201)
    assert measured.metrics["step_time_min_s"].value == pytest.approx(0.00201)
    assert measured.timer == "cuda_synchronised"
    if pedantic:
        assert measured.metrics["rounds"].value == 7
        without = Test(Torch())
        without.benchmark.pedantic(without.step, rounds=7)
        assert without.benchmark.stats.stats.median == pytest.approx(1e-5)


@pytest.mark.parametrize("pedantic", [True, False])
@pytest.mark.parametrize(
    ("lazy", "said"),
    [
        (
            lambda: (number for number in range(9)),
            "returned a generator, whose work was never done",
        ),
        (lambda: [map(str, range(9))], "returned a list containing a map, whose work"),
    ],
)
def test_a_step_that_did_not_do_its_work_has_no_numbers(
    lazy: Callable[[], object], said: str, pedantic: bool
) -> None:
    """The test gets what it would get without us, and the record says what was wrong with it."""
    test, results = Test(None), []
    test.benchmark._get_precision = lambda _: 1e-9

    def step() -> object:
        test.torch.host.spend(100 * MS)
        return lazy()

    def body(benchmark: BenchmarkFixture) -> None:
        results.append((benchmark.pedantic if pedantic else benchmark)(step))

    record = test.run(body)
    assert record.measurement is None
    assert said in record.error_reason
    assert type(results[0]) is type(lazy())


def test_a_step_that_only_names_a_function_has_no_numbers() -> None:
    """What to write names the fixture that the test has."""
    record = Test(None).run(lambda benchmark: benchmark.pedantic(lambda: math.sqrt))
    said = "<built-in function sqrt> instead of calling it; pass that itself to benchmark(…)"
    assert (record.measurement, said in record.error_reason) == (None, True)


def test_arguments_of_the_function_may_have_any_name() -> None:
    """They are the test's, and reach the function as they are."""
    test = Test(None)
    test.benchmark._get_precision = lambda _: 1e-9

    def step(*, function: int) -> None:
        test.torch.host.spend(function)

    test.measured(lambda benchmark: benchmark(step, function=100 * MS))


def test_a_device_started_by_the_test_itself_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call of what is measured starts it."""
    torch = Torch(started=False)
    monkeypatch.setattr(cuda_devices, "visible", lambda: torch.devices)
    test = Test(torch)

    def step() -> None:
        torch.started = True
        test.step()

    measured = test.measured(lambda benchmark: benchmark.pedantic(step, rounds=3))
    assert measured.metrics["step_time_max_s"].value == pytest.approx(0.00201)
    assert measured.metrics["step_time_min_s"].value == pytest.approx(0.00201)


def test_without_an_accelerator_the_timer_is_pytest_benchmarks_own() -> None:
    """The very same object."""
    test = Test(None)
    own = test.benchmark._timer

    def body(benchmark: BenchmarkFixture) -> None:
        benchmark.pedantic(lambda: test.torch.host.spend(MS), rounds=5, iterations=4)
        assert benchmark._timer is own

    measured = test.measured(body)
    assert measured.timer == "perf_counter"
    samples = measured.samples
    assert samples is not None
    assert samples.durations_s == pytest.approx((0.001,) * 5)
    assert (samples.calls_per_duration, samples.calls, samples.rounds) == (4, 20, 5)
    assert samples.block_s == pytest.approx((0.02,))


def test_the_record_is_that_of_its_case(torch: Torch) -> None:
    """Limits, id, its rounds as settings; no metric of what nobody saw; the device's peak."""
    test = Test(torch)
    torch.peak = 1 << 40  # of an earlier test

    def body(benchmark: BenchmarkFixture) -> None:
        assert torch.resets == 1
        torch.peak = 4096
        benchmark.pedantic(test.step, rounds=7)

    measured = test.measured(body)
    assert (measured.id, measured.outcome) == (ID, "measured")
    assert measured.settings == {"pytest_benchmark.rounds": 7}
    assert measured.limits == {"step_time_s": "3%"}
    assert measured.metrics["peak_memory_bytes"].value == 4096
    assert not {"first_step_s", "warmup_s", "warmup_iterations", "mfu"} & measured.metrics.keys()
    assert stored.restore(Measurement, stored.dump(measured), "it") == measured
    assert test.fixture_metadata == {ID: test.benchmark.stats}


def test_very_many_rounds_are_thinned_after_the_metrics(torch: Torch) -> None:
    """The journal keeps 10,000 with the same extremes; the metrics are of all."""
    test = Test(torch)

    def body(benchmark: BenchmarkFixture) -> None:
        benchmark.pedantic(test.step)
        benchmark.stats.stats.data[:] = [float(n) for n in range(1, 25_002)]

    measured = test.measured(body)
    samples = measured.samples
    assert samples is not None
    assert len(samples.durations_s) == 10_000
    assert (samples.rounds, measured.metrics["rounds"].value) == (25_001, 25_001)
    assert (min(samples.durations_s), max(samples.durations_s)) == (1.0, 25_001.0)
    assert measured.metrics["step_time_s"].value == 12_501


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ([0.001, 0.001, 0.001, math.nan], "mean nan is impossible"),
        ([math.inf, -math.inf], "median nan is impossible"),
        ([0.001, 0.0], "min 0.0 is impossible"),
    ],
)
def test_impossible_numbers_fail_as_those_of_a_file(data: list[float], said: str) -> None:
    """With the field, and without numbers in the run's file; the test has passed all the same."""
    test = Test(None)

    def body(benchmark: BenchmarkFixture) -> None:
        benchmark.pedantic(lambda: test.torch.host.spend(MS))
        benchmark.stats.stats.data[:] = data

    measured = test.measured(body)
    assert (measured.outcome, measured.reason) == ("failed", said)
    assert (measured.metrics, test.fixture_metadata) == ({}, {})


def test_what_was_not_measured_says_why() -> None:
    """Never called, measuring is off, or an error that the test has caught."""
    reason = Test(None).run(lambda _: None).error_reason
    assert mentions(reason, "did not call", "benchmark fixture")
    off = Test(None, disabled=True).run(lambda benchmark: benchmark.pedantic(lambda: None))
    assert off.error_reason == "measuring is disabled (--benchmark-disable)"

    def fails(benchmark: BenchmarkFixture) -> None:
        with pytest.raises(ZeroDivisionError):
            benchmark.pedantic(lambda: 1 / 0)

    def is_emptied(benchmark: BenchmarkFixture) -> None:
        benchmark.pedantic(lambda: None)
        benchmark.stats.stats.data.clear()

    for body in (fails, is_emptied):
        assert Test(None).run(body).error_reason == "the measured function raised an error"


def test_a_fixture_of_somebody_else_is_left_alone() -> None:
    """Another fixture, or one of the same name that is not pytest-benchmark's."""
    other = Test(None).run(lambda benchmark: benchmark.pedantic(lambda: None), name="other")
    assert other.error_reason == "benchmark is not pytest-benchmark's fixture here"


def test_a_test_that_is_not_adopted_is_left_alone(torch: Torch) -> None:
    """Our own benchmarks carry that fixture, too."""
    test = Test(torch, adopted=False)
    own = test.benchmark._timer
    record = test.run(lambda benchmark: benchmark.pedantic(test.step))
    assert (record.measurement, record.error_reason) == (None, "")
    assert test.benchmark._timer is own


def test_what_fails_later_is_no_result() -> None:
    """A test that fails after it was measured is not in the run's own file."""
    test = Test(None)
    test.measured(lambda benchmark: benchmark.pedantic(lambda: test.torch.host.spend(MS)))
    failed = SimpleNamespace(passed=False, when="teardown")
    made = _wrapped(test.adopter.pytest_runtest_makereport(test.item), failed)
    assert made is failed
    assert test.fixture_metadata == {}


def test_equal_timers_are_one(torch: Torch) -> None:
    """pytest-benchmark finds out the precision of each timer that it sees, which takes a while."""
    test = Test(torch)
    test.measured(lambda benchmark: benchmark.pedantic(test.step))
    first = test.benchmark._timer
    again = Test(torch)
    again.adopter = test.adopter
    again.benchmark._timer = test.torch.perf_counter
    again.measured(lambda benchmark: benchmark.pedantic(again.step))
    assert again.benchmark._timer is first


def recorded_of(times_s: Sequence[float]) -> Measurement:
    """The measurement of a step that takes these times, one a round."""
    test = Test(None)
    left = iter(times_s)

    def step() -> None:
        test.torch.host.spend(round(next(left) * 1e9))

    return test.measured(
        lambda benchmark: benchmark.pedantic(step, rounds=len(times_s), iterations=1)
    )


@pytest.mark.parametrize(
    ("times_s", "flags"),
    [
        ([0.001] * 100, ()),
        ([0.001 * 1.001**n for n in range(100)], ("drifting", "dependent")),
        ([0.001, 0.002] * 50, ()),
        ([0.001] * 19 + [0.009], ("outliers", "stalls")),
        ([0.001, 0.002, 0.003], ()),
        ([0.001], ()),
    ],
)
def test_what_the_rounds_say_against_their_median_is_flagged(
    times_s: list[float], flags: tuple[str, ...]
) -> None:
    """As of our own measurements, where there are rounds enough to tell."""
    disturbed = {"contended", "descheduled", "oversubscribed"}  # this machine may be busy
    seen = set(recorded_of(times_s).flags) - disturbed
    if "drifting" in flags:
        assert {"drifting", "dependent"} <= seen
    else:
        assert seen == {*flags}


def test_who_waited_for_a_processor_is_flagged(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the beginning of pytest-benchmark's calibration to the end of its rounds."""
    for flags in (("contended", "oversubscribed"), ("descheduled",), ()):
        monkeypatch.setattr(Contention, "flags", flags)
        assert recorded_of([0.001] * 10).flags == flags
