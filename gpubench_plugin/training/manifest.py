"""A checkpoint's manifest, a JSON file, and the layouts of tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple, Self

import torch
from torch import Tensor

from gpubench_plugin.core.errors import ResultsError, Unsupported, UsageProblem
from gpubench_plugin.core.words import listed
from gpubench_plugin.environment import files, json_files, stored

_FORM: Final = stored.Format(kind="checkpoint manifest", newest=2)


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Description of a checkpoint, whose tensors are in `file` in the same folder.

    A resumed training must have the same `settings`. `metrics` are those at optimizer step `step`.
    """

    file: str = field(metadata={"pattern": r"^\w[\w.-]*$"})
    sha256: str
    step: int
    metrics: Mapping[str, float]
    settings: Mapping[str, str]
    torch: str = field(default_factory=lambda: str(torch.__version__))

    def write(self, path: Path) -> None:
        """Write the manifest durably; raises ResultsError."""
        json_files.write_json(path, {_FORM.key: _FORM.newest, **stored.dump(self)})

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read the manifest at `path`.

        Raises:
            UsageProblem: it is missing, malformed, or of another version.
            ResultsError: it cannot be read.
        """
        return stored.restore(cls, _FORM.load(path), str(path))


def save_tensors(path: Path, tensors: object) -> None:
    """Write nested containers of tensors to `path` by ``torch.save``, durably.

    Raises:
        ResultsError: it could not be written; an earlier file at `path` is intact.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write(path, lambda file: torch.save(tensors, file))
    # torch's writer wraps an OSError in a RuntimeError.
    except (OSError, RuntimeError) as error:
        raise ResultsError(f"cannot write {path}: {error}") from error


class TensorLayout(NamedTuple):
    """Memory layout of a tensor; `stride` counts elements."""

    dtype: str
    shape: list[int]
    stride: list[int]


Layouts = Mapping[str, TensorLayout]


def layouts_of(tree: object, prefix: str = "") -> dict[str, TensorLayout]:
    """Layouts of all tensors in nested containers, by dotted path.

    Raises:
        Unsupported: a tensor has no strides.
    """
    layouts = {}
    for path, tensor in _tensors(tree, prefix):
        if tensor.layout is not torch.strided:
            raise Unsupported(f"checkpoints support only strided tensors, not {tensor.layout}")
        dtype = str(tensor.dtype).removeprefix("torch.")
        layouts[path] = TensorLayout(dtype, list(tensor.shape), list(tensor.stride()))
    return layouts


def _tensors(tree: object, prefix: str) -> Iterator[tuple[str, Tensor]]:
    if isinstance(tree, Tensor):
        yield prefix, tree
    elif isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from _tensors(value, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(tree, list | tuple):
        yield from _tensors(dict(enumerate(tree)), prefix)


def differences(saved: Layouts, current: Layouts) -> list[str]:
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
    values = zip(TensorLayout._fields, saved, current, strict=True)
    attribute, old, new = next(entry for entry in values if entry[1] != entry[2])
    return f"{attribute} {old} in the checkpoint, but {new} here"


def refuse_mismatch(path: Path, lines: Sequence[str]) -> None:
    """Refuse a mismatching checkpoint if there are `lines` with differences.

    Raises:
        UsageProblem: with the first of them.
    """
    if lines:
        raise UsageProblem(f"{path} does not fit: {listed(lines, separator='; ')}")
