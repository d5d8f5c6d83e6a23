"""The 1,797 handwritten digits shipped with the package (``datasets/README.md``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from gpubench_plugin.training.data._in_memory import DATASETS, InMemory, Table, unpacked

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from numpy.typing import NDArray
    from torch import Tensor

    from gpubench_plugin.workloads import Batch, Workload

SHA256: Final = "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22"
DIGITS: Final = DATASETS / "digits.csv.gz"


class Digits(InMemory):
    """Real digits: 1,438 to train on, 359 held out."""

    def read(self, workload: Workload[Any]) -> Table:
        """Images and labels."""
        return Table.split(*read_digits())

    def batch_of(self, workload: Workload[Any], *columns: Tensor) -> Batch:
        """Images of the model's size."""
        return workload.from_images(*columns)


def read_digits(path: Traversable = DIGITS) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The images, N×1×8×8 with values from 0 to 1, and the digits they show.

    Raises:
        GpubenchError: the file is not the one that was shipped.
    """
    table = np.loadtxt(unpacked(path, SHA256).splitlines(), delimiter=",", dtype=np.int64)
    images = (table[:, :64] / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    return images, table[:, 64]
