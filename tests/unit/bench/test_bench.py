"""The bench on a rank that need not exist: what it records, and what it tells the other ranks."""

from __future__ import annotations

import itertools
import math
import os
import re
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import replace
from functools import cache, partial, wraps
from multiprocessing.pool import ThreadPool
from pathlib import Path
from time import perf_counter
from types import MappingProxyType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from gpubench_plugin.bench import measuring, probing
from gpubench_plugin.bench.bench import Bench
from gpubench_plugin.bench.measuring import Measuring
from gpubench_plugin.bench.probing import wait_while_throttled
from gpubench_plugin.bench.subjects import FirstForward, Subjects
from gpubench_plugin.config.case import Case
from gpubench_plugin.config.marks import BenchmarkMark
from gpubench_plugin.config.sections import Configuration, MeasureSection, ModelSection
from gpubench_plugin.core.errors import (
    CorrectnessError,
    MeasurementError,
    Misuse,
    Throttled,
    Unsupported,
    UsageProblem,
)
from gpubench_plugin.core.quality_flags import UNCALIBRATED
from gpubench_plugin.core.records import Check, Json, Work
from gpubench_plugin.environment.devices import Device
from gpubench_plugin.launchers.context import STATE, BenchmarkState
from gpubench_plugin.measure.clocks.base import Block, Task
from gpubench_plugin.measure.clocks.cuda_step import CudaStepClock
from gpubench_plugin.measure.clocks.host import CpuClock
from gpubench_plugin.measure.clocks.step_cost import COST_CALLS
from gpubench_plugin.measure.probes import memory, nvml
from gpubench_plugin.measure.probes.interference import Contention
from gpubench_plugin.measure.probes.tensor_memory import TensorMemory
from gpubench_plugin.ranks.agreement import RankAgreement
from gpubench_plugin.ranks.reduction import Reduction
from gpubench_plugin.ranks.world import World
from gpubench_plugin.results.report_payload import LiveRecord
from tests.support.fake_cuda import FakeCuda, FakeHost

ID = "test_it.py::test_step"


class Group:
    """As much of a process group as a bench uses: on rank zero the others only listen."""

    traffic: MappingProxyType[str, int] = MappingProxyType({})
    agreement = RankAgreement()
    device = torch.device("cpu")

    def __init__(self, *, rank: int = 0, size: int = 1, told: Json | None = None):
        self.world = World(rank=rank, local_rank=rank, size=size, local_size=size)
        self.control = self
        self.told = told

    def collect(self, tag: str, record: Json, *, timeout_s: float | None = None) -> list[Json]:
        return [record] if self.world.is_root else []

    def publish(self, tag: str, record: Json, *, timeout_s: float | None = None) -> Json:
        if tag.startswith("check"):
            return record
        if self.world.is_root:
            self.told = record
        assert self.told is not None
        return self.told


class Carrier:
    """As much of pytest-benchmark's fixture as a bench uses."""

    disabled = False

    def __init__(self) -> None:
        self.stats: Any = SimpleNamespace()
        self.extra_info: Json = {}
        self.group: str | None = None

    def pedantic(self, step: Any) -> object:
        """Once, as where measuring is off; a no-op where it carries our samples."""
        return step()


def step() -> None:
    """Long enough for any clock."""
    sum(range(1000))


def bench(
    group: Group,
    metrics: Any = lambda **_: [],
    *,
    parts: Subjects | None = None,
    disabled: bool = False,
    tensor_memory: TensorMemory | None = None,
    device: str = "cpu",
    measure: Json | None = None,
    events: list[Json] | None = None,
) -> Bench:
    """The bench of a test, which journals to `events`.

    `metrics` is the hook of other plugins, `measure` has further keys.
    """
    record = LiveRecord(journal=None if events is None else lambda _, event: events.append(event))
    case = Case(
        id=ID,
        params={},
        mark=BenchmarkMark(),
        world_size=group.world.size,
        device=Device(torch_name=device, model="a device", memory_gib=None),
        configuration=Configuration[ModelSection](
            model=ModelSection(),
            measure=MeasureSection(by="steps", steps=3, warmup_s=1e-6, **(measure or {})),
        ),
    )
    hook = SimpleNamespace(
        pytest_gpubench_metrics=metrics, pytest_gpubench_measurement=lambda **_: None
    )
    config = SimpleNamespace(rootpath=Path.cwd())
    item: Any = SimpleNamespace(nodeid=ID, ihook=hook, stash=pytest.Stash(), config=config)
    ranks = SimpleNamespace(variables={})
    context: Any = SimpleNamespace(
        ranks=ranks,
        ranks_folder=None,
        run=None,
        fixture_metadata={},
        settings=SimpleNamespace(repro=None),
    )
    parts = parts or Subjects()
    parts.tensor_memory = tensor_memory
    fixture: Any = Carrier()
    fixture.disabled = disabled
    ranks: Any = group
    item.stash[STATE] = state = BenchmarkState(case=case, fixture=fixture, record=record)
    measuring = Measuring(
        item=item,
        state=state,
        fixture=fixture,
        context=context,
        precision=None,
        group=ranks,
        subjects=parts,
    )
    request: Any = SimpleNamespace(node=item, addfinalizer=lambda _: None)
    return Bench(measuring, request)


