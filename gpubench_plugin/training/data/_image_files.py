"""Image files as indexed datasets with a held-out part: CIFAR-10, MNIST, class folders."""

from __future__ import annotations

import gzip
import lzma
import re
import struct
import tarfile
import zlib
from dataclasses import dataclass
from math import prod
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np
import torch

from gpubench_plugin.core.errors import MissingPackage, UsageProblem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray


LabelledImage = tuple[torch.Tensor, int]
"""Bytes by channel, row and column, and the number of its class."""


class LoadError(NamedTuple):
    """Error in a loader worker, raised where the batch arrives."""

    message: str


class ImageSequence(Protocol):
    """Images of one size by index; each worker has a copy."""

    @property
    def channels(self) -> int:
        """One (grey) or three."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> LabelledImage | LoadError: ...


@dataclass(frozen=True, kw_only=True)
class ImageDataset:
    """Images of a data set; `held_out` is None if it has no test part."""

    kind: str
    classes: int
    training: ImageSequence
    held_out: ImageSequence | None


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


ARCHIVE: Final = "cifar-10-binary.tar.gz"
_CLASSES: Final = 10
_SHAPE: Final = (3, 32, 32)
_RECORD: Final = 1 + 3 * 32 * 32
"""Bytes of an image: its label, then red, green and blue, row by row."""

_MAX_BYTES: Final = 10_000 * _RECORD
"""Size of a batch file as published."""

_TRAINING: Final = re.compile(r"data_batch_\d\.bin")
_TEST: Final = "test_batch.bin"
_PYTHON: Final = re.compile(r"data_batch_\d|test_batch|batches\.meta")


def is_cifar(path: Path) -> bool:
    """Whether `path` is a CIFAR-10 archive or folder of any version."""
    if path.is_file():
        return tarfile.is_tarfile(path)
    return any(_is_cifar_file(file.name) or _PYTHON.fullmatch(file.name) for file in _files(path))


def read_cifar(path: Path) -> ImageDataset:
    """Read the binary version of CIFAR-10, the archive or its folder; the test batch is held out.

    The archive is not unpacked to disk. Source: https://www.cs.toronto.edu/~kriz/cifar.html

    Raises:
        UsageProblem: it is the python version, or a file is missing or damaged.
    """
    try:
        members = dict(_members(path) if path.is_file() else _in_folder(path))
    except (tarfile.TarError, OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise UsageProblem(f"data.path: cannot read {path}: {error}") from error
    training = sorted(name for name in members if _TRAINING.fullmatch(name))
    if not training:
        raise UsageProblem(
            f"data.path: {path} contains no data_batch_1.bin …; allowed: {ARCHIVE} or its folder"
        )
    return ImageDataset(
        kind="cifar-10",
        classes=_CLASSES,
        training=_to_images(path, [members[name] for name in training]),
        held_out=_to_images(path, [members[_TEST]]) if _TEST in members else None,
    )


def _to_images(path: Path, contents: list[bytes]) -> ArrayImages:
    records = np.frombuffer(b"".join(contents), dtype=np.uint8).reshape(-1, _RECORD)
    labels = records[:, 0]
    if len(labels) == 0 or labels.max() >= _CLASSES:
        raise UsageProblem(f"data.path: {path} does not contain images of {_CLASSES} classes")
    return ArrayImages(records[:, 1:].reshape(-1, *_SHAPE), labels.astype(np.int64))


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(path) as archive:
        for member in archive:
            name = PurePosixPath(member.name).name
            _refuse_python(path, name)
            if _is_cifar_file(name) and member.isfile():
                _check_size(path, name, member.size)
                file = archive.extractfile(member)
                yield name, file.read() if file else b""
        if archive.fileobj is not None:
            # Reading past the end checks gzip's CRC; limited, since it may expand endlessly.
            archive.fileobj.read(_MAX_BYTES)


def _in_folder(path: Path) -> Mapping[str, bytes]:
    contents = {}
    for file in _files(path):
        _refuse_python(path, file.name)
        if _is_cifar_file(file.name):
            _check_size(path, file.name, file.stat().st_size)
            contents[file.name] = file.read_bytes()
    return contents


def _files(path: Path) -> list[Path]:
    subfolders = path / "cifar-10-batches-bin", path / "cifar-10-batches-py"
    return [f for folder in (path, *subfolders) if folder.is_dir() for f in folder.iterdir()]


def _is_cifar_file(name: str) -> bool:
    return name == _TEST or _TRAINING.fullmatch(name) is not None


def _refuse_python(path: Path, name: str) -> None:
    if _PYTHON.fullmatch(name):
        raise UsageProblem(
            f"data.path: {path}: {name} is of CIFAR-10's python version, which is pickled and "
            f"may execute code when read; allowed: the binary version, {ARCHIVE}"
        )


def _check_size(path: Path, name: str, size: int) -> None:
    if size % _RECORD or not 0 < size <= _MAX_BYTES:
        raise UsageProblem(
            f"data.path: {path}: {name} has {size} bytes; allowed: a multiple of {_RECORD} up to "
            f"{_MAX_BYTES}"
        )


SUFFIXES: Final = (".png", ".jpg", ".jpeg")
_HELD_OUT: Final = ("test", "val")


def read_folder(path: Path, *, side: int) -> ImageDataset:
    """Index the images below `path`, scaled to `side` × `side` pixels on loading.

    There is one folder per class, sorted by name without hidden ones; with a folder ``train`` the
    classes are in it, and those in ``test`` or ``val`` are held out.

    Raises:
        UsageProblem: a folder has no image, or the held-out part has other classes.
        MissingPackage: Pillow is not installed.
    """
    _require_pillow()
    has_train_folder = (path / "train").is_dir()
    training, classes = _labelled_files(path / "train" if has_train_folder else path)
    held_out = None
    for name in _HELD_OUT:
        if has_train_folder and held_out is None and (path / name).is_dir():
            held_out, test_classes = _labelled_files(path / name)
            if test_classes != classes:
                raise UsageProblem(
                    f"data.path: {path / name} has the classes {', '.join(test_classes)}; "
                    f"allowed: those in {path / 'train'}: {', '.join(classes)}"
                )
    return ImageDataset(
        kind="folder",
        classes=len(classes),
        training=FileImages(training, side),
        held_out=None if held_out is None else FileImages(held_out, side),
    )


class FileImages:
    """Images read from files on access; unreadable ones become a `LoadError`."""

    channels = 3

    def __init__(self, files: Sequence[tuple[Path, int]], side: int):
        self._files = files
        self._side = side

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> LabelledImage | LoadError:
        from PIL import Image

        path, label = self._files[index]
        try:
            # Keeps untrusted files from Pillow's decoders of other formats.
            with Image.open(path, formats=("PNG", "JPEG")) as image:
                resized = image.convert("RGB").resize((self._side, self._side))
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            return LoadError(f"data.path: {path}: cannot be read as an image: {error}")
        return torch.from_numpy(np.array(resized)).permute(2, 0, 1), label


def _labelled_files(folder: Path) -> tuple[list[tuple[Path, int]], list[str]]:
    """Images below `folder` with class indices, and the class names."""
    by_class = {
        entry.name: sorted(file for file in entry.iterdir() if file.suffix.lower() in SUFFIXES)
        for entry in sorted(folder.iterdir())
        if entry.is_dir() and not entry.name.startswith(".")
    }
    # A class whose images lie deeper would be dropped silently.
    empty_folders = [folder / name for name, files in by_class.items() if not files]
    if empty_folders or not by_class:
        raise UsageProblem(
            f"data.path: no images in {next(iter(empty_folders), folder)}; allowed: one folder "
            f"per class with {', '.join(SUFFIXES)} files directly in it"
        )
    indexed = enumerate(by_class.values())
    return [(file, label) for label, files in indexed for file in files], list(by_class)


def _require_pillow() -> None:
    try:
        import PIL.Image  # noqa: F401 # availability check
    except ImportError as error:
        raise MissingPackage(
            f"data.source=images: Pillow (for PNG and JPEG) cannot be imported ({error})",
            package="Pillow",
            install="pip install pillow",
        ) from error


TRAINING: Final = "train-images-idx3-ubyte"
_MNIST_TEST: Final = "t10k-images-idx3-ubyte"
_LABELS: Final = ("images-idx3", "labels-idx1")
_MNIST_MAX_BYTES: Final = 1 << 30
"""Far above MNIST's 47 MB, below what exhausts a host's memory; not measured."""

_UNSIGNED_BYTE: Final = 8
"""Type code of the idx format."""


def is_mnist(path: Path) -> bool:
    """Whether `path` holds MNIST training images."""
    return _find(path, TRAINING) is not None


def read_mnist(path: Path) -> ImageDataset:
    """Read files of MNIST or Fashion-MNIST at `path`, perhaps gzipped; ``t10k`` is held out.

    Source of the format: http://yann.lecun.com/exdb/mnist/

    Raises:
        UsageProblem: a file is missing or damaged.
    """
    training = _part(path, TRAINING)
    held_out = _part(path, _MNIST_TEST) if _find(path, _MNIST_TEST) else None
    parts = (training, held_out)
    return ImageDataset(
        kind="mnist",
        classes=max(int(part.labels.max()) + 1 for part in parts if part),
        training=training,
        held_out=held_out,
    )


def _part(path: Path, name: str) -> ArrayImages:
    images = _array(path, name, dimensions=3)
    labels = _array(path, name.replace(*_LABELS), dimensions=1)
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
    content = _content(file)
    header = 4 * (1 + dimensions)
    magic_number, *shape = struct.unpack_from(f">{1 + dimensions}I", content.ljust(header, b"\0"))
    if magic_number != (_UNSIGNED_BYTE << 8) + dimensions or len(content) != header + prod(shape):
        raise UsageProblem(f"data.path: {file}: not an idx file with {dimensions} dimensions")
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape)


def _content(file: Path) -> bytes:
    """Read at most the size of such an idx file, since gzip may expand endlessly."""
    try:
        with gzip.open(file) if file.suffix == ".gz" else file.open("rb") as stream:
            return stream.read(_MNIST_MAX_BYTES)
    except (OSError, EOFError, zlib.error) as error:
        raise UsageProblem(f"data.path: cannot read {file}: {error}") from error


def _find(path: Path, name: str) -> Path | None:
    candidates = (path / name, path / f"{name}.gz")
    return next((file for file in candidates if file.is_file()), None)
