"""Random samples of the right shape: one batch, made on the device, over and over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from gpubench_plugin.training.data.base import Convert, DataSource, unchanged
from gpubench_plugin.training.seeding import synthetic_seed

if TYPE_CHECKING:
    from gpubench_plugin.workloads import Batch, Workload


class Synthetic(DataSource):
    """The workload's synthetic batch; every rank has its own."""

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
        super().__init__(workload, batch_size=batch_size, device=device)
        generator = torch.Generator(device).manual_seed(synthetic_seed(seed, world_size, rank))
        batch = workload.synthetic_batch(batch_size, device=device, generator=generator)
        self._batch = convert(batch)

    def __next__(self) -> Batch:
        """The batch."""
        return self._batch

    def fixed_batch(self) -> Batch:
        """The batch."""
        return self._batch

    def restart(self) -> None:
        """Nothing to do: it is always the same batch."""
