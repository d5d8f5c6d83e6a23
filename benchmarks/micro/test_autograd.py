"""Backward passes of independent graphs, sequential and concurrent."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest


@pytest.mark.parametrize("observed", ["plain", "observed"])
@pytest.mark.parametrize("order", ["serial", "concurrent"])
@pytest.mark.gpubench(config="micro")
def test_backward(gpubench, torch_device, sizes, order, observed):
    """Backward passes alone; ``observed`` has hooks on every node.

    The share of each kind of node is recorded as ``<kind>_fraction``; ``--profile`` writes a trace.
    """
    from gpubench_plugin.workloads._micro.backward import LinearStacks, NodeTimes
    from gpubench_plugin.workloads._micro.checks import require_equal

    stacks = LinearStacks(
        graphs=sizes.graphs, layers=sizes.layers, size=sizes.layer_size, device=torch_device
    )
    times = NodeTimes()

    def build():
        losses = stacks.forward()
        if observed == "observed":
            times.hook(losses)

    with ThreadPoolExecutor(sizes.graphs) as threads:
        step = stacks.serial if order == "serial" else partial(stacks.concurrent, threads)
        stacks.forward()
        stacks.serial()
        expected_gradients = stacks.gradients()
        build()
        step()
        for actual, expected in zip(stacks.gradients(), expected_gradients, strict=True):
            require_equal(f"{order} backward", actual, expected)
        for kind in times.kinds:
            gpubench.record(f"{kind}_fraction", partial(times.share, kind), unit="fraction")
        times.reset()
        gpubench(step, setup=build, samples=sizes.graphs)
    times.unhook()