@pytest.mark.parametrize(("warmup", "calibrating"), [(0, 0), (2, COST_CALLS)])
@pytest.mark.parametrize("kind", [CpuClock, CudaStepClock])
def test_pedantic_makes_the_calls_that_it_states(
    monkeypatch: pytest.MonkeyPatch, kind: type[Any], warmup: int, calibrating: int
) -> None:
    """On a GPU some more calibrate the clock, if there was a warm-up; else that is a doubt."""
    device = FakeCuda(host := FakeHost())
    clock = CpuClock(host.now) if kind is CpuClock else CudaStepClock(device, host.now)
    monkeypatch.setattr(measuring, "clock_for", lambda *_, **__: clock)
    calls = []

    def step() -> None:
        calls.append(device.launch(enqueue_ns=2000, device_ns=3_000_000))

    with_memory = bench(Group(), tensor_memory=TensorMemory())
    measured = with_memory.pedantic(step, rounds=3, warmup_rounds=warmup, iterations=2)
    assert measured.samples is not None
    assert (measured.samples.rounds, measured.samples.calls) == (3, 6)
    extra = calibrating * (kind is CudaStepClock)
    assert len(calls) == 6 + 2 * warmup + extra
    assert (UNCALIBRATED in measured.flags) == (kind is CudaStepClock and not warmup)
    assert measured.samples.first_step_s is None


@pytest.mark.parametrize(
    ("module", "name"),
    [(probing, "PeakMemory"), (measuring, "DeviceState"), (probing, "Suspension")],
)
def test_what_a_probe_has_seen_is_a_flag_of_the_record(
    monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str
) -> None:
    """Whichever of them it was that says how far the numbers can be trusted."""

    class Probe(SimpleNamespace):
        __enter__ = begin = sample = left_out = lambda self: self

        def __exit__(self, *_: object) -> None: ...

    probe = Probe(flags=("seen",), facts={}, event=None)
    monkeypatch.setattr(module, name, lambda *_, **__: probe)
    assert "seen" in bench(Group(), device="cuda:0")(step).flags


def test_the_devices_state_is_watched_from_the_first_timed_call_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It is told when they begin and asked inside each block; its facts become metrics."""
    calls: list[str] = []

    class Watch(nvml.DeviceState):
        @property
        def facts(self) -> dict[str, float]:
            return {"sm_clock_mhz": 1980.0}

        @property
        def event(self) -> Json:
            return {"event": "device_state", "slowed_by": [], "unknown": []}

        def begin(self) -> None:
            calls.append("begin")

        def sample(self) -> None:
            calls.append("sample")

    class Launching(CpuClock):
        def block(self, task: Task, **sizes: int) -> Block:
            self.on_launched()
            return super().block(task, **sizes)

    monkeypatch.setattr(measuring, "DeviceState", Watch)
    monkeypatch.setattr(measuring, "clock_for", lambda *_, **__: Launching())
    events: list[Json] = []
    watched = bench(Group(), device="cuda:0", events=events)
    measurement = watched(step)
    assert measurement.metrics["sm_clock_mhz"].value == 1980
    phases = ["phase:check", "phase:warm-up", "phase:measure", "device_state", "phase:inspect"]
    assert [":".join([e["event"], *filter(None, [e.get("phase")])]) for e in events] == phases
    at = calls.index("begin")
    assert measurement.samples is not None
    assert calls[at:] == ["begin"] + ["sample"] * len(measurement.samples.block_s)


@pytest.mark.parametrize("throttle", ["wait", "fail"])
def test_a_gpu_that_nothing_watches_is_not_measured_under_guard(
    monkeypatch: pytest.MonkeyPatch, throttle: str
) -> None:
    """Numbers that were to be refused are not passed for want of NVML, on no rank."""
    guarded = bench(Group(), device="cuda:0", measure={"throttle": throttle})
    failures: list[BaseException | None] = []

    def shared(_: Reduction, failure: BaseException | None) -> None:
        failures.append(failure)
        if failure is not None:
            raise failure

    monkeypatch.setattr(Reduction, "raise_check_failures", shared)
    with pytest.raises(Unsupported, match=rf"measure\.throttle={throttle} requires NVML"):
        guarded(step)
    assert isinstance(failures[-1], Unsupported)


def test_ranks_that_share_a_gpu_share_its_energy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each counts for its part of the device."""
    numbers: list[int] = []

    class Watch(nvml.DeviceState):
        def __init__(self, device: torch.device, *, sharing_ranks: int = 1) -> None:
            super().__init__(device, sharing_ranks=sharing_ranks)
            numbers.append(sharing_ranks)

    monkeypatch.setattr(measuring, "DeviceState", Watch)
    for shares in (True, False):
        monkeypatch.setattr(Case, "shares_device", shares)
        group = Group()
        group.world = World(local_size=2)
        bench(group, device="cuda:0")(step)
    assert numbers == [2, 1]


