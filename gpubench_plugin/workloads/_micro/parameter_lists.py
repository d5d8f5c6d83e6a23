"""Parameter lists with gradients, and optimizer implementations to step them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from gpubench_plugin.workloads._micro.checks import require_close, skip_if_unsupported

IMPLEMENTATIONS: Final[Mapping[str, Mapping[str, bool]]] = {
    "loop": {"foreach": False, "fused": False},
    "foreach": {"foreach": True, "fused": False},
    "fused": {"foreach": False, "fused": True},
}
"""One operation per parameter, one for many parameters, or one kernel for the whole step."""

OPTIMIZERS: Final[Mapping[str, tuple[type[torch.optim.Optimizer], Mapping[str, Any]]]] = {
    "sgd": (torch.optim.SGD, {"lr": 0.01, "momentum": 0.9}),
    "adamw": (torch.optim.AdamW, {"lr": 0.001, "weight_decay": 0.01}),
}
"""Class and options by name."""

TENSORS_MOVED: Final = {"sgd": 5, "adamw": 7}
"""Minimum memory traffic of a step in units of the parameters: parameters and each state are read
and written, gradients read."""


def parameters(count: int, elements: int, device: torch.device) -> list[Tensor]:
    """Random tensors with gradients."""
    tensors = [torch.randn(elements, device=device) for _ in range(count)]
    for parameter in tensors:
        parameter.grad = torch.randn_like(parameter)
    return tensors


def optimizer(name: str, implementation: str, tensors: Sequence[Tensor]) -> torch.optim.Optimizer:
    """The optimizer for these parameters.

    Raises:
        Unsupported: the device or torch lacks this implementation.
    """
    kind, options = OPTIMIZERS[name]
    with skip_if_unsupported(f"{name}, {implementation}"):
        return kind(tensors, **options, **IMPLEMENTATIONS[implementation])  # type: ignore[arg-type] # a sequence will do


def check(name: str, implementation: str, tensors: Sequence[Tensor], *, steps: int = 2) -> float:
    """Compare some steps with the double precision for-loop implementation; the largest error.

    Raises:
        CorrectnessError: it is beyond what single precision explains.
        Unsupported: the device or torch lacks this implementation.
    """
    actual = [_copy(parameter, parameter.dtype) for parameter in tensors]
    expected = [_copy(parameter, torch.float64) for parameter in tensors]
    measured = optimizer(name, implementation, actual)
    reference = optimizer(name, "loop", expected)
    label = f"{name}, {implementation}"
    for _ in range(steps):
        with skip_if_unsupported(label):  # some implementations refuse only here
            measured.step()
        reference.step()
    # 1e-6: about 16 roundings to fp32 in two steps.
    return max(
        require_close(label, a, e, tolerance=1e-6) for a, e in zip(actual, expected, strict=True)
    )


def _copy(parameter: Tensor, dtype: torch.dtype) -> Tensor:
    clone = parameter.detach().to(dtype, copy=True)
    assert parameter.grad is not None
    clone.grad = parameter.grad.to(dtype, copy=True)
    return clone
