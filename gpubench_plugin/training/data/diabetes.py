"""Bundled data set of 442 diabetes patients (``datasets/README.md``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gpubench_plugin.training.data._in_memory import DATASETS, InMemory, SampleTable, read_gzip

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from numpy.typing import NDArray
    from torch import Tensor

    from gpubench_plugin.workloads.base import Batch, Workload

FEATURES: Final = DATASETS / "diabetes_data_raw.csv.gz"
FEATURES_SHA256: Final = "7fc0ded571454b1982210d3bb43f0aca44eae01a0b8654a3b24022bdb6b38009"
TARGETS: Final = DATASETS / "diabetes_target.csv.gz"
TARGETS_SHA256: Final = "8e53f65eb811df43c206f3534bb3af0e5fed213bc37ed6ba36310157d6023803"


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


def read_diabetes(
    features: Traversable = FEATURES, targets: Traversable = TARGETS
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Raw features, 442×10, and targets.

    Raises:
        GpubenchError: a file is missing or was modified.
    """
    return (
        np.loadtxt(read_gzip(features, FEATURES_SHA256).splitlines(), dtype=np.float64),
        np.loadtxt(read_gzip(targets, TARGETS_SHA256).splitlines(), dtype=np.float64),
    )


def _normalised(column: NDArray[np.float64], basis: NDArray[np.float64]) -> NDArray[np.float32]:
    normalised: NDArray[np.float32] = ((column - basis.mean(0)) / basis.std(0)).astype(np.float32)
    return normalised
