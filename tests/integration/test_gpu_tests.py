"""The tests on a GPU, as far as they can be shown without one: what they select, and can fail."""

from __future__ import annotations

import re
import sys
from functools import partial
from itertools import count, cycle
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
import torch

from gpubench_plugin.config.limits import Limit
from tests.gpu import conftest as gpu_session
from tests.gpu.bench_clocks import COLD_OVER_HOT, FROM_LOOP, from_bare_loop, kernel_s
from tests.gpu.bench_counters import BOUNDS, counters
from tests.gpu.test_clocks import spin_s
from tests.gpu.test_traces import peak_bytes
from tests.support.exhaustive import shown
from tests.support.fake_counters import IDLE, UUID, FakeGpu, FakeNvml
from tests.support.fake_cuda import FakeCuda, FakeHost
from tests.support.gpu_selections import (
    BREADTH,
    FIGURES,
    HEADLINES,
    REPOSITORY,
    SELECTIONS,
    Selection,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.projects import Project

US = 1000
GPU_TESTS = REPOSITORY / "tests" / "gpu"
PARTS = ("gpu_clocks", "gpu_sessions", "gpu_suite", "gpu_headline", "gpu_breadth")


@pytest.mark.parametrize(
    "name",
    shown(
        *("traced training", "kernels", "cold start", "clocks", HEADLINES[0].names[0]),
        exhaustively=SELECTIONS,
    ),
)
def test_a_selection_holds_what_its_test_expects(checkout: Project, name: str) -> None:
    """The benchmarks collected for CUDA by its command are those that it names, in order."""
    selection = SELECTIONS[name]
    run = checkout.run(*selection.command()[3:], "--collect-only", "-q", quick=False)
    assert run.code == 0, run.out + run.err
    lines = run.out.splitlines()
    assert [line.partition("::")[2] for line in lines if "::" in line] == [*selection.names]


@pytest.mark.parametrize("name", SELECTIONS)
def test_what_uses_no_precision_is_selected_in_fp32(name: str) -> None:
    """In any other precision alone it would be unsupported, on every device."""
    selection = SELECTIONS[name]
    options = [a for a in selection.arguments if a.startswith("--precision=")]
    precisions = "".join(options).removeprefix("--precision=").split(",")
    of_precision = re.compile(rf"[\[-]({'|'.join(map(re.escape, precisions))})\]")
    with_none = [benchmark for benchmark in selection.names if not of_precision.search(benchmark)]
    assert not with_none or not options or "fp32" in precisions


def test_tests_on_a_gpu_select_by_these_names_alone() -> None:
    """No test on a GPU states a selection of its own, which nothing would check here."""
    for module in GPU_TESTS.glob("test_*.py"):
        assert '"-k"' not in module.read_text(encoding="utf-8"), module.name


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_gpu_they_are_skipped_with_the_reason(checkout: Project) -> None:
    """All of them, in one of the parts each, and nothing else happens."""
    run = checkout.run("tests/gpu", "-m", f"gpu and ({' or '.join(PARTS)})", "-q", "-rs")
    assert run.code == 0, run.out + run.err
    lines = run.out.splitlines()
    skipped = [line for line in lines if line.startswith("SKIPPED")]
    assert skipped
    assert [line for line in skipped if not line.endswith(": needs a CUDA device")] == []
    assert lines[-1].partition(" in ")[0].endswith(" skipped")


@pytest.mark.parametrize(
    ("left_s", "of_s", "says"),
    [
        (0.1, 540, "cut: 0 s left of 540; run it alone with -k 'test_it'"),
        (1.2, 540, "cut: 1 s left of 540; run it alone with -k 'test_it'"),
        (1.2, 1.2, "it took longer than 1.2 s"),
    ],
)
def test_a_session_on_a_gpu_ends_in_time(
    project: Project, monkeypatch: pytest.MonkeyPatch, left_s: float, of_s: float, says: str
) -> None:
    """What does not fit in is skipped with what to do, and fails where it would not fit alone."""
    project.write("conftest.py", "from tests.gpu.conftest import pytest_runtest_call\n")
    project.write("test_it.py", "import time\n\ndef test_it(): time.sleep(9)\n")
    monkeypatch.setattr(gpu_session, "LONGEST_S", of_s)
    monkeypatch.setattr(gpu_session, "LEAST_S", 1.0)
    monkeypatch.setattr(gpu_session, "monotonic", lambda: gpu_session.BEGAN_S + of_s - left_s)
    run = project.run("-rs", quick=False)
    assert says in run.out
    assert run.code == (0 if says.startswith("cut") else 1)


def keeps(bounds: Mapping[str, str], values: Mapping[str, float]) -> set[str]:
    """Which of the bounds hold."""
    limits = {name: Limit.parse(text, name) for name, text in bounds.items()}
    return {
        name
        for name, limit in limits.items()
        if (values[name] <= limit.bound if limit.kind == "at_most" else values[name] >= limit.bound)
    }


@pytest.mark.parametrize(("slows_down_by_us", "kept"), [(0, {"from_bare_loop"}), (1, set())])
def test_step_clock_beside_a_bare_loop(slows_down_by_us: int, kept: set[str]) -> None:
    """A right one is within the bound, one whose step takes longer with each call is not."""
    device, calls = FakeCuda(FakeHost(), record_ns=1500), count()

    def step() -> None:
        took_us = 2000 + slows_down_by_us * next(calls)
        device.launch(enqueue_ns=5 * US, device_ns=took_us * US)

    error = from_bare_loop(device, step, 100, device.host.now)
    assert keeps(FROM_LOOP, {"from_bare_loop": error}) == kept


@pytest.mark.parametrize(("cold_us", "kept"), [(400, {"cold_over_hot"}), (200, set())])
def test_cold_kernels_over_hot_ones(cold_us: int, kept: set[str]) -> None:
    """A kernel that takes twice as long without its cache shows that it is overwritten."""
    device = FakeCuda(FakeHost())

    def step() -> None:
        took_us = cold_us if device.cache_overwritten else 200
        device.launch(enqueue_ns=5 * US, device_ns=took_us * US)
        device.cache_overwritten = False

    cold, hot = (kernel_s(device, step, cache, device.host.now) for cache in ("cold", "hot"))
    assert keeps(COLD_OVER_HOT, {"cold_over_hot": cold / hot}) == kept


def test_spins_follow_the_clock_of_the_device() -> None:
    """After rest as well; one whose clock is another in every spin has the wrong length."""
    device = FakeCuda(FakeHost())
    rest = partial(device.host.spend, 500_000_000)
    assert spin_s(device, 0.01, rest) == pytest.approx(0.01, rel=0.1)

    rates = cycle((1.0, 2.0, 3.0, 4.0))
    restless = FakeCuda(FakeHost(), cycles_per_ns=lambda _: next(rates))
    assert spin_s(restless, 0.01, rest) != pytest.approx(0.01, rel=0.1)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    gpu = FakeGpu()
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(gpu))
    monkeypatch.setattr("gpubench_plugin.measure.probes.nvml.perf_counter", gpu.now)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(uuid=UUID))
    return gpu