def test_the_clocks_own_memory_is_allocated_before_memory_is_watched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And what it says that it allocated is excluded from the peaks."""
    excluded: list[int] = []

    class Watch(memory.PeakMemory):
        def __init__(self, device: torch.device, excluded_bytes: int = 0) -> None:
            super().__init__(device, excluded_bytes)
            excluded.append(excluded_bytes)

    monkeypatch.setattr(CpuClock, "prepare", lambda _: 42)
    monkeypatch.setattr(probing, "PeakMemory", Watch)
    bench(Group())(step)
    assert excluded == [42]


def test_a_dead_proxy_takes_nothing_from_a_measurement() -> None:
    """All objects are gone through for tensors, and this one raises whatever it is asked."""
    owner = Result()
    _dead = weakref.proxy(owner)
    del owner
    with_memory = bench(Group(), tensor_memory=TensorMemory())
    assert "peak_memory_bytes" in with_memory(lambda: torch.ones(64)).metrics


@pytest.mark.slow
def test_a_step_that_compiles_at_its_first_call_is_measured() -> None:
    """What the compiler leaves behind has dead proxies in it, and tensors without data."""
    compiled: Any = torch.compile(torch.nn.Linear(8, 8), backend="eager")
    batch = torch.ones(2, 8)
    found = bench(Group(), tensor_memory=TensorMemory())(lambda: compiled(batch))
    assert "peak_memory_bytes" in found.metrics


def test_what_others_held_up_is_a_flag_of_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """The timed blocks are watched for other processes."""
    for flags in (("contended",), ()):
        monkeypatch.setattr(Contention, "flags", flags)
        assert ("contended" in bench(Group())(step).flags) is bool(flags)


def test_what_the_ranks_of_a_host_run_is_nobody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each rank of a host is told the processes of all of them, and of no other host's."""

    class Agreement(RankAgreement):
        def mean(self, values: Sequence[float]) -> list[float]:
            return [value / 4 or 100 + rank for rank, value in enumerate(values)]

    def watch(*ranks: int) -> Contention:
        known.append(ranks)
        raise KeyboardInterrupt

    known: list[tuple[int, ...]] = []
    monkeypatch.setattr(measuring, "Contention", watch)
    for rank in (0, 3):
        group = Group()
        group.world = World(rank=rank, local_rank=rank % 2, size=4, local_size=2)
        group.agreement = Agreement()
        with pytest.raises(KeyboardInterrupt):
            bench(group)(step)
    assert known == [(os.getpid(), 101), (102, os.getpid())]


def test_what_rank_zero_finds_wrong_fails_every_rank() -> None:
    """The others, whose own numbers may be right, are told why, and raise it too."""

    def impossible(**_: object) -> list[Any]:
        raise MeasurementError("mfu is 1.7")

    root = Group(size=2)
    with pytest.raises(MeasurementError, match=r"mfu is 1\.7"):
        bench(root, impossible)(step)
    other = Group(rank=1, size=2, told=root.told)
    with pytest.raises(MeasurementError, match=r"mfu is 1\.7"):
        bench(other)(step)


