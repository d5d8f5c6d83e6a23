"""User-provided images through a DataLoader; nothing is downloaded."""

from __future__ import annotations

import gzip
import lzma
import os
import re
import struct
import tarfile
import zlib
from contextlib import contextmanager
from math import prod
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import torch

from gpubench_plugin.core.errors import MissingPackage, Unsupported, UsageProblem
from gpubench_plugin.system import json_files
from gpubench_plugin.training.data._loading import (
    ArrayImages,
    FileImages,
    ImageSequence,
    Loader,
    held_out_of,
    read_batch,
    require_enough,
)
from gpubench_plugin.training.data.base import DataSource

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from numpy.typing import NDArray
    from torch import Tensor

    from gpubench_plugin.config.sections import DataSection
    from gpubench_plugin.workloads.base import Batch

_ARCHIVE: Final = "cifar-10-binary.tar.gz"
_ALLOWED: Final = (
    f"{_ARCHIVE} (not the python version, which is pickled) or its folder, a folder with "
    "train-images-idx3-ubyte and its companions, or a folder of images with one folder per class"
)


class Images(DataSource):
    """Images in an order determined by seed and epoch.

    The workers of section ``data`` load batches during training; bytes become the model's inputs on
    the device. See :func:`.epoch_rows` for the ranks' shares.

    Raises:
        UsageProblem: ``data.path`` is unreadable, or has no images or too many classes.
        Unsupported: the model is not an image model, or Pillow is not installed.
    """

    @classmethod
    def refusal(cls, section: DataSection) -> str:
        """Reason why there is nothing to read, if the path is missing; empty otherwise."""
        problem = "data.source=images reads this path, since nothing is downloaded"
        if section.path:
            path = _path(section)
            try:
                path.stat()
            except FileNotFoundError:
                problem = f"no such file or folder{json_files.nearest_hint(path)}"
            except OSError as error:  # no permission, or a name that is too long
                problem = str(error.strerror)
            else:
                return ""
        return f"data.path={section.path or 'null'}: {problem}; allowed: {_ALLOWED}"

    def _open(self) -> None:
        section, workload, device = self._section, self._workload, self._device
        assert section is not None, "what to read stands in it"
        sides = (getattr(workload.section, name, None) for name in ("image_size", "sample_size"))
        side = next(filter(None, sides), None)
        self._dataset = dataset = _read(_path(section), side=side, model=workload.section.name)
        images, held_out = dataset.training, dataset.held_out
        # Refuses more classes than the model has, without synchronizing a device.
        probe = torch.zeros(1, images.channels, 8, 8)
        workload.from_images(probe, torch.tensor([dataset.classes - 1]))
        label = f"data.path={section.path}"
        require_enough(len(images), world_size=self._world_size, label=label)
        self._loader = Loader(
            images, section=section, seed=self._seed, device=device, **self._share
        )
        self.steps_per_epoch = self._loader.steps_per_epoch
        self._held_out_share = [] if held_out is None else held_out_of(len(held_out), **self._share)
        first_rows = self._loader.rows(epoch=0)[: self.batch_size]
        self._first_batch = self._batch(*read_batch(images, first_rows))

    def __next__(self) -> Batch:
        """Next batch, transferred asynchronously to the device.

        Raises:
            UsageProblem: an image cannot be read.
        """
        return self._batch(*self._loader.next())

    def fixed_batch(self) -> Batch:
        """First batch of the first epoch."""
        return self._first_batch

    def held_out(self) -> Iterator[Batch]:
        """This rank's share of the test part, read in this process."""
        images = self._dataset.held_out
        for rows in self._held_out_share:
            assert images is not None  # or there would be no share
            yield self._batch(*read_batch(images, rows))

    def restart(self) -> None:
        """Restart with the first epoch."""
        self._loader.restart()

    def description(self) -> Mapping[str, object]:
        """Description of data and effective loader settings."""
        dataset = self._dataset
        return {
            "kind": dataset.kind,
            "classes": dataset.classes,
            "samples": len(dataset.training),
            "held_out": 0 if dataset.held_out is None else len(dataset.held_out),
            **self._loader.settings,
        }

    def close(self) -> None:
        """Stop the loader's workers."""
        self._loader.close()

    def _batch(self, images: Tensor, labels: Tensor) -> Batch:
        images = images.to(self._device, non_blocking=True).float() / 255
        labels = labels.to(self._device, non_blocking=True)
        return self._convert(self._workload.from_images(images, labels))


