"""torch's state that benchmarks must not leak into each other."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

import torch

from gpubench_plugin.core.errors import GpubenchError
from gpubench_plugin.environment.device_errors import failures_as_warnings, query_context
from gpubench_plugin.measure.process_state import process_restored, release_memory
from gpubench_plugin.precision.single import attribute_restorer, fp32_switches, restorer


@contextmanager
def state_restored(device: torch.device) -> Iterator[None]:
    """Restore the process's state and torch's after the body, also on exceptions.

    Torch's is: TF32 and cuDNN switches, deterministic flags, default dtype and device, grad mode,
    autocast, anomaly mode, CPU threads, and the random generators of torch and the device.

    Garbage and the allocator's cache and peaks are cleared before and after, compiled code after.

    Raises:
        GpubenchError: the device's context was lost before the body.
        Misuse: the body has removed the working directory.
        RuntimeError: the body, or work that it has left on the device, lost the context.
    """
    try:
        _reset_memory(device)
    except RuntimeError as error:
        message = f"{device}: its context was lost before this benchmark"
        raise GpubenchError(message) from error
    with process_restored(), ExitStack() as stack:
        # Last in, first out.
        stack.callback(_reset_memory, device)
        for restore_switch in reversed(_switches()):
            stack.callback(restore_switch)
        for restore, state in _generators(device):
            stack.callback(restore, state)
        stack.callback(_forget_compiled_code)
        yield


def _switches() -> tuple[Callable[[], None], ...]:
    """Functions that restore the switches, in the order in which they depend on each other."""
    return (
        *fp32_switches(),
        *(
            attribute_restorer(torch.backends.cudnn, name)
            for name in ("enabled", "benchmark", "benchmark_limit", "deterministic")
        ),
        attribute_restorer(torch.utils.deterministic, "fill_uninitialized_memory"),
        restorer(torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
        restorer(torch.get_default_dtype, torch.set_default_dtype),
        restorer(torch.get_default_device, _set_default_device),
        restorer(torch.is_grad_enabled, torch.set_grad_enabled),
        *(
            restorer(
                partial(getattr(torch, f"{read}_autocast_{suffix}"), device),
                partial(getattr(torch, f"set_autocast_{suffix}"), device),
            )
            for device in ("cpu", "cuda")
            for read, suffix in (("is", "enabled"), ("get", "dtype"))
        ),
        restorer(torch.is_anomaly_enabled, torch.set_anomaly_enabled),
        restorer(torch.get_num_threads, torch.set_num_threads),
    )


def _set_default_device(device: torch.device) -> None:
    """Set the default device; unset it for the CPU, since one slows every factory function."""
    torch.set_default_device(None if device.type == "cpu" else device)


def _generators(device: torch.device) -> Iterator[tuple[Callable[[Any], object], Any]]:
    """Restore function and state of each random number generator."""
    yield torch.set_rng_state, torch.get_rng_state()
    if device.type != "cpu":
        module = torch.get_device_module(device)
        suffix = "_all" if hasattr(module, "get_rng_state_all") else ""
        yield (
            getattr(module, f"set_rng_state{suffix}"),
            getattr(module, f"get_rng_state{suffix}")(),
        )


def _reset_memory(device: torch.device) -> None:
    """Collect garbage, empty the allocator's cache and reset its peaks.

    Raises:
        RuntimeError: the device's context is lost.
    """
    if device.type == "cpu":
        return
    if (lost := query_context(str(device))) is not None:
        raise lost
    release_memory(device)
    module = torch.get_device_module(device)
    # Before its first use CUDA knows no device to reset.
    is_initialized = getattr(module, "is_initialized", lambda: True)()
    if is_initialized and hasattr(module, "reset_peak_memory_stats"):
        with failures_as_warnings(f"reset the peak memory of {device}"):
            module.reset_peak_memory_stats(device)


def _forget_compiled_code() -> None:
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()
