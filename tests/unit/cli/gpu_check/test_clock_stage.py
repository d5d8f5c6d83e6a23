"""The stage of the clocks on a device on paper."""

from __future__ import annotations

from dataclasses import replace
from itertools import cycle
from typing import TYPE_CHECKING

import pytest

from gpubench_plugin.cli.gpu_check.stages import clocks
from tests.support.fake_cuda import SIDE, FakeCuda, FakeHost
from tests.support.gpu_stages import CannedRun, criteria, failed

if TYPE_CHECKING:
    from pathlib import Path

US = 1000


@pytest.fixture
def run(tmp_path: Path) -> CannedRun:
    return CannedRun(folder=tmp_path, repository=tmp_path, limit_s=60)


def bench(device: FakeCuda) -> clocks.Bench:
    """A product, a launch-bound step, and a kernel that a cold cache makes twice as slow."""

    def launch(us: float) -> None:
        device.launch(enqueue_ns=5 * US, device_ns=round(us * US))

    def many_kernels() -> None:
        for _ in range(100):
            device.launch(enqueue_ns=5 * US, device_ns=1 * US)

    def small() -> None:
        launch(400 if device.cache_overwritten else 200)
        device.cache_overwritten = False

    def elsewhere() -> None:
        device.launch(enqueue_ns=5 * US, device_ns=2000 * US, stream=SIDE)

    def item() -> None:
        launch(100)
        device.item()

    whole = clocks.Bench(
        device=device,
        loads={
            "product of 8192": clocks.Load(step=lambda: launch(2000), calls=100),
            "300 kernels": clocks.Load(step=many_kernels, calls=100, launch_bound=True),
            "item": clocks.Load(step=item),
        },
        small=small,
        kernels={"product of 8192": lambda: launch(2000), "256 MiB": lambda: launch(500)},
        do_bench_s=lambda step: 500e-6 if step is whole.kernels["256 MiB"] else 2000e-6,
        beside=lambda: launch(2000),
        elsewhere=elsewhere,
        burn=lambda: launch(50_000),
        idle=lambda seconds: device.host.spend(round(seconds * 1e9)),
        now=device.host.now,
    )
    return whole


def test_clocks_that_are_right_pass(run: CannedRun) -> None:
    """Steps, kernels cold and hot, flags, other streams and spins, events of 1.5 µs included."""
    clocks.examine(run, bench(FakeCuda(FakeHost(), record_ns=1500)))

    assert failed(run) == []
    assert len(criteria(run)) == 14


def test_a_clock_that_differs_from_the_loop_fails(run: CannedRun) -> None:
    """A step that takes longer with each call takes less in the loop that comes first, or last."""
    device = FakeCuda(FakeHost())
    calls = [0]

    def slowing() -> None:
        calls[0] += 1
        device.launch(enqueue_ns=5 * US, device_ns=(1000 + calls[0]) * US)

    loads = {"slowing": clocks.Load(step=slowing, calls=100)}
    whole = bench(device)
    clocks.examine(
        run, replace(whole, loads={**loads, "product of 8192": whole.loads["product of 8192"]})
    )

    assert failed(run) == ["slowing: step clock from a bare loop"]


def test_another_figure_of_do_bench_fails(run: CannedRun) -> None:
    """It is wrong for both kernels."""
    clocks.examine(run, replace(bench(FakeCuda(FakeHost())), do_bench_s=lambda _: 700e-6))

    assert failed(run) == [
        "product of 8192: kernel clock from do_bench",
        "256 MiB: kernel clock from do_bench",
    ]


def test_work_that_is_not_on_the_other_stream_fails(run: CannedRun) -> None:
    """Nor as long as expected."""
    device = FakeCuda(FakeHost())

    def here() -> None:
        device.launch(enqueue_ns=5 * US, device_ns=1000 * US)

    clocks.examine(run, replace(bench(device), elsewhere=here))

    assert failed(run) == ["other stream: elsewhere", "other stream: step clock"]


def test_a_cache_that_is_not_overwritten_fails(run: CannedRun) -> None:
    """Cold is then as fast as hot."""
    whole = bench(FakeCuda(FakeHost()))
    clocks.examine(run, replace(whole, small=whole.kernels["256 MiB"]))

    assert failed(run) == ["16 MiB: cold over hot"]


def test_a_flag_that_is_missing_fails(run: CannedRun) -> None:
    """A product is not launch-bound."""
    device = FakeCuda(FakeHost())
    whole = bench(device)
    product = replace(whole.loads["product of 8192"], launch_bound=True)
    clocks.examine(run, replace(whole, loads={**whole.loads, "product of 8192": product}))

    assert failed(run) == ["product of 8192: launch_bound"]


def test_a_spin_that_follows_no_clock_fails(run: CannedRun) -> None:
    """The device's clock is another one in every spin."""
    rates = cycle((1.0, 2.0, 3.0, 4.0))
    device = FakeCuda(FakeHost(), cycles_per_ns=lambda _: next(rates))
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_check_steps", "_check_kernels", "_check_elsewhere"):
            patch.setattr(clocks, name, lambda *_: None)
        clocks.examine(run, bench(device))

    assert failed(run)


def test_without_triton_its_figures_are_unproven(run: CannedRun) -> None:
    """The rest is checked."""
    clocks.examine(run, replace(bench(FakeCuda(FakeHost())), do_bench_s=None))

    assert failed(run) == []
    assert "no Triton here" in (run.folder / "progress.jsonl").read_text()
