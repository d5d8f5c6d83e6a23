"""What every kind of images on disk becomes: pictures by number, some of them held out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch

if TYPE_CHECKING:
    from numpy.typing import NDArray

Picture = tuple[torch.Tensor, int]
"""Bytes by channel, row and column, and the number of its class."""


class Problem(NamedTuple):
    """Why there is no picture: said by a worker, raised where the batch arrives."""

    message: str


class Gallery(Protocol):
    """Pictures of one size by number; a worker has a copy."""

    @property
    def channels(self) -> int:
        """One (grey) or three."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Picture | Problem: ...


@dataclass(frozen=True, kw_only=True)
class Pictures:
    """All pictures of a data set; `held_out` is None where it has none for evaluation."""

    kind: str
    classes: int
    training: Gallery
    held_out: Gallery | None


class ArrayPictures:
    """Pictures in memory, N×C×H×W bytes, which forked workers share."""

    def __init__(self, images: NDArray[Any], labels: NDArray[Any]):
        self._images = images
        self.labels = labels
        self.channels: int = images.shape[1]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> Picture:
        return torch.from_numpy(self._images[index].copy()), int(self.labels[index])
