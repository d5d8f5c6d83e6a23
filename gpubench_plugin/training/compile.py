"""torch.compile backends by name, including one that counts and runs graphs unchanged.

They are registered by an entry point of the group ``torch_dynamo_backends``, or by
``torch._dynamo.register_backend``.
Source: https://docs.pytorch.org/docs/stable/user_guide/torch_compiler/torch.compiler_custom_backends.html
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import torch
from torch import Tensor, fx, nn

from gpubench_plugin.core.errors import UsageProblem, invalid_choice

NAME: Final = "gpubench-counting"
"""Name for ``model.compile_backend`` and ``torch.compile(backend=…)``."""

_CALLS: Final = frozenset({"call_function", "call_method", "call_module"})


class CountingBackend:
    """Backend that returns graphs unchanged, leaving only the cost of capture.

    It counts `graphs` and their `operations` by name since :meth:`reset`.
    """

    def __init__(self) -> None:
        self.graphs = 0
        self.operations: Counter[str] = Counter()

    def __call__(
        self, graph: fx.GraphModule, example_inputs: Sequence[Tensor]
    ) -> Callable[..., object]:
        """Count the graph and return its own forward."""
        self.graphs += 1
        targets = [node.target for node in graph.graph.nodes if node.op in _CALLS]
        self.operations.update(str(getattr(target, "__name__", target)) for target in targets)
        forward: Callable[..., object] = graph.forward
        return forward

    def reset(self) -> None:
        """Reset the counts."""
        self.graphs = 0
        self.operations.clear()


COUNTING: Final = CountingBackend()
"""The registered instance."""

INDUCTOR: Final = "inductor"
"""torch's default backend, the only one with modes."""

EAGER: Final = {"compile": "none", "compile_backend": INDUCTOR, "compile_scope": None}
"""Keys of the section ``model`` without compilation, which refuses any other backend or scope."""


def backend_names() -> tuple[str, ...]:
    """Sorted names of all backends."""
    import torch._dynamo as dynamo

    if NAME not in dynamo.list_backends(exclude_tags=()):
        dynamo.register_backend(COUNTING, name=NAME)  # type: ignore[arg-type] # a callable will do
    return tuple(dynamo.list_backends(exclude_tags=()))


def compiler_refusal(mode: str, backend: str) -> str:
    """Reason why there is no compiler of this mode with this backend; empty if there is one."""
    if backend == INDUCTOR:
        return ""
    if mode == "none":
        return f"model.compile_backend={backend}: compilation is off; add --model.compile=default"
    if backend not in (available := backend_names()):
        return str(invalid_choice("model.compile_backend", backend, available))
    if mode != "default":
        return (
            f"model.compile={mode}: modes exist only for inductor, not for "
            f"model.compile_backend={backend}; allowed: none, default"
        )
    return ""


def make_compiler(
    *, mode: str, backend: str = INDUCTOR, **options: Any
) -> Callable[[nn.Module], nn.Module]:
    """Function that compiles a module in this mode with this backend.

    `options` are further arguments of ``torch.compile``.

    Raises:
        UsageProblem: there is no such backend, or it has no modes.
    """
    if reason := compiler_refusal(mode, backend):
        raise UsageProblem(reason)
    if mode == "none":
        return lambda module: module

    def compile_module(module: nn.Module) -> nn.Module:
        # Not module.compile(), which silently leaves a bare nn.Sequential uncompiled.
        return cast("nn.Module", torch.compile(module, mode=mode, backend=backend, **options))

    return compile_module
