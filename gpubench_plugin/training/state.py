"""A model's state without wrapper and compiler, and device waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from torch.nn.parallel import DistributedDataParallel

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor, nn


_COMPILED: Final = "_orig_mod."
"""What torch.compile puts before the names of the module inside."""


def model_state(module: nn.Module) -> dict[str, Tensor]:
    """The parameters and persistent buffers of `module`, which live on in it: nothing is copied."""
    return {_plain(name): value for name, value in _inner(module).state_dict().items()}


def load_model_state(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Copy `state`, as :func:`model_state` gave it, into the tensors of `module`."""
    inner = _inner(module)
    inner.load_state_dict({name: state[_plain(name)] for name in inner.state_dict()})


def _inner(module: nn.Module) -> nn.Module:
    return module.module if isinstance(module, DistributedDataParallel) else module


def _plain(name: str) -> str:
    return name.replace(_COMPILED, "")
