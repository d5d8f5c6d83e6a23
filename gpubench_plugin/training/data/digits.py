"""Bundled data set of 1,797 handwritten digits (``datasets/README.md``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gpubench_plugin.training.data._in_memory import DATASETS, InMemory, SampleTable, read_gzip

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from numpy.typing import NDArray
    from torch import Tensor

    from gpubench_plugin.workloads.base import Batch, Workload

SHA256: Final = "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22"
DIGITS: Final = DATASETS / "digits.csv.gz"


class Digits(InMemory):
    """Real digits: 1,438 for training, 359 held out."""

    def read(self, workload: Workload[Any]) -> SampleTable:
        """Images and labels."""
        return SampleTable.split(*read_digits())

    def batch_of(self, workload: Workload[Any], *columns: Tensor) -> Batch:
        """Images scaled to the model's input size."""
        return workload.from_images(*columns)


def read_digits(path: Traversable = DIGITS) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Images, N×1×8×8 with values from 0 to 1, and labels.

    Raises:
        GpubenchError: the file is missing or was modified.
    """
    table = np.loadtxt(read_gzip(path, SHA256).splitlines(), delimiter=",", dtype=np.int64)
    images = (table[:, :64] / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    return images, table[:, 64]
