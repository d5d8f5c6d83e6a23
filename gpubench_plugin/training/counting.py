"""A back end of torch.compile that counts what it is given and runs it eagerly."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor, fx

NAME: Final = "gpubench-counting"
"""What ``model.compile_backend`` and ``torch.compile(backend=…)`` call it."""

_CALLS: Final = frozenset({"call_function", "call_method", "call_module"})


class Counting:
    """Takes a graph as it was captured and changes nothing: what is left is the cost of capture.

    `graphs` counts the graphs handed over since :meth:`reset`, `operations` what they call, by
    name.
    """

    def __init__(self) -> None:
        self.graphs = 0
        self.operations: Counter[str] = Counter()

    def __call__(
        self, graph: fx.GraphModule, example_inputs: Sequence[Tensor]
    ) -> Callable[..., object]:
        """Count, and return the graph's own forward pass."""
        self.graphs += 1
        self.operations.update(
            _name(node.target) for node in graph.graph.nodes if node.op in _CALLS
        )
        forward: Callable[..., object] = graph.forward
        return forward

    def reset(self) -> None:
        """Count from zero."""
        self.graphs = 0
        self.operations.clear()


COUNTING: Final = Counting()
"""The one that is registered."""


def _name(target: object) -> str:
    return target if isinstance(target, str) else str(getattr(target, "__name__", target))
