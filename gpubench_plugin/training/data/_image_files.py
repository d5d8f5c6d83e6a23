"""CIFAR-10 in its binary version: the archive as it is published, or the folder in it.

Source of the format: https://www.cs.toronto.edu/~kriz/cifar.html
"""

from __future__ import annotations

import lzma
import re
import tarfile
import zlib
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

import numpy as np

from gpubench_plugin.errors import UsageProblem
from gpubench_plugin.training.data._pictures import ArrayPictures, Pictures

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ARCHIVE: Final = "cifar-10-binary.tar.gz"
_CLASSES: Final = 10
_SHAPE: Final = (3, 32, 32)
_RECORD: Final = 1 + 3 * 32 * 32
"""Bytes of an image: its label, then red, green and blue, row by row."""

_LARGEST: Final = 10_000 * _RECORD
_TRAINING: Final = re.compile(r"data_batch_\d\.bin")
_TEST: Final = "test_batch.bin"
_PYTHON: Final = re.compile(r"data_batch_\d|test_batch|batches\.meta")


def is_cifar(path: Path) -> bool:
    """Whether `path` is an archive, or a folder with a file of CIFAR-10, of whatever version."""
    if path.is_file():
        return tarfile.is_tarfile(path)
    return any(_known(file.name) or _PYTHON.fullmatch(file.name) for file in _files(path))


def read_cifar(path: Path) -> Pictures:
    """The images in the archive or folder at `path`; those of the test batch are held out.

    The archive is read, never unpacked to disk.

    Raises:
        UsageProblem: it is the python version, or a file is missing or damaged.
    """
    try:
        contents = dict(_members(path) if path.is_file() else _in_folder(path))
    except (tarfile.TarError, OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise UsageProblem(f"data.path: {path}: cannot be read: {error}") from error
    training = sorted(name for name in contents if _TRAINING.fullmatch(name))
    if not training:
        raise UsageProblem(
            f"data.path: {path}: no data_batch_1.bin … in it; allowed: {ARCHIVE} or its folder"
        )
    return Pictures(
        kind="cifar-10",
        classes=_CLASSES,
        training=_pictures(path, [contents[name] for name in training]),
        held_out=_pictures(path, [contents[_TEST]]) if _TEST in contents else None,
    )


def _pictures(path: Path, contents: list[bytes]) -> ArrayPictures:
    records = np.frombuffer(b"".join(contents), dtype=np.uint8).reshape(-1, _RECORD)
    labels = records[:, 0]
    if len(labels) == 0 or labels.max() >= _CLASSES:
        raise UsageProblem(f"data.path: {path}: it holds no images of {_CLASSES} classes")
    return ArrayPictures(records[:, 1:].reshape(-1, *_SHAPE), labels.astype(np.int64))


def _members(path: Path) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(path) as archive:
        for member in archive:
            name = PurePosixPath(member.name).name
            _refuse_python(path, name)
            if _known(name) and member.isfile():
                _check_size(path, name, member.size)
                file = archive.extractfile(member)
                yield name, file.read() if file else b""
        if archive.fileobj is not None:
            # The checksum of what was packed is looked at behind the end; not without a limit.
            archive.fileobj.read(_LARGEST)


def _in_folder(path: Path) -> Mapping[str, bytes]:
    found = {}
    for file in _files(path):
        _refuse_python(path, file.name)
        if _known(file.name):
            _check_size(path, file.name, file.stat().st_size)
            found[file.name] = file.read_bytes()
    return found


def _files(path: Path) -> list[Path]:
    inner = path / "cifar-10-batches-bin", path / "cifar-10-batches-py"
    return [f for folder in (path, *inner) if folder.is_dir() for f in folder.iterdir()]


def _known(name: str) -> bool:
    return name == _TEST or _TRAINING.fullmatch(name) is not None


def _refuse_python(path: Path, name: str) -> None:
    if _PYTHON.fullmatch(name):
        raise UsageProblem(
            f"data.path: {path}: {name} is of CIFAR-10's python version, which is pickled and can "
            f"run code when it is read; allowed: the binary version, {ARCHIVE}"
        )


def _check_size(path: Path, name: str, size: int) -> None:
    if size % _RECORD or not 0 < size <= _LARGEST:
        raise UsageProblem(
            f"data.path: {path}: {name} has {size} bytes; allowed: a multiple of {_RECORD} up to "
            f"{_LARGEST}"
        )