def test_a_throttled_measurement_fails_where_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On every rank, with a reason of its own; the journal keeps the numbers."""
    probe = SimpleNamespace(flags=("throttled",))
    monkeypatch.setattr(probing, "Suspension", lambda: nullcontext(probe))
    root = Group(size=2)
    events: list[Json] = []
    failing = bench(root, measure={"throttle": "fail"}, events=events)
    with pytest.raises(Throttled, match=r"the GPU was throttled .*measure\.throttle=fail"):
        failing(step)
    assert failing._measuring.record.measurement is None
    (event,) = (e for e in events if e["event"] == "throttled")
    assert event["metrics"]["step_time_s"] > 0
    assert "throttled" in event["flags"]
    other = bench(Group(rank=1, size=2, told=root.told), measure={"throttle": "fail"})
    with pytest.raises(MeasurementError, match="the GPU was throttled"):
        other(step)


@pytest.mark.parametrize("throttle", ["flag", "wait"])
def test_a_throttled_measurement_is_flagged_otherwise(
    monkeypatch: pytest.MonkeyPatch, throttle: str
) -> None:
    """The numbers stay."""
    probe = SimpleNamespace(flags=("throttled",))
    monkeypatch.setattr(probing, "Suspension", lambda: nullcontext(probe))
    measurement = bench(Group(), measure={"throttle": throttle})(step)
    assert "throttled" in measurement.flags
    assert measurement.metrics


@pytest.mark.parametrize(
    ("throttle", "device", "timeout_s", "expected_readings", "limits_s"),
    [
        ("wait", "cuda:0", 600, 4, [60]),
        ("wait", "cuda:0", 20, 4, [5]),
        ("wait", "cpu", 600, 0, []),
        ("flag", "cuda:0", 600, 0, []),
        ("fail", "cuda:0", 600, 0, []),
    ],
)
def test_the_first_call_waits_for_a_throttled_gpu_where_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
    throttle: str,
    device: str,
    timeout_s: float,
    expected_readings: int,
    limits_s: list[float],
) -> None:
    """Never for most of the timeout; with other values, and on a CPU, nothing is read."""
    readings: list[float] = []

    class Hot(nvml.DeviceState):
        is_watching = True

        def slowing_reasons(self) -> tuple[str, ...]:
            readings.append(perf_counter())
            return ("thermal slowdown",) if len(readings) <= 3 else ()

    readings_at_calls: set[int] = set()

    def observed_step() -> None:
        step()
        readings_at_calls.add(len(readings))

    monkeypatch.setattr(measuring, "DeviceState", Hot)
    monkeypatch.setattr("gpubench_plugin.bench.probing._POLL_S", 1e-3)
    limits: list[float] = []

    def noted(*arguments: Any, limit_s: float) -> Any:
        limits.append(limit_s)
        return wait_while_throttled(*arguments, limit_s=limit_s)

    monkeypatch.setattr(probing, "wait_while_throttled", noted)
    events: list[Json] = []
    waiting = bench(Group(), device=device, measure={"throttle": throttle}, events=events)
    waiting._measuring.context.settings = SimpleNamespace(timeout_s=timeout_s)  # type: ignore[misc,assignment] # a stand-in
    waiting(observed_step)
    assert readings_at_calls == {expected_readings}
    waits = [event for event in events if event["event"] == "throttle_wait"]
    assert len(waits) == bool(expected_readings)
    assert limits == limits_s
    assert all(wait["reasons"] == ("thermal slowdown",) for wait in waits)
    assert not any(wait["still_throttled"] for wait in waits)


class Fake:
    """A subject whose step counts itself, as a trainer does."""

    def __init__(self, samples: float = 8.0, fact: str = "loss_first") -> None:
        self.calls = 0
        self.samples = samples
        self.fact = fact
        self.begun = False

    def step(self) -> None:
        """Long enough for any clock."""
        step()
        self.calls += 1

    def prepare(self, log: object) -> Check:
        return Check(correctness={self.fact: "checked"}, facts={self.fact: 1.0})

    def begin(self) -> None:
        self.begun = True

    def finish(self) -> dict[str, float]:
        return {"data_wait_s": 1e-9}

    def work(self) -> Work:
        return Work(samples=self.samples)

    def flops_step(self) -> None:
        torch.ones(2, 3) @ torch.ones(3, 4)


def beside(*subjects: Fake) -> Subjects:
    """The parts of a test that asks for these fixtures, in this order."""
    parts = Subjects()
    for subject in subjects:
        parts.add(subject)
    return parts


@pytest.mark.parametrize("form", ["the subject", "its step"])
@pytest.mark.parametrize("order", [1, -1], ids=["first", "last"])
def test_a_step_brings_what_its_own_subject_knows(form: str, order: int) -> None:
    """Whichever stands first in the test, and however the step is written."""
    timed, other = Fake(samples=8), Fake(samples=64, fact="loss_last")
    given: Any = timed if form == "the subject" else timed.step
    found = bench(Group(), parts=beside(*(timed, other)[::order]))(given)
    assert found.work == Work(samples=8, flops=2 * 2 * 3 * 4)
    assert "samples_per_s" in found.metrics
    assert "loss_first" in found.metrics
    assert "loss_last" not in found.metrics
    assert found.correctness == {"loss_first": "checked", "loss_last": "checked"}
    assert (timed.begun, other.begun) == (True, False)


def test_a_subject_that_no_fixture_made_brings_its_own() -> None:
    """A class of the user's need not be announced anywhere."""
    assert bench(Group())(Fake(samples=3)).work == Work(samples=3, flops=48)


