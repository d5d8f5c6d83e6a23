"""The timer that waits for the accelerator."""

from __future__ import annotations

import pytest

from gpubench_plugin.bench.adoption import Accelerator, SynchronisedTimer
from gpubench_plugin.environment import cuda_devices
from tests.unit.bench.adoption.conftest import Torch

MS = 1_000_000


def timer(torch: Torch) -> SynchronisedTimer:
    accelerator = Accelerator.find(torch)
    assert accelerator is not None
    made = SynchronisedTimer(torch.perf_counter, accelerator)
    made.refresh()
    return made


def test_work_is_timed_until_the_device_has_done_it(torch: Torch) -> None:
    """Handing over takes 10 µs, the work 3 ms: so does what lies between two readings."""
    clock = timer(torch)
    start = clock()
    torch.devices[0].launch(enqueue_ns=10_000, device_ns=3 * MS)
    assert clock() - start == pytest.approx(0.00301)


def test_the_work_before_is_not_timed(torch: Torch) -> None:
    """What was handed over before the first reading is done by then."""
    torch.devices[0].launch(enqueue_ns=10_000, device_ns=50 * MS)
    clock = timer(torch)
    assert (clock() - clock()) == 0


def test_a_device_that_is_not_started_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Until torch has started it; from then on every reading waits. Nor is its driver started."""
    torch = Torch(started=False)
    torch.cuda.device_count = None
    monkeypatch.setattr(cuda_devices, "visible", lambda: torch.devices)
    clock = timer(torch)
    clock()
    assert torch.devices[0].waits == 0
    torch.started = True
    torch.cuda.device_count = lambda: 1
    torch.devices[0].launch(enqueue_ns=10_000, device_ns=3 * MS)
    assert clock() == pytest.approx(0.00301)
    clock()
    assert torch.devices[0].waits == 2


def test_of_several_devices_those_in_use_are_waited_for() -> None:
    """The current one, and whichever has memory handed out; the others get no context."""
    torch = Torch(count=3)
    torch.allocated[2] = 8
    clock = timer(torch)
    for device in torch.devices:
        device.launch(enqueue_ns=0, device_ns=MS)
    clock()
    assert [device.waits for device in torch.devices] == [1, 0, 1]


def test_its_name_says_what_it_does(torch: Torch) -> None:
    """A clock of the user's own keeps its name."""
    accelerator = Accelerator(torch, "cuda")

    def ticks() -> float:
        return 0.0

    assert SynchronisedTimer(torch.perf_counter, accelerator).__name__ == "cuda_synchronised"
    assert SynchronisedTimer(ticks, accelerator).__name__ == "cuda_synchronised_ticks"


@pytest.mark.parametrize("kind", ["cuda", "xpu", "mps"])
def test_each_kind_of_accelerator_is_found_and_waited_for(kind: str) -> None:
    """MPS does not say whether it has been started: memory handed out tells."""
    torch = Torch(kind)
    torch.allocated[0] = 8
    clock = timer(torch)
    torch.devices[0].launch(enqueue_ns=0, device_ns=MS)
    assert clock() == pytest.approx(0.001)
    assert clock.__name__ == f"{kind}_synchronised"


def test_there_may_be_none() -> None:
    """Torch finds no device."""
    assert Accelerator.find(Torch("cuda", count=0)) is None


def test_mps_counts_no_peak_and_rests_without_memory() -> None:
    """Nothing is handed out: there is no work to wait for."""
    torch = Torch("mps")
    accelerator = Accelerator.find(torch)
    assert accelerator is not None
    accelerator.reset_peak()
    assert (accelerator.is_started, accelerator.peak_bytes(), accelerator.name) == (
        False,
        None,
        "mps",
    )
