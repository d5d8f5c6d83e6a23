"""The back ends of torch.compile by name.

torch keeps a registry of them. A distribution adds one by an entry point of the group
``torch_dynamo_backends``, a conftest by ``torch._dynamo.register_backend``.
Source: https://docs.pytorch.org/docs/stable/user_guide/torch_compiler/torch.compiler_custom_backends.html
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import torch

from gpubench_plugin.errors import UsageProblem, not_one_of
from gpubench_plugin.training.counting import COUNTING, NAME

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

INDUCTOR: Final = "inductor"
"""torch's own, which alone knows modes."""


def names() -> tuple[str, ...]:
    """Every back end there is, ours among them, sorted."""
    import torch._dynamo as dynamo

    if NAME not in dynamo.list_backends(exclude_tags=()):
        dynamo.register_backend(COUNTING, name=NAME)  # type: ignore[arg-type] # a callable will do
    return tuple(dynamo.list_backends(exclude_tags=()))


def compiler(*, mode: str, backend: str = INDUCTOR) -> Callable[[nn.Module], nn.Module]:
    """What compiles a module in this mode by this back end.

    Raises:
        UsageProblem: there is no such back end, or it has no modes and `mode` is one.
    """
    if mode == "none":
        if backend != INDUCTOR:
            raise UsageProblem(
                f"model.compile_backend={backend}: nothing is compiled; add --model.compile=default"
            )
        return lambda module: module
    if backend != INDUCTOR:
        if backend not in (there := names()):
            raise not_one_of("model.compile_backend", backend, there)
        if mode != "default":
            raise UsageProblem(
                f"model.compile={mode}: modes are inductor's, model.compile_backend={backend} has "
                "none; allowed: none, default"
            )

    def compiled(module: nn.Module) -> nn.Module:
        # Not module.compile(): that leaves a bare nn.Sequential uncompiled without a word.
        return cast("nn.Module", torch.compile(module, mode=mode, backend=backend))

    return compiled
