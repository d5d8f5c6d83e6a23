"""A backend of torch.compile that counts what it is given, and runs it unchanged."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import torch._dynamo as dynamo

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor, fx

NAME = "tests-counting"
GRAPHS = "graphs"
COUNTS: Counter[str] = Counter()
"""Number of graphs, and their operations by name."""


def counting(graph: fx.GraphModule, example_inputs: Sequence[Tensor]) -> Callable[..., object]:
    calls = {"call_function", "call_method", "call_module"}
    targets = [node.target for node in graph.graph.nodes if node.op in calls]
    COUNTS.update([GRAPHS, *(str(getattr(target, "__name__", target)) for target in targets)])
    return graph.forward


dynamo.register_backend(counting, name=NAME)  # type: ignore[arg-type] # a callable will do
