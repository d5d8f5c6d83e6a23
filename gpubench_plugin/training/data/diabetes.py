"""Bundled data set of 442 diabetes patients (``datasets/README.md``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpubench_plugin.training.data._in_memory import InMemory, SampleTable, read_gzip

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

    from gpubench_plugin.workloads.base import Batch, Workload


class Diabetes(InMemory):
    """Ten features per patient, with disease progression after one year as target.

    354 patients for training, 88 held out. Features and targets are normalized by mean and standard
    deviation of the training part: predicting the mean has a squared error of 1 on it, and of 0.84
    on the held-out part.
    """

    def read(self, workload: Workload[Any]) -> SampleTable:
        """Normalized features and targets."""
        table = SampleTable.split(*read_diabetes())
        training, held_out = (tuple(map(_normalised, part, table.training)) for part in table)
        return SampleTable(training, held_out)

    def batch_of(self, workload: Workload[Any], *columns: Tensor) -> Batch:
        """Rows of the table as a batch."""
        return workload.from_table(*columns)


def read_diabetes() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Raw features, 442×10, and targets."""
    names = "diabetes_data_raw.csv.gz", "diabetes_target.csv.gz"
    features, targets = (np.loadtxt(read_gzip(name).splitlines()) for name in names)
    return features, targets


def _normalised(column: NDArray[np.float64], basis: NDArray[np.float64]) -> NDArray[np.float32]:
    normalised: NDArray[np.float32] = ((column - basis.mean(0)) / basis.std(0)).astype(np.float32)
    return normalised
