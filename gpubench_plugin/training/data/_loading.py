"""Loading of pictures by workers of torch's DataLoader, and each rank's samples in their order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch.utils.data import DataLoader, Sampler

from gpubench_plugin.errors import UsageProblem
from gpubench_plugin.training.data._image_files import Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from gpubench_plugin.config import DataSection
    from gpubench_plugin.training.data._image_files import Gallery, Picture

    Indices = NDArray[np.int64]
    Loaded = tuple[Tensor, Tensor]


_HELD_OUT: Final = 0.2
"""The share of rows held out of a table that has no test part of its own."""

_SPLIT_SEED: Final = 20_260_101
"""Of the shuffling that chooses them. Files are sorted in their ways: every n-th row would do
worse, since digits are written down in turns."""


def held_out_rows(count: int) -> tuple[Indices, Indices]:
    """The rows to train on, and those held out: the same in every run, whatever its seed."""
    shuffled = np.random.default_rng(_SPLIT_SEED).permutation(count)
    held_out = int(count * _HELD_OUT)
    return np.sort(shuffled[held_out:]), np.sort(shuffled[:held_out])


def require_enough(count: int, *, world_size: int, of: str) -> None:
    """Refuse samples `of` something that do not give every rank one.

    Raises:
        UsageProblem: there are fewer than ranks.
    """
    if count < world_size:
        raise UsageProblem(
            f"{of}: {count} samples are too few for {world_size} ranks; allowed: at most {count} "
            "ranks"
        )


def epoch_of(
    count: int,
    *,
    batch_size: int,
    world_size: int,
    rank: int,
    seed: int,
    epoch: int = 0,
) -> Indices:
    """A rank's samples of one pass over the data, a multiple of `batch_size`.

    The ranks take turns in dealing themselves samples of a shuffled row and hold equally many, so
    that their batches together are those of one process with the global batch. A remainder of
    fewer samples than ranks is left out. The last batch is filled up from the beginning.
    """
    shuffled = np.random.default_rng((seed, epoch)).permutation(count)
    own = shuffled[rank::world_size][: count // world_size]
    return np.resize(own, -(-len(own) // batch_size) * batch_size)


def held_out_of(count: int, *, batch_size: int, world_size: int, rank: int) -> list[Indices]:
    """A rank's share of `count` held-out samples, in batches; every rank has equally many batches.

    Each sample belongs to one rank, unless there are fewer samples than ranks: then all belong to
    every rank, which leaves means as they are.
    """
    rows = np.arange(count)
    if count < world_size:
        rank, world_size = 0, 1
    most, least = -(-count // world_size), count // world_size
    batches = max(1, min(-(-most // batch_size), least))
    return np.array_split(rows[rank::world_size], batches)


class Loader:
    """Batches of a rank's pictures without end, loaded by workers while others are used.

    Only copies to CUDA can use pinned memory, and do unless ``data.pin_memory`` is false.
    """

    def __init__(
        self,
        gallery: Gallery,
        *,
        section: DataSection,
        batch_size: int,
        world_size: int,
        rank: int,
        seed: int,
        device: torch.device,
    ):
        self._batch_size = batch_size
        self._share = {"world_size": world_size, "rank": rank, "seed": seed}
        self._count = len(gallery)
        self._order = _Order(self)
        self.steps_per_epoch = len(self.rows(epoch=0)) // batch_size
        with_workers = section.workers > 0
        self.settings: dict[str, object] = {
            "workers": section.workers,
            "pinned_memory": section.pin_memory is not False and device.type == "cuda",
            "prefetch_factor": section.prefetch_factor if with_workers else None,
            "persistent_workers": section.persistent_workers and with_workers,
        }
        self._loader: DataLoader[Any] | None = DataLoader(
            gallery,  # type: ignore[arg-type] # by number is all it asks for
            batch_size=batch_size,
            sampler=self._order,
            collate_fn=collated,
            num_workers=section.workers,
            pin_memory=bool(self.settings["pinned_memory"]),
            prefetch_factor=section.prefetch_factor if with_workers else None,
            persistent_workers=bool(self.settings["persistent_workers"]),
            # Of its own: the default generator is the model's.
            generator=torch.Generator().manual_seed(seed),
        )
        self._batches: Iterator[Any] | None = None

    def rows(self, *, epoch: int) -> Indices:
        """The pictures of an epoch on this rank, in their order."""
        return epoch_of(self._count, batch_size=self._batch_size, epoch=epoch, **self._share)

    def next(self) -> Loaded:
        """The next batch, images N×C×H×W in bytes and their classes, on the host.

        Raises:
            UsageProblem: an image cannot be read.
        """
        if self._batches is None:
            self._batches = self._begin()
        batch = next(self._batches, None)
        if batch is None:
            self._batches = self._begin()
            batch = next(self._batches)
        return _arrived(batch)

    def restart(self) -> None:
        """Begin the first epoch anew."""
        self._order.epoch = 0
        if not self.settings["persistent_workers"]:
            _end(self._batches)
        self._batches = None

    def close(self) -> None:
        """End the workers, also those that a traceback still refers to."""
        loader, self._loader = self._loader, None
        for batches in (self._batches, getattr(loader, "_iterator", None)):
            _end(batches)
        self._batches = None

    def _begin(self) -> Iterator[Any]:
        assert self._loader is not None, "closed"
        return iter(self._loader)


class _Order(Sampler[int]):
    """The order of the next epoch, each time it is asked for."""

    def __init__(self, loader: Loader):
        self._loader = loader
        self.epoch = 0

    def __iter__(self) -> Iterator[int]:
        rows = self._loader.rows(epoch=self.epoch)
        self.epoch += 1
        return iter(rows.tolist())


def _end(batches: object) -> None:
    """End the workers, if there are any.

    torch does so when the iterator is collected, which the traceback of an error can put off.
    """
    end = getattr(batches, "_shutdown_workers", None)
    if end is not None:
        end()


def batch_from(gallery: Gallery, rows: Iterable[int]) -> Loaded:
    """The pictures of some `rows`, read in this process.

    Raises:
        UsageProblem: an image cannot be read.
    """
    return _arrived(collated([gallery[int(row)] for row in rows]))


def collated(pictures: Sequence[Picture | Problem]) -> Loaded | Problem:
    """Pictures as one batch, or the first problem among them."""
    whole: list[Picture] = []
    for picture in pictures:
        if isinstance(picture, Problem):
            return picture
        whole.append(picture)
    images = torch.stack([image for image, _ in whole])
    return images, torch.tensor([label for _, label in whole])


def _arrived(batch: Any) -> Loaded:
    # Pinning makes a new tuple of it, of the same class.
    if isinstance(batch, Problem):
        raise UsageProblem(batch.message)
    images, labels = batch
    return images, labels