def _path(section: DataSection) -> Path:
    # Path.expanduser() raises where there is no such user.
    return Path(os.path.expanduser(section.path or ""))  # noqa: PTH111


class ImageDataset(NamedTuple):
    """Images of a data set; `held_out` is None if it has no test part."""

    kind: str
    classes: int
    training: ImageSequence
    held_out: ImageSequence | None


def _read(path: Path, *, side: int | None, model: str | None) -> ImageDataset:
    """Read or index the images at `path`; those of a folder have `side` × `side` pixels.

    Raises:
        UsageProblem: there are none, or a file is missing or damaged.
        Unsupported: a folder, for a `model` without a side.
        MissingPackage: Pillow is not installed, for a folder.
    """
    with _reading(path):
        if path.is_file() and not tarfile.is_tarfile(path):
            raise UsageProblem(f"data.path: {path} is not an archive; allowed: {_ALLOWED}")
        batches = dict(_batches_in_archive(path) if path.is_file() else _batches_in_folder(path))
        if batches or path.is_file():
            return _cifar(path, batches)
        if _find(path, _MNIST_TRAINING):
            return _mnist(path)
        if side is None:
            raise Unsupported(f"data.source=images: {model} is not an image model")
        return _folder(path, side)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, EOFError, MemoryError, tarfile.TarError, zlib.error, lzma.LZMAError) as error:
        raise UsageProblem(
            f"data.path: cannot read {path}: {error}; allowed: {_ALLOWED}"
        ) from error


# CIFAR-10's binary version: https://www.cs.toronto.edu/~kriz/cifar.html
_BATCH: Final = re.compile(r"(data_batch_\d|test_batch)\.bin")
# Far above CIFAR's 31 and MNIST's 47 MB, below what exhausts a host: gzip may expand endlessly.
_MOST_BYTES: Final = 1 << 29
_CLASSES: Final = 10
_SHAPE: Final = (3, 32, 32)
# Bytes of an image: its label, then red, green and blue, row by row.
_RECORD: Final = 1 + prod(_SHAPE)


def _batches_in_archive(path: Path) -> Iterator[tuple[str, bytes]]:
    """Batch files in the archive, which is not unpacked to disk, by name."""
    with tarfile.open(path) as archive:
        for member in archive:
            name = PurePosixPath(member.name).name
            if _BATCH.fullmatch(name) and member.isfile() and (file := archive.extractfile(member)):
                yield name, file.read(_MOST_BYTES)
        if archive.fileobj is not None:
            # Past the end, where gzip's CRC is checked; limited, since it may expand endlessly.
            archive.fileobj.read(_MOST_BYTES)


def _batches_in_folder(path: Path) -> Iterator[tuple[str, bytes]]:
    for folder in (path, path / "cifar-10-batches-bin"):
        for file in folder.glob("*_batch*.bin"):
            if _BATCH.fullmatch(file.name) and file.is_file():
                yield file.name, file.read_bytes()


def _cifar(path: Path, batches: dict[str, bytes]) -> ImageDataset:
    test = batches.pop("test_batch.bin", None)
    if not batches:
        raise UsageProblem(f"data.path: {path} contains no data_batch_1.bin …; allowed: {_ALLOWED}")
    return ImageDataset(
        kind="cifar-10",
        classes=_CLASSES,
        training=_cifar_images(path, b"".join(batches[name] for name in sorted(batches))),
        held_out=None if test is None else _cifar_images(path, test),
    )


def _cifar_images(path: Path, content: bytes) -> ArrayImages:
    if len(content) % _RECORD or max(content[::_RECORD], default=_CLASSES) >= _CLASSES:
        raise UsageProblem(
            f"data.path: {path}: batches of {len(content)} bytes; allowed: a multiple of "
            f"{_RECORD}, which begin with one of {_CLASSES} classes"
        )
    records = np.frombuffer(content, dtype=np.uint8).reshape(-1, _RECORD)
    return ArrayImages(records[:, 1:].reshape(-1, *_SHAPE), records[:, 0].astype(np.int64))


