"""One clock per way of taking time."""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.measure.clocks.base import Block, Clock, Step, Task
    from gpubench_plugin.measure.clocks.cuda_device import TorchCuda
    from gpubench_plugin.measure.clocks.cuda_kernel import CudaKernelClock
    from gpubench_plugin.measure.clocks.cuda_step import CudaStepClock
    from gpubench_plugin.measure.clocks.host import CpuClock, SynchronisedClock, Usage
    from gpubench_plugin.measure.clocks.select import clock_for
    from gpubench_plugin.measure.clocks.spin import Spin

__getattr__ = lazy_names(__name__)
