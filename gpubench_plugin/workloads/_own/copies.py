"""Copies of a module that a test states: with its values, or of tensors without data."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, TypeVar

from torch import Tensor, nn

from gpubench_plugin.core.errors import Misuse, error_text
from gpubench_plugin.workloads._own.batch import empty_like

if TYPE_CHECKING:
    from collections.abc import Iterator

M = TypeVar("M", bound=nn.Module)


def copied(module: M) -> M:
    """An independent copy of `module`.

    Raises:
        Misuse: it cannot be copied.
    """
    return _copied(module, {})


def fake_copy(module: M) -> M:
    """A copy whose tensors have no data, in a ``FakeTensorMode``."""
    return _copied(module, dict(_fakes(module)))


def _copied(module: M, memo: dict[int, object]) -> M:
    try:
        return deepcopy(module, memo)
    except (RuntimeError, TypeError) as error:
        if type(error) not in {RuntimeError, TypeError}:  # its subclasses tell of the device
            raise
        reason = error_text(error).partition("\n")[0]
        kind = type(module).__name__
        raise Misuse(
            f"model ({kind}) cannot be copied: {reason}; pass a function that builds it: "
            "lambda: MyModel()"
        ) from error


def _fakes(module: nn.Module) -> Iterator[tuple[int, Tensor]]:
    """Stand-ins without data for all tensors of `module`, by the identity of the original."""
    for parameter in module.parameters():
        yield id(parameter), nn.Parameter(empty_like(parameter), parameter.requires_grad)
    for part in module.modules():
        for tensor in (*part.buffers(recurse=False), *vars(part).values()):
            if isinstance(tensor, Tensor):
                yield id(tensor), empty_like(tensor)
