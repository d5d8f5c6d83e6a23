"""The manifest of a checkpoint, as JSON beside it: version, hash, and every tensor's layout."""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, Final, Self

import torch
from torch import Tensor

from gpubench_plugin.environment import files, json_files, listed, stored
from gpubench_plugin.errors import ResultsError, Unsupported, UsageProblem

_AT_ONCE: Final = 1 << 20


def write_whole(path: Path, fill: Callable[[IO[bytes]], object]) -> None:
    """Write `path` with what `fill` puts into the file it is given.

    Raises:
        ResultsError: the system did not take it; what stood at `path` is as it was.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write(path, fill)
    # torch's writer wraps what the system said.
    except (OSError, RuntimeError) as error:
        raise ResultsError(f"{path} was not written: {error}") from error


def sha256_of(path: Path) -> str:
    """The SHA-256 of the file at `path`, in hexadecimal; raises OSError."""
    found = sha256()
    with path.open("rb") as file:
        while data := file.read(_AT_ONCE):
            found.update(data)
    return found.hexdigest()


FORMAT: Final = "gpubench-checkpoint"
_FORM: Final = stored.Format(what="manifest of a checkpoint", newest=1, key="version")
"""The version is raised whenever an older reader would misunderstand a newer file."""

_FILE_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")


@dataclass(frozen=True, kw_only=True)
class TensorFacts:
    """How the numbers of a tensor lie in memory; `stride` counts elements."""

    dtype: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]

    @classmethod
    def of(cls, tensor: Tensor) -> Self:
        """Those of `tensor`.

        Raises:
            Unsupported: it has no strides.
        """
        if tensor.layout is not torch.strided:
            raise Unsupported(f"a checkpoint holds strided tensors only, not {tensor.layout}")
        dtype = str(tensor.dtype).removeprefix("torch.")
        return cls(dtype=dtype, shape=tuple(tensor.shape), stride=tensor.stride())


Facts = Mapping[str, TensorFacts]


def facts_of(tree: object, prefix: str = "") -> dict[str, TensorFacts]:
    """The facts of all tensors in nested dictionaries, lists and tuples, by dotted path."""
    return {path: TensorFacts.of(tensor) for path, tensor in _tensors(tree, prefix)}


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


def differences(saved: Facts, here: Facts) -> list[str]:
    """What is not alike, one line each, in the order of the names."""
    lines = []
    for name in sorted({*saved, *here}):
        if name not in saved:
            lines.append(f"{name} is missing in the checkpoint")
        elif name not in here:
            lines.append(f"{name} is unexpected: there is no such tensor here")
        else:
            lines += _unlike(name, asdict(saved[name]), asdict(here[name]))
    return lines


def _unlike(name: str, saved: Mapping[str, Any], here: Mapping[str, Any]) -> Iterator[str]:
    for what, value in saved.items():
        if value != here[what]:
            yield f"{name} has {what} {_shown(value)} in the checkpoint, {_shown(here[what])} here"
            return  # another shape has other strides, too


def _shown(value: object) -> str:
    return str(list(value)) if isinstance(value, tuple) else str(value)


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A checkpoint's description.

    `file` lies in the same folder and has that many `bytes` and that `sha256`. `settings` are what
    must be the same to go on from it, `metrics` what training had reached at `step`, counted in
    optimizer steps from the start. `tensors` are all in the file, by dotted path.
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
        """Write it to `path`, durably.

        Raises:
            ResultsError: it could not be written.
        """
        fields = {"format": FORMAT, "version": _FORM.newest, **stored.dumped(self)}
        text = json_files.text(fields, indent=1)
        write_whole(path, lambda file: file.write(f"{text}\n".encode()))

    @classmethod
    def read(cls, path: Path) -> Self:
        """The manifest at `path`.

        Raises:
            UsageProblem: there is none, it is of a newer version, or it is not what it should be.
            ResultsError: the operating system does not let it be read.
        """
        data = json_files.load(path, limit=_FORM.limit)
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise UsageProblem(f"{path} is no manifest of a checkpoint: no format {FORMAT!r}")
        manifest = stored.restored(cls, _FORM.checked(data, str(path)), str(path))
        if not _FILE_NAME.fullmatch(manifest.file):
            raise UsageProblem(f"{path}: file {manifest.file!r} is not a name in the same folder")
        return manifest

    def require_file(self, path: Path) -> None:
        """Refuse a file at `path` that is not the one described.

        Raises:
            UsageProblem: it is missing, no regular file (a pipe would block), of another length,
                or has another hash.
        """
        try:
            status = path.stat()
            found, is_regular = status.st_size, stat.S_ISREG(status.st_mode)
            digest = sha256_of(path) if is_regular and found == self.bytes else ""
        except OSError as error:
            raise UsageProblem(f"{path} cannot be read: {error.strerror}") from error
        if not is_regular:
            raise UsageProblem(f"{path} is no regular file")
        if found != self.bytes:
            what = "cut off" if found < self.bytes else "too long"
            raise UsageProblem(f"{path} is {what}: {found} bytes, its manifest says {self.bytes}")
        if digest != self.sha256:
            raise UsageProblem(
                f"{path} was changed: its sha256 is {digest}, its manifest says {self.sha256}"
            )


def refuse(where: Path, lines: Sequence[str]) -> None:
    """Refuse a checkpoint that is not alike, if there are `lines` that say how.

    Raises:
        UsageProblem: with the first of them.
    """
    if lines:
        raise UsageProblem(f"{where} does not fit: {listed(lines, separator='; ')}")
