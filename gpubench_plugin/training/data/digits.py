"""The 1,797 handwritten digits shipped with the package (``datasets/README.md``)."""

from __future__ import annotations

import gzip
import hashlib
from importlib.resources import files
from itertools import cycle
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from gpubench_plugin.errors import GpubenchError
from gpubench_plugin.training.data.base import Convert, DataSource, unchanged

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from numpy.typing import NDArray

    from gpubench_plugin.workloads.base import Batch, Workload

SHA256: Final = "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22"
DIGITS: Final = files("gpubench_plugin") / "datasets" / "digits.csv.gz"


class Digits(DataSource):
    """Real digits in a seeded order, the same in every epoch.

    The ranks take turns in dealing themselves samples and hold equally many; a remainder of fewer
    samples than ranks is left out. The last batch of an epoch is filled up from its beginning.
    """

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
        images, labels = read_digits()
        share = len(labels) // world_size
        order = np.random.default_rng(seed).permutation(len(labels))[rank::world_size][:share]
        self.steps_per_epoch = -(-share // batch_size)
        filled = np.resize(order, self.steps_per_epoch * batch_size)
        epoch = workload.from_images(
            torch.from_numpy(images[filled]).to(device), torch.from_numpy(labels[filled]).to(device)
        )
        self._batches = convert(epoch).split(batch_size)
        self._endless = cycle(self._batches)

    def __next__(self) -> Batch:
        """The next batch: views, nothing is copied."""
        return next(self._endless)

    def fixed_batch(self) -> Batch:
        """The first batch of an epoch."""
        return self._batches[0]


def read_digits(path: Traversable = DIGITS) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The images, N×1×8×8 with values from 0 to 1, and the digits they show.

    Raises:
        GpubenchError: the file is not the one that was shipped.
    """
    content = path.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != SHA256:
        raise GpubenchError(
            f"{path}: sha256 is {found}, not {SHA256}; this is not the shipped data set: "
            "install pytest-gpubench again"
        )
    lines = gzip.decompress(content).decode("ascii").splitlines()
    table = np.loadtxt(lines, delimiter=",", dtype=np.int64)
    images = (table[:, :64] / 16).astype(np.float32).reshape(-1, 1, 8, 8)
    return images, table[:, 64]
