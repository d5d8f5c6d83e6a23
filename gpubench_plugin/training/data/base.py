"""The base of all sources of batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing import Self

    import torch

    from gpubench_plugin.workloads.base import Batch, Workload

Convert = Callable[["Batch"], "Batch"]


def unchanged(batch: Batch) -> Batch:
    """The batch as it is: for precisions that leave inputs alone."""
    return batch


class DataSource(ABC, Iterator["Batch"]):
    """An endless iterator over one rank's batches, which lie ready on the device.

    `workload` says how samples become inputs, `convert` casts them for the precision: both run
    once, here, and never while something is timed. Equal arguments give equal batches.
    """

    steps_per_epoch: int | None = None
    """Batches in one pass over the data; None where the data have no end."""

    def __init__(
        self,
        workload: Workload[Any],
        *,
        batch_size: int,
        device: torch.device,
        world_size: int = 1,
        rank: int = 0,
        seed: int = 0,
        convert: Convert = unchanged,
    ):
        self.batch_size = batch_size

    def __iter__(self) -> Self:
        return self

    @abstractmethod
    def __next__(self) -> Batch:
        """The next `batch_size` samples."""

    @abstractmethod
    def fixed_batch(self) -> Batch:
        """Always the same batch, for checks that train on one."""


BASE = DataSource