# MNIST and its like: http://yann.lecun.com/exdb/mnist/
_MNIST_TRAINING: Final = "train-images-idx3-ubyte"
_MNIST_TEST: Final = "t10k-images-idx3-ubyte"
# Type code of the idx format.
_UNSIGNED_BYTE: Final = 8


def _mnist(path: Path) -> ImageDataset:
    training = _mnist_images(path, _MNIST_TRAINING)
    held_out = _mnist_images(path, _MNIST_TEST) if _find(path, _MNIST_TEST) else None
    classes = max(int(part.labels.max()) + 1 for part in (training, held_out) if part)
    return ImageDataset(kind="mnist", classes=classes, training=training, held_out=held_out)


def _mnist_images(path: Path, name: str) -> ArrayImages:
    images = _array(path, name, dimensions=3)
    labels = _array(path, name.replace("images-idx3", "labels-idx1"), dimensions=1)
    if len(images) != len(labels) or images.size == 0:
        size = " by ".join(map(str, images.shape[1:]))
        raise UsageProblem(
            f"data.path: {path}: {name} has {len(images)} images of {size} pixels but "
            f"{len(labels)} labels; allowed: one label per image"
        )
    return ArrayImages(images[:, np.newaxis], labels.astype(np.int64))


def _array(path: Path, name: str, *, dimensions: int) -> NDArray[np.uint8]:
    file = _find(path, name)
    if file is None:
        raise UsageProblem(f"data.path: {path}: missing {name} (or {name}.gz)")
    with _reading(file), gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
        content = stream.read(_MOST_BYTES)
    header = 4 * (1 + dimensions)
    magic_number, *shape = struct.unpack_from(f">{1 + dimensions}I", content.ljust(header, b"\0"))
    if magic_number != (_UNSIGNED_BYTE << 8) + dimensions or len(content) != header + prod(shape):
        raise UsageProblem(f"data.path: {file}: not an idx file with {dimensions} dimensions")
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape)


def _find(path: Path, name: str) -> Path | None:
    return next((file for file in (path / name, path / f"{name}.gz") if file.is_file()), None)


_SUFFIXES: Final = (".png", ".jpg", ".jpeg")


def _folder(path: Path, side: int) -> ImageDataset:
    """One folder per class, sorted by name without hidden ones.

    With a folder ``train`` the classes are in it, and those in ``test`` or ``val`` are held out.
    """
    try:
        import PIL.Image  # noqa: F401 # availability check
    except ImportError as error:
        raise MissingPackage(
            f"data.source=images: Pillow (for PNG and JPEG) cannot be imported ({error})",
            package="Pillow",
            install="pip install pillow",
        ) from error
    train = path / "train"
    images, classes = _labelled_files(train if train.is_dir() else path)
    held_out = None
    for test in (path / "test", path / "val") if train.is_dir() else ():
        if held_out is None and test.is_dir():
            held_out, test_classes = _labelled_files(test)
            if test_classes != classes:
                raise UsageProblem(
                    f"data.path: {test} has the classes {', '.join(test_classes)}; allowed: "
                    f"those in {train}: {', '.join(classes)}"
                )
    return ImageDataset(
        kind="folder",
        classes=len(classes),
        training=FileImages(images, side),
        held_out=None if held_out is None else FileImages(held_out, side),
    )


def _labelled_files(folder: Path) -> tuple[list[tuple[Path, int]], list[str]]:
    """Images below `folder` with class indices, and the class names."""
    by_class = {
        entry.name: sorted(file for file in entry.iterdir() if file.suffix.lower() in _SUFFIXES)
        for entry in sorted(folder.iterdir())
        if entry.is_dir() and not entry.name.startswith(".")
    }
    # A class whose images lie deeper would be dropped silently.
    empty_folders = [folder / name for name, files in by_class.items() if not files]
    if empty_folders or not by_class:
        raise UsageProblem(
            f"data.path: no images in {next(iter(empty_folders), folder)}, which needs "
            f"{', '.join(_SUFFIXES)} files directly in it; allowed: {_ALLOWED}"
        )
    indexed = enumerate(by_class.values())
    return [(file, label) for label, files in indexed for file in files], list(by_class)
