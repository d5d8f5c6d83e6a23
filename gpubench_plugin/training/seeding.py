"""Runs that can be repeated bit by bit, and the seeds they start from."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import torch

from gpubench_plugin.errors import Unsupported, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpubench_plugin.records import Json

_WORKSPACE: Final = "CUBLAS_WORKSPACE_CONFIG"
_WORKSPACES: Final = (":4096:8", ":16:8")
"""The values with which cuBLAS is deterministic; the first is the faster one.

Source: https://docs.nvidia.com/cuda/cublas/index.html#results-reproducibility
"""
_REFUSED: Final = "does not have a deterministic implementation"


@contextmanager
def deterministic(device: torch.device) -> Iterator[None]:
    """Deterministic algorithms only, and every switch as it was afterwards.

    Tensors that nobody filled hold NaN. On CUDA the variable that makes cuBLAS deterministic is
    set; torch looks at it in every matrix product, cuBLAS when a process uses it first.

    Raises:
        Unsupported: that variable is set to something else.
    """
    cudnn = torch.backends.cudnn
    found = torch.get_deterministic_debug_mode(), cudnn.deterministic, cudnn.benchmark
    variable = os.environ.get(_WORKSPACE)
    _require_workspace(device, variable)
    try:
        if device.type == "cuda":
            os.environ.setdefault(_WORKSPACE, _WORKSPACES[0])
        torch.set_deterministic_debug_mode("error")
        cudnn.deterministic, cudnn.benchmark = True, False
        yield
    finally:
        mode, cudnn.deterministic, cudnn.benchmark = found
        torch.set_deterministic_debug_mode(mode)
        if variable is None:
            os.environ.pop(_WORKSPACE, None)


@contextmanager
def naming_what_is_not_deterministic() -> Iterator[None]:
    """Where torch has no deterministic form of an operation, make that the benchmark's reason.

    Raises:
        Unsupported: naming the operation.
    """
    try:
        yield
    except RuntimeError as error:
        message = text_of(error)
        if _REFUSED not in message:
            raise
        operation = message[: message.index(_REFUSED)].rsplit("\n", maxsplit=1)[-1].strip()
        raise Unsupported(
            f"training.deterministic: {operation} has no deterministic form in torch; leave the "
            "key out, or choose a model or a device without it"
        ) from error


def seeds_of(seed: int, *, world_size: int) -> Json:
    """What is seeded with what, for the record.

    Weights are drawn from `seed` itself, on a generator of their own, and so are the order of real
    data and, on every rank, what the training draws. Synthetic batches have a seed for each rank.
    """
    return {
        "experiment": seed,
        "model": seed,
        "training": [seed] * world_size,
        "data": seed,
        "synthetic_data": [synthetic_seed(seed, world_size, rank) for rank in range(world_size)],
    }


def synthetic_seed(seed: int, world_size: int, rank: int) -> int:
    """The seed of a rank's synthetic batches: no two ranks of one experiment have the same."""
    return seed * world_size + rank


def _require_workspace(device: torch.device, variable: str | None) -> None:
    if device.type == "cuda" and variable not in {None, *_WORKSPACES}:
        raise Unsupported(
            f"training.deterministic: {_WORKSPACE}={variable}; allowed: {', '.join(_WORKSPACES)}"
        )
