"""What compiler, host and device do in a step, counted outside the timed calls."""

from __future__ import annotations

from gpubench_plugin.measure.metrics.base import Fact, facts


@facts(
    "steps of torch; kernels with a profile on a device",
    graph_breaks=Fact("Places in the code where compiled graphs break", "count", "lower"),
    recompiles=Fact("Recompilations in three calls that compile the step anew", "count", "lower"),
    compiled_graphs=Fact("Graphs compiled in these three calls", "count", "lower"),
    host_syncs=Fact("Reads of the device by the host per uncompiled step", "count", "lower"),
    device_to_host_bytes=Fact("Bytes of these reads", "bytes", "lower"),
    kernels_per_step=Fact("Kernels the device runs per step, without copies", "count", "lower"),
)
def execution() -> None:
    """Those of the compiler are zero without it; on a CPU reads are those of an accelerator."""