def readings(gpu: FakeGpu, *, busy_w: float = 600.0, told_w: float = 600.0) -> dict[str, float]:
    """Counters of a GPU that draws 100 W at rest; its readings at work tell `told_w`."""

    def burn() -> None:
        gpu.reasons, gpu.sm_mhz = 0, 1980
        gpu.run(0.1, watts=busy_w)
        gpu.watts = told_w

    def wait() -> None:
        gpu.reasons, gpu.sm_mhz = IDLE, 345

    return counters(
        torch.device("cuda", 0),
        burn=burn,
        wait=wait,
        rest=lambda seconds: gpu.run(seconds, watts=100.0),
        now=gpu.now,
    )


def test_counters_of_a_load(gpu: FakeGpu) -> None:
    """Those that follow it keep to their bounds; others are found by power and energy."""
    assert keeps(BOUNDS, readings(gpu)) == BOUNDS.keys()
    broken = BOUNDS.keys() - keeps(BOUNDS, readings(gpu, busy_w=100.0, told_w=150.0))
    assert broken == {"power_at_work_over_rest", "energy_from_power"}


def test_a_fact_that_nvml_lacks_fails(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is named."""
    library = FakeNvml(gpu, missing=("nvmlDeviceGetFieldValues",))
    monkeypatch.setitem(sys.modules, "pynvml", library)
    with pytest.raises(AssertionError, match="energy"):
        readings(gpu)


def test_peak_of_a_history_of_allocations() -> None:
    """The most that is held at once; what is only asked to be freed is held."""
    history = [
        {"action": "alloc", "size": 100},
        {"action": "alloc", "size": 50},
        {"action": "free_requested", "size": 50},
        {"action": "alloc", "size": 20},
        {"action": "free_completed", "size": 50},
        {"action": "alloc", "size": 20},
    ]
    assert peak_bytes(history) == 170


def test_figures_are_of_what_is_measured() -> None:
    """A goal is a bound of a headline; a published figure one of a benchmark in its precision."""
    headlines = {name for selection in HEADLINES for name in selection.names}
    for goals in FIGURES["goals"].values():
        assert goals.keys() <= headlines
        for bounds in goals.values():
            for metric, bound in bounds.items():
                assert Limit.parse(bound, metric).kind != "relative"
    measured = {*headlines, *(name for selection in BREADTH for name in selection.names)}
    for figure in FIGURES["published"]:
        test, _, precision = figure.partition(" ")
        assert [n for n in measured if n.startswith(f"{test}[") and n.endswith(f"-{precision}]")]


@pytest.mark.slow
def test_a_training_beside_its_loop_by_hand(checkout: Project) -> None:
    """On a CPU: both times are on record, and a bound that no clock keeps is broken."""
    headline = Selection(
        arguments=(
            *("benchmarks/training/test_mlp.py::test_mlp_train[fp32]", "--preset=tiny"),
            *("-p", "tests.support.hand_loop"),
        ),
        names=(),
        bounds={"from_hand_loop": "<=0"},
    )
    # The last of two devices counts.
    run = checkout.run(*headline.command(hand_loop_s=">=0")[3:], "--device=cpu")
    assert run.code == 1, run.out + run.err
    assert "\nfrom_hand_loop regressed: " in run.out
    assert "\nhand_loop_s regressed" not in run.out
    (benchmark,) = run.summary["benchmarks"]
    assert benchmark["metrics"]["hand_loop_s"]["value"] > 0
