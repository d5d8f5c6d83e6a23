import pytest

from gpubench_plugin.compare import comparability
from gpubench_plugin.measure.clocks.cuda_step import CudaStepClock
from gpubench_plugin.measure.clocks.host import CpuClock

WALL = (
    CpuClock.timer,
    "perf_counter",
    "time.perf_counter",
    "time.perf_counter_ns",
    "monotonic",
    "time.monotonic_ns",
    "time",
    "time.time",
    "timeit.default_timer",
    "mps_synchronised",
    "xpu_synchronised",
    "cuda_synchronised",
    "cuda_synchronised_monotonic",
)
PROCESS = ("process_time", "time.process_time_ns", "cuda_synchronised_process_time")
DEVICE = (CudaStepClock.timer, "cuda_kernel_hot", "cuda_kernel_cold")
KINDS = (WALL, PROCESS, DEVICE, ("thread_time", "thread_time_ns"), ("my_timer",), ("mine.time",))


@pytest.mark.parametrize("kind", KINDS)
def test_clocks_of_one_kind_are_alike_and_no_others(kind):
    """Wall time, the device's, processor time; what is unknown only by its name."""
    for one in kind:
        for other in (name for names in KINDS for name in names):
            assert comparability.same_kind_of_time(one, other) is (other in kind)
