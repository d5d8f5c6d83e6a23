"""Backward passes of graphs without a part in common: one after the other, and at once."""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest


@pytest.mark.parametrize("observed", ["plain", "observed"])
@pytest.mark.parametrize("order", ["serial", "concurrent"])
@pytest.mark.gpubench(config="micro")
def test_backward(gpubench, torch_device, sizes, order, observed):
    """The backward passes alone; ``observed``: every node reports its beginning and its end.

    What the nodes of each kind took of the time of all nodes is recorded as
    ``<kind>_fraction``, and a trace of each node is what ``--profile`` writes.
    """
    from gpubench_plugin.workloads._micro import LinearStacks, NodeTimes, require_equal

    chains = LinearStacks(
        graphs=sizes.graphs, layers=sizes.layers, size=sizes.layer_size, device=torch_device
    )
    times = NodeTimes()

    def build():
        losses = chains.forward()
        if observed == "observed":
            times.hook(losses)

    with ThreadPoolExecutor(sizes.graphs) as threads:
        step = chains.serial if order == "serial" else partial(chains.concurrent, threads)
        chains.forward()
        chains.serial()
        expected = chains.gradients()
        build()
        step()
        for ours, right in zip(chains.gradients(), expected, strict=True):
            require_equal(f"{order} backward", ours, right)
        for kind in times.kinds:
            gpubench.record(f"{kind}_fraction", partial(times.share, kind), unit="fraction")
        times.reset()
        gpubench(step, setup=build, samples=sizes.graphs)
    times.unhook()
