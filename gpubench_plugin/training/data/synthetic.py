"""Synthetic data: one random batch on the device, repeated."""

from __future__ import annotations

import torch

from gpubench_plugin.core.errors import require_returned
from gpubench_plugin.training.data.base import DataSource
from gpubench_plugin.training.seeding import synthetic_seed
from gpubench_plugin.workloads.base import Batch


class Synthetic(DataSource):
    """The workload's synthetic batch, different on each rank."""

    is_endless = True

    def _open(self) -> None:
        seed = synthetic_seed(self._seed, self._world_size, self._rank)
        generator = torch.Generator(self._device).manual_seed(seed)
        batch = self._workload.synthetic_batch(
            self.batch_size, device=self._device, generator=generator
        )
        require_returned(batch, Batch, f"{type(self._workload).__name__}.synthetic_batch")
        self._batch = self._convert(batch)

    def __next__(self) -> Batch:
        """The one batch, drawn when the source was opened."""
        return self._batch

    def fixed_batch(self) -> Batch:
        """The batch that every step gets anyway."""
        return self._batch

    def restart(self) -> None:
        """No-op: the batch never changes."""
