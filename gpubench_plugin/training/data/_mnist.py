"""Images in MNIST's files, packed by gzip or not; Fashion-MNIST has the same.

Source of the format: http://yann.lecun.com/exdb/mnist/
"""

from __future__ import annotations

import gzip
import struct
import zlib
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from gpubench_plugin.errors import UsageProblem
from gpubench_plugin.training.data._pictures import ArrayPictures, Pictures

if TYPE_CHECKING:
    from numpy.typing import NDArray

TRAINING: Final = "train-images-idx3-ubyte"
_MNIST_TEST: Final = "t10k-images-idx3-ubyte"
_LABELS: Final = ("images-idx3", "labels-idx1")
_MNIST_LARGEST: Final = 1 << 30
_BYTES: Final = 8
"""The code of a type: unsigned bytes."""


def is_mnist(path: Path) -> bool:
    """Whether the folder at `path` holds images to train on."""
    return _find(path, TRAINING) is not None


def read_mnist(path: Path) -> Pictures:
    """The images in the folder at `path`; those of ``t10k`` are held out.

    Raises:
        UsageProblem: a file is missing or damaged.
    """
    training = _part(path, TRAINING)
    held_out = _part(path, _MNIST_TEST) if _find(path, _MNIST_TEST) else None
    parts = (training, held_out)
    return Pictures(
        kind="mnist",
        classes=max(int(part.labels.max()) + 1 for part in parts if part),
        training=training,
        held_out=held_out,
    )


def _part(path: Path, name: str) -> ArrayPictures:
    images = _array(path, name, dimensions=3)
    labels = _array(path, name.replace(*_LABELS), dimensions=1)
    if len(images) != len(labels) or images.size == 0:
        size = " by ".join(map(str, images.shape[1:]))
        raise UsageProblem(
            f"data.path: {path}: {name} has {len(images)} images of {size} pixels and "
            f"{len(labels)} labels; allowed: as many labels as images"
        )
    return ArrayPictures(images[:, np.newaxis], labels.astype(np.int64))


def _array(path: Path, name: str, *, dimensions: int) -> NDArray[np.uint8]:
    file = _find(path, name)
    if file is None:
        raise UsageProblem(f"data.path: {path}: {name} is missing (or {name}.gz)")
    content = _content(file)
    header = 4 * (1 + dimensions)
    magic, *shape = struct.unpack_from(f">{1 + dimensions}I", content.ljust(header, b"\0"))
    if magic != (_BYTES << 8) + dimensions or len(content) != header + prod(shape):
        raise UsageProblem(f"data.path: {file}: this is no idx file of {dimensions} dimensions")
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape)


def _content(file: Path) -> bytes:
    """At most what an idx file of this kind can hold: a packed one may claim to be endless."""
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as opened:
            return opened.read(_MNIST_LARGEST)
    except (OSError, EOFError, zlib.error) as error:
        raise UsageProblem(f"data.path: {file}: cannot be read: {error}") from error


def _find(path: Path, name: str) -> Path | None:
    candidates = (path / name, path / f"{name}.gz")
    return next((file for file in candidates if file.is_file()), None)