def test_a_no_op_beside_a_trainer_has_none_of_its_amounts() -> None:
    """It is checked all the same: what stands in the test must be right."""
    found = bench(Group(), parts=beside(Fake()))(step)
    assert found.work == Work()
    assert not {"samples_per_s", "tflops", "loss_first", "data_wait_fraction"} & set(found.metrics)
    assert found.correctness == {"loss_first": "checked"}


def test_a_callable_that_steps_a_trainer_twice_has_none_of_its_amounts() -> None:
    """One step's samples would be half of them; what it steps is still checked afterwards."""
    trainer = Fake()

    def twice() -> None:
        trainer.step()
        trainer.step()

    found = bench(Group(), parts=beside(trainer))(twice)
    assert found.work == Work()
    assert trainer.begun


def work() -> None:
    """A step that a lambda forgets to call."""


class Result:
    """What a step returns."""


class Holder:
    """One whose method does nothing, and whose property makes a model."""

    @property
    def model(self) -> torch.nn.Module:
        """A new one."""
        return torch.nn.Linear(2, 2)

    def step(self) -> None:
        """Nothing."""


HOLDER = Holder()
PARTIAL = partial(sum, (1, 2))
CACHED = cache(work)
MATRIX = torch.ones(2, 2)
MODEL = torch.nn.Linear(2, 2)
TRAINER = Fake(samples=8)


@pytest.mark.parametrize(
    ("forgetful", "shown"),
    [
        (lambda: TRAINER, "<"),
        (lambda: TRAINER.step, "<bound method Fake.step"),
        (lambda: work, "<function work"),
        (lambda: MATRIX.sum, "<built-in method sum of Tensor"),
        (lambda: (MATRIX @ MATRIX).sum, "<built-in method sum of Tensor"),
        (lambda: MATRIX.__len__, "<bound method Tensor.__len__"),
        (lambda: torch.relu, "<built-in method relu"),
        (lambda: torch.nn.functional.linear, "<built-in function linear>"),
        (lambda: PARTIAL, "functools.partial(<built-in function sum>"),
        (lambda: CACHED, "<functools._lru_cache_wrapper"),
        (lambda: MODEL, "Linear(in_features=2"),
        (lambda: MODEL.forward, "<bound method Linear.forward"),
        (lambda: torch.nn.Linear, "<class 'torch.nn"),
        (lambda: dict.fromkeys, "<built-in method fromkeys"),
        (lambda: len, "<built-in function len>"),
        (lambda: partial(TRAINER.step), "functools.partial(<bound method Fake.step"),
        (lambda: (TRAINER.step,), "a tuple containing <bound method Fake.step"),
        (lambda: [sum((1, 2)), partial(partial(TRAINER.step))], "a list containing functools"),
        (lambda: (MATRIX, TRAINER), "a tuple containing <"),
        (lambda: [work], "a list containing <function work"),
        (lambda: (MATRIX, MODEL.forward), "a tuple containing <bound method Linear.forward"),
    ],
)
def test_parentheses_are_missed_of_whatever_can_be_called(forgetful: Any, shown: str) -> None:
    """Of functions in Python and C, methods, models, classes, and a subject's step anywhere."""
    with pytest.raises(UsageProblem) as refused:
        bench(Group())(forgetful)
    assert f"returned {shown}" in str(refused.value)
    assert "instead of calling it; pass that itself to gpubench(…)" in str(refused.value)


@pytest.mark.parametrize(
    "making",
    [
        lambda: lambda: None,
        lambda: partial(sum, (1, 2)),
        lambda: MODEL.requires_grad_(requires_grad=True),
        lambda: type(MODEL),
        lambda: HOLDER.model,
        lambda: (MATRIX.sum(), MODEL.forward),
    ],
    ids=["function", "partial", "model", "class", "property", "several"],
)
def test_a_step_that_makes_something_to_be_called_is_measured(making: Any) -> None:
    """A function that was not there before, a model that it has changed, a result with its own."""
    assert bench(Group())(making).outcome == "measured"


