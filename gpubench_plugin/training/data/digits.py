"""Bundled data set of 1,797 handwritten digits (``datasets/README.md``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubench_plugin.training.data._in_memory import InMemory, SampleTable, read_gzip

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from gpubench_plugin.workloads.base import Batch, Workload


class Digits(InMemory):
    """Real digits: 1,438 for training, 359 held out."""

    def read(self, workload: Workload[Any]) -> SampleTable:
        """Images and labels of the digits that come with the plugin."""
        return SampleTable.split(*read_digits())

    def batch_of(self, workload: Workload[Any], *columns: Tensor) -> Batch:
        """Images scaled to the model's input size."""
        return workload.from_images(*columns)


def read_digits() -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Images, N×1×8×8 with values from 0 to 1, and labels."""
    lines = read_gzip("digits.csv.gz").splitlines()
    table = np.loadtxt(lines, delimiter=",", dtype=np.int64)
    images = (table[:, :64] / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    return images, table[:, 64]
