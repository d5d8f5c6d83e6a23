"""Parameters with gradients, and the implementations of an optimizer that may step them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from torch import Tensor

from gpubench_plugin.workloads._micro.checks import lacking, require_close

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
"""Their class and options."""

TENSORS_MOVED: Final = {"sgd": 5, "adamw": 7}
"""Tensors as large as the parameters that a step reads or writes at least: parameters and each
state are read and written, gradients read."""


def parameters(count: int, elements: int, device: torch.device) -> list[Tensor]:
    """Tensors of random numbers, each with a gradient."""
    made = [torch.randn(elements, device=device) for _ in range(count)]
    for parameter in made:
        parameter.grad = torch.randn_like(parameter)
    return made


def optimizer(name: str, implementation: str, over: Sequence[Tensor]) -> torch.optim.Optimizer:
    """The optimizer over these parameters.

    Raises:
        Unsupported: the device or torch lacks this implementation.
    """
    kind, options = OPTIMIZERS[name]
    with lacking(f"{name}, {implementation}"):
        return kind(over, **options, **IMPLEMENTATIONS[implementation])  # type: ignore[arg-type] # a sequence will do


def check(name: str, implementation: str, over: Sequence[Tensor], *, steps: int = 2) -> float:
    """Some steps on copies against the same in double precision by the loop; the largest error.

    Raises:
        CorrectnessError: it is beyond what single precision explains.
        Unsupported: the device or torch lacks this implementation.
    """
    actual = [_copy(parameter, parameter.dtype) for parameter in over]
    exact = [_copy(parameter, torch.float64) for parameter in over]
    of_actual = optimizer(name, implementation, actual)
    of_exact = optimizer(name, "loop", exact)
    what = f"{name}, {implementation}"
    for _ in range(steps):
        with lacking(what):  # some find it out only now
            of_actual.step()
        of_exact.step()
    return max(
        require_close(what, a, e, tolerance=1e-6) for a, e in zip(actual, exact, strict=True)
    )


def _copy(parameter: Tensor, dtype: torch.dtype) -> Tensor:
    copied = parameter.detach().to(dtype, copy=True)
    assert parameter.grad is not None
    copied.grad = parameter.grad.to(dtype, copy=True)
    return copied
