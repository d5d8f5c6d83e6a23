"""Probes beside the timing: memory, FLOPs, device state."""

from typing import TYPE_CHECKING

from gpubench_plugin import lazy_names

if TYPE_CHECKING:
    from gpubench_plugin.measure.probes.contention import Contention
    from gpubench_plugin.measure.probes.flops import FlopCount, count_flops
    from gpubench_plugin.measure.probes.growth import MemoryGrowth, grows
    from gpubench_plugin.measure.probes.memory import PeakMemory
    from gpubench_plugin.measure.probes.nvml import DeviceState
    from gpubench_plugin.measure.probes.products import DtypeCensus, census_of, take_census
    from gpubench_plugin.measure.probes.profiler import profile
    from gpubench_plugin.measure.probes.suspension import Suspension
    from gpubench_plugin.measure.probes.tensor_memory import TensorMemory

__getattr__ = lazy_names(__name__)
