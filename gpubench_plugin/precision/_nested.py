"""Tensors nested in tuples, lists and dictionaries: casting, converting, and finding them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def map_tensors(function: Callable[[Tensor], Any], value: Any) -> Any:
    """Replace each tensor in `value` by its `function`; mappings become dictionaries."""
    import torch

    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, Mapping):
        return {key: map_tensors(function, item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        items = [map_tensors(function, item) for item in value]
        is_named = hasattr(value, "_fields")
        return type(value)(*items) if is_named else type(value)(items)
    return value


def cast_floating(value: Any, dtype: torch.dtype) -> Any:
    """Cast the floating-point tensors in `value` to `dtype`."""
    return map_tensors(lambda t: t.to(dtype) if t.is_floating_point() else t, value)


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Tensors in `value`, in order."""
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping | tuple | list):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from tensors_in(item)


def values_of(tensor: Tensor) -> Tensor:
    """Its numbers in a plain tensor: those that a sparse or nested one stores, 8 bits as fp32."""
    import torch

    if tensor.is_sparse:
        tensor = tensor.coalesce()
    if tensor.is_nested or tensor.layout != torch.strided:
        tensor = tensor.values()
    if tensor.is_complex():
        return torch.view_as_real(tensor)
    return tensor.float() if tensor.is_floating_point() and tensor.itemsize == 1 else tensor
