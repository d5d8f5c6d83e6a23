"""Backward passes of several graphs, one after the other or at once, and their nodes' times."""

from __future__ import annotations

import threading
from collections import defaultdict
from copy import deepcopy
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import ThreadPoolExecutor

    from torch import Tensor
    from torch.autograd.graph import Node


class Chains:
    """As many equal stacks of linear layers as there are `graphs`, which share no parameter.

    A ReLU follows each of the `layers`; `size` is a layer's features and the rows of its input.
    """

    def __init__(self, *, graphs: int, layers: int, size: int, device: torch.device) -> None:
        pairs = ((nn.Linear(size, size), nn.ReLU()) for _ in range(layers))
        stack = nn.Sequential(*(layer for pair in pairs for layer in pair)).to(device)
        self._stacks = [stack, *(deepcopy(stack) for _ in range(graphs - 1))]
        self._input = torch.randn(size, size, device=device)
        self.losses: Sequence[Tensor] = ()

    def forward(self) -> Sequence[Tensor]:
        """A new graph of each stack; its gradients are forgotten."""
        for stack in self._stacks:
            stack.zero_grad(set_to_none=True)
        self.losses = [stack(self._input).square().mean() for stack in self._stacks]
        return self.losses

    def serial(self) -> None:
        """The backward passes, one after the other."""
        for loss in self.losses:
            loss.backward()

    def concurrent(self, threads: ThreadPoolExecutor) -> None:
        """The backward passes at once, each in a thread of its own."""
        for done in [threads.submit(loss.backward) for loss in self.losses]:
            done.result()

    def gradients(self) -> list[Tensor]:
        """All gradients of the last backward passes, one after the other."""
        parameters = (p for stack in self._stacks for p in stack.parameters())
        return [p.grad.clone() for p in parameters if p.grad is not None]


class NodeTimes:
    """Observes backward passes: how long each kind of node of the graph took.

    A span goes from the call before a node to the call after it, on the host: on a device that
    runs behind the host it is the time of handing the work over. Where several threads run
    backward passes at once, the spans of all of them add up.
    """

    def __init__(self) -> None:
        self._spent_ns: dict[str, int] = defaultdict(int)
        self._started = threading.local()
        self._lock = threading.Lock()
        self._handles: list[Any] = []

    def observe(self, losses: Sequence[Tensor]) -> None:
        """Hook the nodes of these graphs, instead of those observed before."""
        self.leave()
        for node in _nodes(losses):
            self._handles.append(node.register_prehook(self._before))
            self._handles.append(node.register_hook(self._after(node.name())))

    def leave(self) -> None:
        """Take the hooks away: nodes of parameters live as long as these."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of node seen, ``AddmmBackward0`` say, without the name space."""
        return tuple(sorted(self._spent_ns))

    def share(self, kind: str) -> float:
        """What part of the time of all nodes those of this kind took, since :meth:`reset`."""
        return self._spent_ns[kind] / (sum(self._spent_ns.values()) or 1)

    def reset(self) -> None:
        """Count from zero; the kinds stay known."""
        for kind in self._spent_ns:
            self._spent_ns[kind] = 0

    def _before(self, gradients: object) -> None:
        self._started.ns = perf_counter_ns()

    def _after(self, name: str) -> Callable[[object, object], None]:
        kind = name.rpartition("::")[2]

        def spent(inputs: object, outputs: object) -> None:
            span_ns = perf_counter_ns() - self._started.ns
            with self._lock:
                self._spent_ns[kind] += span_ns

        return spent


def _nodes(losses: Sequence[Tensor]) -> Iterator[Node]:
    """Every node that leads to the losses, once."""
    ahead = [loss.grad_fn for loss in losses]
    seen = set()
    while ahead:
        node = ahead.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        yield node
        ahead.extend(following for following, _ in node.next_functions)
