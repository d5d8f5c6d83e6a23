"""Image loading with DataLoader workers, and sample order per rank."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Sampler

from gpubench_plugin.config.sections import DataSection
from gpubench_plugin.core.errors import UsageProblem

Loaded = tuple[Tensor, Tensor]


Indices = NDArray[np.int64]

LabelledImage = tuple[torch.Tensor, int]
"""Bytes by channel, row and column, and the number of its class."""

_HELD_OUT: Final = 0.2
"""Held-out share of a table without a test part: the customary split."""

_SPLIT_SEED: Final = 20_260_101
"""Seed of the shuffle before the split: files are sorted, and digits alternate."""


_MOST_PIXELS: Final = 1 << 26
"""Of an image: 8,192², or 0.4 GB to convert it. A file of half a megabyte may have far more."""


class ArrayImages:
    """Images in memory, N×C×H×W bytes, shared with forked workers."""

    def __init__(self, images: NDArray[Any], labels: NDArray[Any]):
        self._images = images
        self.labels = labels
        self.channels: int = images.shape[1]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> LabelledImage:
        return torch.from_numpy(self._images[index].copy()), int(self.labels[index])


class FileImages:
    """Images read from files on access; instead of an unreadable one comes the error's text.

    An exception in a loader's worker would arrive as a traceback.
    """

    channels = 3

    def __init__(self, files: Sequence[tuple[Path, int]], side: int):
        self._files = files
        self._side = side

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> LabelledImage | str:
        from PIL import Image

        bombs = Image.DecompressionBombError, Image.DecompressionBombWarning  # with -W error
        path, label = self._files[index]
        try:
            if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would block
                return f"data.path: {path}: not a regular file"
            # Keeps untrusted files from Pillow's decoders of other formats. Reads only the header.
            with Image.open(path, formats=("PNG", "JPEG")) as image:
                if (pixels := image.width * image.height) > _MOST_PIXELS:
                    return f"data.path: {path}: {pixels} pixels; the limit is {_MOST_PIXELS}"
                resized = image.convert("RGB").resize((self._side, self._side))
        except (OSError, ValueError, SyntaxError, *bombs) as error:
            return f"data.path: {path}: cannot be read as an image: {error}"
        return torch.from_numpy(np.array(resized)).permute(2, 0, 1), label


ImageSequence = ArrayImages | FileImages


def held_out_rows(count: int) -> tuple[Indices, Indices]:
    """Training and held-out rows, independent of the run's seed."""
    shuffled = np.random.default_rng(_SPLIT_SEED).permutation(count)
    held_out = int(count * _HELD_OUT)
    return np.sort(shuffled[held_out:]), np.sort(shuffled[:held_out])


def require_enough(count: int, *, world_size: int, label: str) -> None:
    """Refuse too few samples to give every rank one.

    Raises:
        UsageProblem: there are fewer than ranks.
    """
    if count < world_size:
        raise UsageProblem(
            f"{label}: {count} samples are too few for {world_size} ranks; allowed: at most "
            f"{count} ranks"
        )


def epoch_rows(
    count: int, *, batch_size: int, world_size: int, rank: int, seed: int, epoch: int = 0
) -> Indices:
    """A rank's samples of one epoch, a multiple of `batch_size`.

    Ranks take shuffled samples in turn and have equally many, so that their batches together are
    those of one process with the global batch. A remainder of fewer samples than ranks is dropped;
    the last batch is filled up from the beginning.
    """
    shuffled = np.random.default_rng((seed, epoch)).permutation(count)
    rank_rows = shuffled[rank::world_size][: count // world_size]
    return np.resize(rank_rows, -(-len(rank_rows) // batch_size) * batch_size)


def held_out_of(count: int, *, batch_size: int, world_size: int, rank: int) -> list[Indices]:
    """A rank's share of held-out samples, with equally many batches per rank.

    Each sample belongs to one rank; with fewer samples than ranks all belong to every rank, which
    does not change means.
    """
    rows = np.arange(count)
    if count < world_size:
        rank, world_size = 0, 1
    max_rows, min_rows = -(-count // world_size), count // world_size
    batches = max(1, min(-(-max_rows // batch_size), min_rows))
    return np.array_split(rows[rank::world_size], batches)


class Loader:
    """Endless batches of a rank's images, prefetched by workers; pinned for copies to CUDA."""

    def __init__(
        self,
        images: ImageSequence,
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
        self._count = len(images)
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
            images,  # type: ignore[arg-type] # needs only an index and a length
            batch_size=batch_size,
            sampler=self._order,
            collate_fn=collate,
            num_workers=section.workers,
            pin_memory=bool(self.settings["pinned_memory"]),
            prefetch_factor=section.prefetch_factor if with_workers else None,
            persistent_workers=bool(self.settings["persistent_workers"]),
            # Leaves the default generator to the training.
            generator=torch.Generator().manual_seed(seed),
        )
        self._batches: Iterator[Any] | None = None

    def rows(self, *, epoch: int) -> Indices:
        """Image indices of an epoch on this rank."""
        return epoch_rows(self._count, batch_size=self._batch_size, epoch=epoch, **self._share)

    def next(self) -> Loaded:
        """Next batch on the host: images N×C×H×W in bytes, and classes.

        Raises:
            UsageProblem: an image cannot be read.
        """
        batch = None if self._batches is None else next(self._batches, None)
        if batch is None:  # a new epoch
            assert self._loader is not None, "closed"
            self._batches = iter(self._loader)
            batch = next(self._batches)
        return _raise_error(batch)

    def restart(self) -> None:
        """Restart with the first epoch."""
        self._order.epoch = 0
        if not self.settings["persistent_workers"]:
            _end(self._batches)
        self._batches = None

    def close(self) -> None:
        """Stop the workers, including those referenced by tracebacks."""
        loader, self._loader = self._loader, None
        _end(self._batches)
        _end(getattr(loader, "_iterator", None))
        self._batches = None


class _Order(Sampler[int]):
    """Sampler that yields the order of the next epoch."""

    def __init__(self, loader: Loader):
        self._loader = loader
        self.epoch = 0

    def __iter__(self) -> Iterator[int]:
        rows = self._loader.rows(epoch=self.epoch)
        self.epoch += 1
        return iter(rows.tolist())


def _end(batches: object) -> None:
    """Stop the workers, if any, which torch does only when the iterator is collected."""
    if hasattr(batches, "_shutdown_workers"):
        batches._shutdown_workers()


def read_batch(images: ImageSequence, rows: Iterable[int]) -> Loaded:
    """Read the images at `rows` in this process.

    Raises:
        UsageProblem: an image cannot be read.
    """
    return _raise_error(collate([images[int(row)] for row in rows]))


def collate(samples: Sequence[LabelledImage | str]) -> Loaded | str:
    """Collate images into a batch, or return the first error."""
    images, labels = [], []
    for sample in samples:
        if isinstance(sample, str):
            return sample
        images.append(sample[0])
        labels.append(sample[1])
    return torch.stack(images), torch.tensor(labels)


def _raise_error(batch: Loaded | str) -> Loaded:
    if isinstance(batch, str):
        raise UsageProblem(batch)
    return batch
