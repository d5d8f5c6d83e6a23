"""The measured model, its state, and steps on fake tensors for FLOP counting."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from gpubench_plugin.config.sections import CompileScope
from gpubench_plugin.core.errors import require_returned
from gpubench_plugin.precision.base import Precision
from gpubench_plugin.training.compile import EAGER, model_compiler
from gpubench_plugin.training.seeding import seeded
from gpubench_plugin.workloads.base import Workload

Wrap = Callable[[nn.Module], nn.Module]
Compiled = Callable[[nn.Module, Wrap], nn.Module]

_COMPILED: Final = "_orig_mod."
"""torch.compile's prefix of parameter names."""


def build_model(
    workload: Workload[Any],
    *,
    seed: int,
    device: torch.device,
    precision: Precision,
    is_eager: bool = False,
    default_scope: CompileScope = "model",
    compiled: Compiled | None = None,
    wrap: Wrap | None = None,
) -> nn.Module:
    """Build the workload's model: seeded, converted, on the device, compiled, wrapped.

    The weights are drawn on the device, or on the CPU as the workload's ``init_device`` says; the
    random state is restored. All ranks have the same: torch's generators give the same numbers on
    equal devices. In fp32, whatever the precision: a model of 16-bit weights takes twice its memory
    until it is converted. Compiled, unless `is_eager`, is the model inside the parallelism's
    wrapper, in the workload's scope or else `default_scope`, and in parts by `compiled`:
    https://docs.pytorch.org/docs/stable/compile/programming_model.where_to_apply_compile.html
    """
    section = workload.section.model_copy(update=EAGER) if is_eager else workload.section
    compile_model = model_compiler(workload, section, default_scope=default_scope)
    is_on_device = workload.section.init_device == "auto"
    init_device = device if is_on_device else torch.device("cpu")
    # The default device; what a library creates on the CPU all the same stays there.
    with seeded(seed, init_device), nullcontext() if init_device.type == "cpu" else init_device:
        module = require_returned(workload.build(), nn.Module, f"{type(workload).__name__}.build")
    module = precision.convert_module(module)
    require_returned(module, nn.Module, f"{type(precision).__name__}.convert_module")
    module = module.to(device=device, memory_format=workload.memory_format)  # type: ignore[call-overload] # a gap in its stub
    if section.compile != "none":
        module = compile_model(module) if compiled is None else compiled(module, compile_model)
    return module if wrap is None else wrap(module)


def model_state(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers of `module`, by reference."""
    state = _unwrapped(module).state_dict()
    return {name.replace(_COMPILED, ""): value for name, value in state.items()}


def load_model_state(module: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Copy a :func:`model_state` into the tensors of `module`."""
    unwrapped = _unwrapped(module)
    unwrapped.load_state_dict(
        {name: state[name.replace(_COMPILED, "")] for name in unwrapped.state_dict()}
    )


def _unwrapped(module: nn.Module) -> nn.Module:
    return module.module if isinstance(module, DistributedDataParallel) else module
