"""Backward passes of independent graphs, sequential and concurrent."""

import threading
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from functools import partial
from time import perf_counter_ns

import pytest


@pytest.mark.parametrize("observed", ["plain", "observed"])
@pytest.mark.parametrize("order", ["serial", "concurrent"])
@pytest.mark.gpubench(config="micro")
def test_backward(gpubench, torch_device, sizes, order, observed):
    """Backward passes alone; ``observed`` has hooks on every node.

    The share of each kind of node is recorded as ``<kind>_fraction``; ``--profile`` writes a trace.
    """
    from .checks import require_equal

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


class LinearStacks:
    """Equal stacks of linear layers with ReLU, one per graph, without shared parameters.

    `size` is the number of features and of input rows.
    """

    def __init__(self, *, graphs, layers, size, device):
        import torch
        from torch import nn

        pairs = ((nn.Linear(size, size), nn.ReLU()) for _ in range(layers))
        stack = nn.Sequential(*(layer for pair in pairs for layer in pair)).to(device)
        self._stacks = [stack, *(deepcopy(stack) for _ in range(graphs - 1))]
        self._input = torch.randn(size, size, device=device)
        self.losses = ()

    def forward(self):
        """Build a new graph per stack, dropping gradients."""
        for stack in self._stacks:
            stack.zero_grad(set_to_none=True)
        self.losses = [stack(self._input).square().mean() for stack in self._stacks]
        return self.losses

    def serial(self):
        """Run the backward passes sequentially."""
        for loss in self.losses:
            loss.backward()

    def concurrent(self, threads):
        """Run the backward passes concurrently, one thread each."""
        for future in [threads.submit(loss.backward) for loss in self.losses]:
            future.result()

    def gradients(self):
        """All gradients of the last backward passes."""
        parameters = (p for stack in self._stacks for p in stack.parameters())
        return [p.grad.clone() for p in parameters if p.grad is not None]


class NodeTimes:
    """Measures how long each kind of graph node takes in backward passes.

    Times are from prehook to posthook on the host; on an asynchronous device that is the launch
    time. Times of concurrent threads add up.
    """

    def __init__(self):
        self._totals_ns = defaultdict(int)
        self._start_times = threading.local()
        self._lock = threading.Lock()
        self._handles = []

    def hook(self, losses):
        """Hook the nodes of these graphs, replacing previous hooks."""
        self.unhook()
        for node in _nodes(losses):
            self._handles.append(node.register_prehook(self._start_timer))
            self._handles.append(node.register_hook(self._stop_timer(node.name())))

    def unhook(self):
        """Remove the hooks, which would live as long as the parameters."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    @property
    def kinds(self):
        """Kinds of nodes seen, such as ``AddmmBackward0``, without namespace."""
        return tuple(sorted(self._totals_ns))

    def share(self, kind):
        """Share of all node time taken by this kind since :meth:`reset`."""
        return self._totals_ns[kind] / (sum(self._totals_ns.values()) or 1)

    def reset(self):
        """Reset the times; kinds stay known."""
        for kind in self._totals_ns:
            self._totals_ns[kind] = 0

    def _start_timer(self, gradients):
        self._start_times.ns = perf_counter_ns()

    def _stop_timer(self, name):
        kind = name.rpartition("::")[2]

        def add_duration(inputs, outputs):
            duration_ns = perf_counter_ns() - self._start_times.ns
            with self._lock:
                self._totals_ns[kind] += duration_ns

        return add_duration


def _nodes(losses):
    """Every node reachable from the losses, once."""
    stack = [loss.grad_fn for loss in losses]
    visited = set()
    while stack:
        node = stack.pop()
        if node is None or node in visited:
            continue
        visited.add(node)
        yield node
        stack.extend(next_node for next_node, _ in node.next_functions)
