"""A batch as a test states it: a tensor, or tensors nested in tuples, lists and dictionaries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch import Tensor

from gpubench_plugin.core.errors import Misuse
from gpubench_plugin.precision._nested import map_tensors, tensors_in
from gpubench_plugin.workloads.base import Batch

_PLAIN: Final = (bool, int, float, str)
_ALLOWED: Final = (
    "a tensor, a tuple, list or dictionary of them, or a function that returns one of these"
)


@dataclass(frozen=True)
class StatedBatch:
    """The `inputs` of a model, the `targets` of a loss, and the number of `samples` of both.

    It `is_stated`, or else the first dimension.

    The model is called with a tensor, or with a tuple or dictionary as its arguments.
    """

    inputs: Any
    targets: tuple[Any, ...]
    samples: int
    is_stated: bool

    @classmethod
    def of(cls, batch: object, *, samples: object = None, has_targets: bool) -> StatedBatch:
        """The parts of `batch`: with `has_targets` a tuple is the inputs, then the targets.

        Its first dimension is the number of samples, where `samples` does not state it.

        Raises:
            Misuse: something in it is no tensor, or the number of samples is not known.
        """
        nested = _detached(batch, "batch")
        count = _sample_count(nested) if samples is None else _stated(samples)
        has_parts = has_targets and isinstance(nested, tuple)
        inputs, targets = (nested[0], nested[1:]) if has_parts else (nested, ())
        return cls(inputs, targets, count, is_stated=samples is not None)

    def on(self, device: torch.device, memory_format: torch.memory_format) -> Batch:
        """A copy on `device`, with images in `memory_format`."""

        def moved(tensor: Tensor) -> Tensor:
            is_image = tensor.ndim == 4 and tensor.is_floating_point()  # N×C×H×W
            layout = memory_format if is_image else torch.preserve_format
            return tensor.to(device, copy=True, memory_format=layout)

        return Batch(map_tensors(moved, self.inputs), map_tensors(moved, self.targets))

    def targets_of(self, batch: Batch) -> tuple[Any, ...]:
        """What of a `batch` of this form the loss gets: of a dictionary, all of it."""
        if isinstance(self.inputs, dict) and not self.targets:
            return (batch.inputs,)
        return tuple(batch.targets)

    def fake(self) -> Batch:
        """Tensors of the same shapes, without data in a ``FakeTensorMode``."""
        return Batch(map_tensors(empty_like, self.inputs), map_tensors(empty_like, self.targets))


def empty_like(tensor: Tensor) -> Tensor:
    """A new tensor on the CPU of the same shape and strides, in fp32 if it is floating-point."""
    dtype = torch.float32 if tensor.is_floating_point() else tensor.dtype
    return torch.empty_strided(tensor.size(), tensor.stride(), dtype=dtype)


def described(value: object) -> str:
    """Types and shapes of nested tensors in a line: ``(float32[32, 64], int64[32])``."""
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {described(item)}' for key, item in value.items())}}}"
    if isinstance(value, tuple | list):
        return f"({', '.join(map(described, value))})"
    return repr(value) if value is None or isinstance(value, _PLAIN) else type(value).__name__


def _detached(value: object, path: str) -> Any:
    """Copy the structure of `value`, at `path` of the batch, with its tensors detached."""
    if isinstance(value, Tensor):
        if value.is_meta:
            raise Misuse(f"{path} is on the device meta, which holds no values")
        if value.is_nested and value.layout == torch.strided:
            raise Misuse(f"{path} is nested without a shape; build it with layout=torch.jagged")
        return value.detach()
    if isinstance(value, Mapping):
        return {key: _detached(item, f"{path}[{key!r}]") for key, item in value.items()}
    if isinstance(value, tuple | list):
        items = [_detached(item, f"{path}[{index}]") for index, item in enumerate(value)]
        if not items:
            raise Misuse(f"{path} is empty; allowed: {_ALLOWED}")
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if path != "batch" and (value is None or isinstance(value, _PLAIN)):
        return value
    advice = ""
    if type(value).__module__ == "numpy":
        advice = "; torch.from_numpy() makes a tensor of it"
    elif hasattr(value, "__next__") or hasattr(value, "__iter__"):
        advice = "; of a loader pass one batch: next(iter(loader))"
    raise Misuse(f"{path} is of type {type(value).__name__}; allowed: {_ALLOWED}{advice}")


def _stated(samples: object) -> int:
    if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1:
        raise Misuse(f"samples={samples!r:.40}; allowed: a whole number above 0")
    return samples


def _sample_count(nested: object) -> int:
    """First dimension of all tensors that have one."""
    counts = {tensor.shape[0] for tensor in tensors_in(nested) if tensor.ndim}
    if len(counts) != 1:
        raise Misuse(
            f"batch={described(nested)}: the first dimensions do not give one number of samples; "
            "state it, samples="
        )
    (count,) = counts
    if not count:
        raise Misuse(f"batch={described(nested)} has no samples")
    return count
