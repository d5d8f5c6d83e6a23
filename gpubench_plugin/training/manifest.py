"""Checkpoint manifest, a JSON file with version, hash, and tensor layouts."""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import IO, Final, Self

import torch
from torch import Tensor

from gpubench_plugin.core.errors import ResultsError, Unsupported, UsageProblem
from gpubench_plugin.core.format import listed
from gpubench_plugin.environment import files, json_files, stored

_CHUNK_BYTES: Final = 1 << 20
"""Bytes hashed at a time: large against the cost of a read, small in memory; not measured."""


def write_atomically(path: Path, fill: Callable[[IO[bytes]], object]) -> None:
    """Write `path` atomically with `fill`.

    Raises:
        ResultsError: it could not be written; an earlier file at `path` is intact.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write(path, fill)
    # torch's writer wraps an OSError in a RuntimeError.
    except (OSError, RuntimeError) as error:
        raise ResultsError(f"cannot write {path}: {error}") from error


def sha256_of(path: Path) -> str:
    """SHA-256 of the file at `path`, in hexadecimal; raises OSError."""
    digest = sha256()
    with path.open("rb") as file:
        while data := file.read(_CHUNK_BYTES):
            digest.update(data)
    return digest.hexdigest()


FORMAT: Final = "gpubench-checkpoint"
_FORM: Final = stored.Format(kind="checkpoint manifest", newest=1, key="version")
"""The version is raised whenever an older reader would misunderstand a newer file."""

_FILE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@dataclass(frozen=True, kw_only=True)
class TensorLayout:
    """Memory layout of a tensor; `stride` counts elements."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @classmethod
    def of(cls, tensor: Tensor) -> Self:
        """Layout of `tensor`.

        Raises:
            Unsupported: it has no strides.
        """
        if tensor.layout is not torch.strided:
            raise Unsupported(f"checkpoints support only strided tensors, not {tensor.layout}")
        dtype = str(tensor.dtype).removeprefix("torch.")
        return cls(dtype=dtype, shape=tuple(tensor.shape), stride=tensor.stride())


Facts = Mapping[str, TensorLayout]


def layouts_of(tree: object, prefix: str = "") -> dict[str, TensorLayout]:
    """Layouts of all tensors in nested containers, by dotted path."""
    return {path: TensorLayout.of(tensor) for path, tensor in _tensors(tree, prefix)}


def _tensors(tree: object, prefix: str) -> Iterator[tuple[str, Tensor]]:
    if isinstance(tree, Tensor):
        yield prefix, tree
        return
    if isinstance(tree, Mapping):
        parts = [(str(key), value) for key, value in tree.items()]
    elif isinstance(tree, list | tuple):
        parts = [(str(index), value) for index, value in enumerate(tree)]
    else:
        return
    for name, value in parts:
        yield from _tensors(value, f"{prefix}.{name}" if prefix else name)


def differences(saved: Facts, current: Facts) -> list[str]:
    """Differences, one line each, sorted by name."""
    lines = []
    for name in sorted({*saved, *current}):
        if name not in saved:
            lines.append(f"{name} is missing from the checkpoint")
        elif name not in current:
            lines.append(f"{name} is unexpected: no such tensor here")
        elif saved[name] != current[name]:
            lines.append(f"{name} has {_first_difference(saved[name], current[name])}")
    return lines


def _first_difference(saved: TensorLayout, current: TensorLayout) -> str:
    """The first only: another shape also has other strides."""
    pairs = zip(asdict(saved).items(), asdict(current).values(), strict=True)
    attribute, values = next((key, (old, new)) for (key, old), new in pairs if old != new)
    old, new = (list(value) if isinstance(value, tuple) else value for value in values)
    return f"{attribute} {old} in the checkpoint, but {new} here"


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Description of a checkpoint.

    `file` is in the same folder, with size and hash. A resumed training must have the same
    `settings`. `metrics` are those at optimizer step `step`; `tensors` are in the file, by dotted
    path.
    """

    file: str
    bytes: int
    sha256: str
    step: int
    metrics: Mapping[str, float]
    settings: Mapping[str, str]
    tensors: Facts
    torch: str = field(default_factory=lambda: str(torch.__version__))

    def write(self, path: Path) -> None:
        """Write the manifest durably.

        Raises:
            ResultsError: it could not be written.
        """
        fields = {"format": FORMAT, "version": _FORM.newest, **stored.dump(self)}
        text = json_files.text(fields, indent=1)
        write_atomically(path, lambda file: file.write(f"{text}\n".encode()))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the manifest at `path`.

        Raises:
            UsageProblem: it is missing, invalid, or of a newer version.
            ResultsError: it cannot be read.
        """
        data = json_files.load(path, limit=_FORM.limit)
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise UsageProblem(f"{path} is not a checkpoint manifest: no format {FORMAT!r}")
        manifest = stored.restore(cls, _FORM.check(data, str(path)), str(path))
        if not _FILE_NAME.fullmatch(manifest.file):
            raise UsageProblem(f"{path}: file {manifest.file!r} is not a plain file name")
        return manifest

    def verify_file(self, path: Path) -> None:
        """Verify that the file at `path` is the one described.

        Raises:
            UsageProblem: it is missing, no regular file (a pipe would block), or another file.
        """
        try:
            status = path.stat()
            size, is_regular = status.st_size, stat.S_ISREG(status.st_mode)
            digest = sha256_of(path) if is_regular and size == self.bytes else ""
        except OSError as error:
            raise UsageProblem(f"cannot read {path}: {error.strerror}") from error
        if not is_regular:
            raise UsageProblem(f"{path} is not a regular file")
        if size != self.bytes:
            description = "truncated" if size < self.bytes else "too long"
            raise UsageProblem(
                f"{path} is {description}: {size} bytes instead of {self.bytes} according to "
                "its manifest"
            )
        if digest != self.sha256:
            raise UsageProblem(
                f"{path} was modified: its sha256 is {digest} instead of {self.sha256} "
                "according to its manifest"
            )


def refuse_mismatch(path: Path, lines: Sequence[str]) -> None:
    """Refuse a mismatching checkpoint if there are `lines` with differences.

    Raises:
        UsageProblem: with the first of them.
    """
    if lines:
        raise UsageProblem(f"{path} does not fit: {listed(lines, separator='; ')}")
