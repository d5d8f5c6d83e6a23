"""The operations of torch that a call does, seen one by one as they pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

Operation = torch._ops.OpOverload[..., Any]


class OperationWatch(TorchDispatchMode):
    """A context manager in which every operation goes through :meth:`run`.

    Those of other threads do not; a backward pass on a CPU is in the thread that asks for it.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # torch does not declare it

    def __torch_dispatch__(
        self,
        func: Operation,
        types: object,
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        return self.run(func, args, kwargs or {})

    def run(
        self, operation: Operation, args: tuple[object, ...], kwargs: Mapping[str, object]
    ) -> object:
        """What `operation` computes of these."""
        return operation(*args, **kwargs)
