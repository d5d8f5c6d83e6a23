"""Small bundled data sets (``datasets/README.md``), held entirely on the device."""

from __future__ import annotations

import gzip
import hashlib
from abc import abstractmethod
from importlib.resources import files
from itertools import cycle
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

import torch

from gpubench_plugin.core.errors import GpubenchError
from gpubench_plugin.precision._nested import map_tensors
from gpubench_plugin.training.data._loading import (
    Indices,
    epoch_rows,
    held_out_of,
    held_out_rows,
    require_enough,
)
from gpubench_plugin.training.data.base import DataSource

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gpubench_plugin.workloads.base import Batch, Workload


class SampleTable(NamedTuple):
    """Columns of samples, arrays with samples in the first dimension."""

    training: tuple[NDArray[Any], ...]
    held_out: tuple[NDArray[Any], ...]

    @classmethod
    def split(cls, *columns: NDArray[Any]) -> Self:
        """Rows of `columns`, split by :func:`.held_out_rows`."""
        parts = held_out_rows(len(columns[0]))
        return cls(*(tuple(column[rows] for column in columns) for rows in parts))


class InMemory(DataSource):
    """A table in a seeded order, the same in every epoch; subclasses read it.

    Raises:
        UsageProblem: there are more ranks than samples.
    """

    def _open(self) -> None:
        training, self._held_out_columns = self.read(self._workload)
        count = len(training[0])
        require_enough(
            count, world_size=self._world_size, label=f"data.source={type(self).__name__.lower()}"
        )
        order = epoch_rows(count, seed=self._seed, **self._share)
        self.steps_per_epoch = len(order) // self.batch_size
        self._batches = self._batch(training, order).split(self.batch_size)
        self._endless = cycle(self._batches)
        self._held_out_share = held_out_of(len(self._held_out_columns[0]), **self._share)

    @abstractmethod
    def read(self, workload: Workload[Any]) -> SampleTable:
        """Read the samples in file order."""

    @abstractmethod
    def batch_of(self, workload: Workload[Any], *columns: torch.Tensor) -> Batch:
        """Build the workload's batch from samples, on the CPU."""

    def __next__(self) -> Batch:
        """Next batch, a view without copying."""
        return next(self._endless)

    def fixed_batch(self) -> Batch:
        """First batch of an epoch."""
        return self._batches[0]

    def held_out(self) -> tuple[Batch, ...]:
        """This rank's share of the held-out samples."""
        return tuple(self._batch(self._held_out_columns, rows) for rows in self._held_out_share)

    def restart(self) -> None:
        """Restart with the first batch."""
        self._endless = cycle(self._batches)

    def _batch(self, columns: tuple[NDArray[Any], ...], rows: Indices) -> Batch:
        # Built on the CPU, the same for every device.
        selected = (torch.from_numpy(column[rows]) for column in columns)
        batch = self._convert(self.batch_of(self._workload, *selected))
        moved: Batch = map_tensors(lambda tensor: tensor.to(self._device), batch)
        return moved


DATASETS: Final = files("gpubench_plugin") / "datasets"

SHA256: Final = {
    "asyoulik.txt.gz": "fe0d77ac5ed18970926a043d4b07099e2bdcc550875265de70bcc60c5dba1c35",
    "diabetes_data_raw.csv.gz": "7fc0ded571454b1982210d3bb43f0aca44eae01a0b8654a3b24022bdb6b38009",
    "diabetes_target.csv.gz": "8e53f65eb811df43c206f3534bb3af0e5fed213bc37ed6ba36310157d6023803",
    "digits.csv.gz": "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22",
}
"""Hashes of the bundled files, by name."""


def read_gzip(name: str) -> str:
    """The bundled text file `name`, unpacked.

    Raises:
        GpubenchError: the file was modified.
    """
    content = (DATASETS / name).read_bytes()
    if (sha256 := hashlib.sha256(content).hexdigest()) != SHA256[name]:
        raise GpubenchError(
            f"{DATASETS / name}: sha256 is {sha256} instead of {SHA256[name]}: not the bundled "
            "data set; reinstall pytest-gpubench"
        )
    return gzip.decompress(content).decode("ascii")