@pytest.mark.parametrize("result", [None, 2.5, torch.ones(2, 3), OrderedDict()])
def test_a_result_in_place_of_a_step_is_refused(result: Any) -> None:
    """It is what ``gpubench(a @ b)`` passes, or ``gpubench(trainer.step())``."""
    with pytest.raises(Misuse, match=r"is not callable; pass the step itself.*gpubench\(trainer"):
        bench(Group(), parts=beside(Fake()))(result)


def test_a_step_that_needs_arguments_is_refused_before_it_is_called() -> None:
    """The message has the name of the argument, and what to write in its place."""

    def work(size: int, *, scale: float = 1.0) -> None:
        raise AssertionError

    bench_of = partial(bench, Group())
    given: Any
    for given, said in (
        ({"step": work}, "step .* needs 'size'; pass what calls it: lambda"),
        ({"step": MODEL}, "step .* needs 'input'"),
        ({"step": step, "setup": work}, "setup .* needs 'size'"),
    ):
        with pytest.raises(Misuse, match=said):
            bench_of()(**given)
    assert bench_of()(partial(lambda x, *y, **z: x, 1)).outcome == "measured"
    assert bench_of()(wraps(work)(lambda: None)).outcome == "measured"


class Stopping(Fake):
    """A subject that takes a step at its first call only; the timed ones have its amounts."""

    def step(self) -> None:
        step()
        self.calls += self.calls < 2


def replaced() -> Fake:
    """One whose step is a no-op, as fast as nothing, with all of its amounts."""
    trainer: Any = Fake()
    trainer.step = step
    return trainer


def lazy_from_the_second_call() -> Any:
    promised = iter([None])
    return lambda: (step(), next(promised, generator()))[1]


@pytest.mark.parametrize(
    ("make", "options", "said"),
    [
        (replaced, {}, "advanced the Fake by 0 steps"),
        (Stopping, {}, "3 timed calls advanced the Stopping by 0 steps"),
        (lazy_from_the_second_call, {}, "returned a generator"),
        (lambda: Fake, {}, r"gpubench\(Fake\) is a class; pass the object"),
        (Fake, {"flops": 1e6}, r"flops=1e\+06, but a step of the Fake has flops=48"),
        *(
            (lambda: step, {"samples": amount}, r"samples=.{1,70}; allowed: a number above 0")
            for amount in (True, 10**400, "64", math.nan)
        ),
    ],
)
def test_what_does_not_take_its_steps_is_refused(
    make: Callable[[], Any], options: dict[str, Any], said: str
) -> None:
    """At the first or the last call, by its class, or for amounts that cannot be its own."""
    with pytest.raises((Misuse, CorrectnessError), match=said):
        bench(Group())(make(), **options)


@pytest.mark.parametrize("amount", [np.int64(64), np.float32(64), 64])
def test_numbers_of_numpy_are_amounts(amount: Any) -> None:
    """A product of shapes is one."""
    assert bench(Group())(step, samples=amount).work == Work(samples=64)


def test_there_is_no_result_of_what_was_refused() -> None:
    """None would look like what a step has returned."""
    measured = bench(Group())
    with pytest.raises(UsageProblem):
        measured(step, samples=-1)
    with pytest.raises(UsageProblem, match=r"gpubench\.result was read before a measurement"):
        _ = measured.result


@pytest.mark.parametrize(("samples", "refused"), [(8, False), (16, True)])
def test_an_amount_that_contradicts_the_subject_is_refused(samples: float, refused: bool) -> None:
    """Before anything is timed; the same amount may be said again."""
    trainer = Fake(samples=8)
    measured = bench(Group(), parts=beside(trainer))
    if not refused:
        assert measured(trainer.step, samples=samples).work == Work(samples=8, flops=48)
        return
    with pytest.raises(UsageProblem, match=r"samples=16, but a step of the Fake has samples=8"):
        measured(trainer.step, samples=samples)
    assert trainer.calls == 0


def names_only() -> None:
    """Of which the parentheses were forgotten."""
    TRAINER.step  # noqa: B018 - the mistake that is tested


