"""Seeds, determinism and random states for bitwise repeatability."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
import torch
from torch import Tensor

from gpubench_plugin.core.errors import Unsupported, error_text
from gpubench_plugin.core.records import Json
from gpubench_plugin.system.json_files import jsonable

_WORKSPACE: Final = "CUBLAS_WORKSPACE_CONFIG"
_WORKSPACES: Final = (":4096:8", ":16:8")
"""Values that make cuBLAS deterministic, the faster one first.

Source: https://docs.nvidia.com/cuda/cublas/index.html#results-reproducibility
"""
_REFUSED: Final = "does not have a deterministic implementation"


@contextmanager
def deterministic(device: torch.device) -> Iterator[None]:
    """Context with deterministic algorithms only, restoring all switches afterwards.

    Uninitialized tensors hold NaN. On CUDA it sets ``CUBLAS_WORKSPACE_CONFIG``, which torch reads
    for every matrix product, but cuBLAS only on first use.

    Raises:
        Unsupported: the variable has another value.
    """
    cudnn = torch.backends.cudnn
    old_switches = torch.get_deterministic_debug_mode(), cudnn.deterministic, cudnn.benchmark
    variable = os.environ.get(_WORKSPACE)
    if device.type == "cuda" and variable not in {None, *_WORKSPACES}:
        raise Unsupported(
            f"training.deterministic: {_WORKSPACE}={variable}; allowed: {', '.join(_WORKSPACES)}"
        )
    try:
        if device.type == "cuda":
            os.environ.setdefault(_WORKSPACE, _WORKSPACES[0])
        torch.set_deterministic_debug_mode("error")
        cudnn.deterministic, cudnn.benchmark = True, False
        yield
    finally:
        mode, cudnn.deterministic, cudnn.benchmark = old_switches
        torch.set_deterministic_debug_mode(mode)
        if variable is None:
            os.environ.pop(_WORKSPACE, None)


@contextmanager
def nondeterminism_errors() -> Iterator[None]:
    """Name the operation when torch has no deterministic implementation.

    Raises:
        Unsupported: naming the operation.
    """
    try:
        yield
    except RuntimeError as error:
        message = error_text(error)
        if _REFUSED not in message:
            raise
        operation = message[: message.index(_REFUSED)].rsplit("\n", maxsplit=1)[-1].strip()
        raise Unsupported(
            f"training.deterministic: {operation} has no deterministic implementation in "
            "torch; remove the key, or use a model or device without it"
        ) from error


def seeds_of(seed: int, *, world_size: int) -> Json:
    """Seeds by purpose, for the record; only synthetic batches have a different one per rank."""
    return {
        "experiment": seed,
        "model": seed,
        "training": [seed] * world_size,
        "data": seed,
        "synthetic_data": [synthetic_seed(seed, world_size, rank) for rank in range(world_size)],
    }


def synthetic_seed(seed: int, world_size: int, rank: int) -> int:
    """Seed of a rank's synthetic batches, unique per rank."""
    return seed * world_size + rank


@contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Context in which the generators of Python, numpy, torch and `device` start from `seed`.

    Afterwards all are as they were.
    """
    cpu = torch.device("cpu")
    of_host, of_device = RandomState.capture(cpu), None
    try:
        random.seed(seed)
        np.random.seed(seed % 2**32)
        torch.default_generator.manual_seed(seed)
        if device.type != "cpu":
            of_device = _device_state(device)
            _set_device_state(torch.Generator(device).manual_seed(seed).get_state(), device)
        yield
    finally:
        of_host.restore(cpu)
        if of_device is not None:
            _set_device_state(of_device, device)


def _device_state(device: torch.device) -> Tensor:
    """State of the default generator of an accelerator; synchronizes."""
    index = () if device.type == "mps" else (device,)  # torch.mps has one device, and takes none
    state: Tensor = torch.get_device_module(device).get_rng_state(*index)
    return state


def _set_device_state(state: Tensor, device: torch.device) -> None:
    index = () if device.type == "mps" else (device,)
    torch.get_device_module(device).set_rng_state(state, *index)


@dataclass(frozen=True, kw_only=True)
class RandomState:
    """State of the generators of Python, numpy, torch on the CPU, and the device, as JSON types.

    `device` is None for the CPU.
    """

    python: list[Any]
    numpy: Json
    cpu: list[int]
    device: list[int] | None

    @classmethod
    def capture(cls, device: torch.device) -> Self:
        """Capture the current states; synchronizes."""
        return cls(
            python=jsonable(random.getstate()),
            numpy=jsonable(np.random.get_state(legacy=False)),
            cpu=torch.get_rng_state().tolist(),
            device=None if device.type == "cpu" else _device_state(device).tolist(),
        )

    def restore(self, device: torch.device) -> None:
        """Restore the states; the device's only if both have one."""
        version, words, gauss = self.python
        random.setstate((version, tuple(words), gauss))
        np.random.set_state(self.numpy)
        torch.set_rng_state(torch.tensor(self.cpu, dtype=torch.uint8))
        if self.device is not None and device.type != "cpu":
            _set_device_state(torch.tensor(self.device, dtype=torch.uint8), device)