@pytest.mark.parametrize(
    "idle",
    [
        names_only,
        lambda: None,
        lambda: 1,
        partial(lambda: None),
        Holder().step,
        lambda: lambda: (TRAINER.step(),),
    ],
    ids=["named", "nothing", "constant", "partial", "method", "function"],
)
def test_amounts_of_a_subject_are_refused_of_a_step_that_does_nothing(idle: Any) -> None:
    """It would do that in no time at all; other amounts are its own affair."""
    with pytest.raises(UsageProblem, match=r"samples=8 .* the Fake, .*write gpubench\(fake\)"):
        bench(Group(), parts=beside(Fake(samples=9), Fake(samples=8)))(idle, samples=8)
    for samples in (None, 7):
        found = bench(Group(), parts=beside(Fake(samples=8)))(idle, samples=samples)
        assert found.work.samples == samples


@pytest.mark.parametrize("busy", [lambda: MODEL(MATRIX), lambda: MATRIX.T, step, Result])
def test_a_step_that_does_something_may_have_as_many_samples_as_a_subject(busy: Any) -> None:
    """A forward pass, say, of the batch that the trainer beside it takes; or a property."""
    found = bench(Group(), parts=beside(Fake(samples=8)))(busy, samples=8)
    assert found.work == Work(samples=8)


@pytest.mark.parametrize("stated", [{"samples": 16}, {"flops": 1e6}])
def test_a_wrapped_step_may_not_contradict_its_subject(stated: dict[str, float]) -> None:
    """A lambda around it takes the same step."""
    trainer, other = Fake(samples=8), Fake(samples=16)
    with pytest.raises(UsageProblem, match=r"but a step of the Fake has (samples=8|flops=48);"):
        bench(Group(), parts=beside(trainer, other))(lambda: (trainer.step(),), **stated)
    assert trainer.calls == 1 or "flops" in stated  # refused before anything was timed


def test_amounts_of_a_wrapped_step_are_those_stated() -> None:
    """None comes by itself; what is stated is the subject's, or of two steps its own."""
    trainer, other = Fake(samples=8), Fake(samples=16)
    found = bench(Group(), parts=beside(trainer))(lambda: (trainer.step(),), samples=8, flops=48)
    assert found.work == Work(samples=8, flops=48)
    for steps in (lambda: (trainer.step(), trainer.step()), lambda: (trainer.step(), other.step())):
        found = bench(Group(), parts=beside(trainer, other))(steps, samples=24)
        assert found.work == Work(samples=24)


class Timing(Fake):
    """A subject whose check makes, and times, its first call."""

    def prepare(self, log: object) -> Check:
        self.step()
        return Check(facts={"first_step_s": 7.0})


class Silent(Timing):
    """One whose check does not tell how long its first call took."""

    def prepare(self, log: object) -> Check:
        return replace(super().prepare(log), facts={})


def stepped(subject: Fake) -> Fake:
    """The same, which has taken a step before anybody looked."""
    subject.step()
    return subject


def test_the_first_step_is_that_of_the_check() -> None:
    """The first timed call is a later one."""
    assert bench(Group())(Timing()).metrics["first_step_s"].value == 7.0


@pytest.mark.parametrize(
    ("subject", "foreign", "checked"),
    [
        (Silent, False, True),
        (lambda: stepped(Fake()), False, True),
        (lambda: stepped(Timing()), False, True),
        (Fake, True, True),
        (Timing, True, True),
        (lambda: stepped(Fake()), True, False),
    ],
    ids=["silent", "begun", "begun and timed", "beside", "beside, timed", "foreign"],
)
def test_a_first_step_that_nobody_saw_has_no_time(
    subject: Callable[[], Fake], foreign: bool, checked: bool
) -> None:
    """It compiled and allocated in a check, a fixture or the test; the warm-up is known."""
    made = subject()
    given: Any = (lambda: (made.step(),)) if foreign else made
    found = bench(Group(), parts=beside(made) if checked else None)(given)
    assert found.metrics.keys() & {"first_step_s", "warmup_s"} == {"warmup_s"}


@pytest.mark.parametrize("called", [False, True])
def test_a_model_that_the_test_has_called_has_had_its_first_call(called: bool) -> None:
    """It may have compiled there; while it is timed nothing watches it any more."""
    model, batch = torch.nn.Linear(2, 2), torch.ones(1, 2)
    parts = Subjects()
    parts.track(FirstForward(model))
    if called:
        model(batch)
    watching: list[object] = []

    def step() -> torch.Tensor:
        watching.append(model._compiled_call_impl)
        return model(batch)

    found = bench(Group(), parts=parts)(step)
    assert ("first_step_s" in found.metrics) is not called
    assert set(watching) == {None}


def test_the_first_call_of_what_nothing_has_called_is_timed() -> None:
    """A step of one's own, one that names a new subject, and such a subject."""
    new = Fake()
    for given in (step, lambda: (new.step(),), Fake()):
        assert "first_step_s" in bench(Group())(given).metrics


async def coroutine() -> None:
    """Never awaited."""


def generator() -> Any:
    """Never begun."""
    yield step()


async def async_generator() -> Any:
    """Never begun."""
    yield step()


class Promise:
    """Something to be awaited."""

    def __await__(self) -> Any:
        yield


LAZY = {
    "coroutine": (coroutine, "asyncio.run"),
    "generator": (generator, "list"),
    "async_generator": (async_generator, "asyncio.run"),
    "Promise": (Promise, "asyncio.run"),
    "map": (lambda: map(step, ()), "list"),
    "chain": (lambda: itertools.chain([1], [2]), "list"),
    "islice": (lambda: itertools.islice(generator(), 3), "list"),
    "enumerate": (lambda: enumerate([1]), "list"),
    "Work": (torch.distributed.Work, "its wait()"),
    "tuple containing a Future": (lambda: (1, torch.futures.Future()), "its wait()"),
    "Future": (Future, "its result()"),
    "tuple containing a generator": (lambda: (1, generator()), "list"),
    "list containing a coroutine": (lambda: [coroutine(), coroutine()], "asyncio.run"),
    "dict containing a Future": (lambda: {"next": Future()}, "its result()"),
}
"""Steps that do their work later if ever, and what to do, by what they return."""


@pytest.mark.parametrize("disabled", [False, True], ids=["measured", "run once"])
@pytest.mark.parametrize("kind", LAZY)
def test_a_step_that_only_promises_its_work_is_refused(kind: str, disabled: bool) -> None:
    """At its first call, with what to do; no warning of Python's is left to guess from."""
    lazy, remedy = LAZY[kind]
    with pytest.raises(UsageProblem, match=f"returned a {kind}, .*{re.escape(remedy)}"):
        bench(Group(), disabled=disabled)(lazy)


@pytest.mark.filterwarnings("ignore:.*torch.jit.fork:DeprecationWarning")
@pytest.mark.parametrize(
    ("lazy", "remedy"),
    [
        (lambda pool: pool.apply_async(step), "get"),
        (lambda pool: pool.map_async(sum, [(1,)]), "get"),
        (lambda pool: pool.imap(sum, [(1,)]), "list"),
        (lambda _: torch.jit.fork(torch.mm, MATRIX, MATRIX), "wait"),
    ],
    ids=["apply", "map", "imap", "fork"],
)
def test_a_step_that_leaves_its_work_to_a_pool_is_refused(lazy: Any, remedy: str) -> None:
    """Nobody has waited for what a pool of threads or of processes was given."""
    with ThreadPool(1) as pool, pytest.raises(UsageProblem, match=rf"never done; .*{remedy}\("):
        bench(Group())(lambda: lazy(pool))


def test_futures_that_were_waited_for_are_a_result() -> None:
    """The step has done its work, and what came out is in them."""
    done: Future[int] = Future()
    done.set_result(1)
    of_torch: torch.futures.Future[int] = torch.futures.Future()
    of_torch.set_result(1)
    with ThreadPool(1) as pool:
        (of_a_pool := pool.apply_async(step)).get()
    assert bench(Group())(lambda: [done, of_torch, of_a_pool]).outcome == "measured"


@pytest.mark.parametrize("lazy", [coroutine, generator, async_generator])
@pytest.mark.parametrize("of", ["setup", "teardown"])
def test_a_setup_that_only_promises_its_work_is_refused(of: str, lazy: Any) -> None:
    """Nothing would ever be set up."""
    with pytest.raises(UsageProblem, match=rf"{of} returns before"):
        bench(Group())(step, **{of: lazy})


@pytest.mark.parametrize("disabled", [False, True], ids=["measured", "run once"])
def test_the_last_result_is_there_until_the_test_ends(disabled: bool) -> None:
    """It is what the last timed call returned, and nothing keeps it afterwards."""
    made: list[weakref.ref[Result]] = []

    def timed() -> Result:
        step()
        made.append(weakref.ref(result := Result()))
        return result

    measured = bench(Group(), disabled=disabled)
    with pytest.raises(UsageProblem, match=r"gpubench\.result was read before a measurement"):
        _ = measured.result
    found = measured(timed)
    assert "Result" not in repr(found)
    # Where coverage follows no timed call, one more, untimed, comes after the last of them.
    kept = [ref for ref in made[-2:] if ref() is not None]
    assert [ref() for ref in kept] == [measured.result]
    assert not any(ref() for ref in made[:-2])
    measured._measuring.result = None
    assert kept[0]() is None
