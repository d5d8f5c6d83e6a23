"""A folder of images with one folder per class, perhaps below ``train`` and ``test``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from gpubench_plugin.errors import Unsupported, UsageProblem
from gpubench_plugin.training.data._pictures import Pictures, Problem

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gpubench_plugin.training.data._pictures import Picture

SUFFIXES: Final = (".png", ".jpg", ".jpeg")
_HELD_OUT: Final = ("test", "val")


def read_folder(path: Path, *, side: int) -> Pictures:
    """The images below `path`, scaled to `side` × `side` pixels as they are loaded.

    Classes are the folders' names in their order, but for hidden ones. With a folder ``train``
    those in it are trained on, and those in ``test`` or ``val`` are held out.

    Raises:
        UsageProblem: there is no image, or none in one of the folders, or the folder that is held
            out has other classes.
        Unsupported: Pillow, which reads them, is not installed.
    """
    _require_pillow()
    parted = (path / "train").is_dir()
    training, classes = _labelled_files(path / "train" if parted else path)
    held_out = None
    for name in _HELD_OUT:
        if parted and held_out is None and (path / name).is_dir():
            held_out, others = _labelled_files(path / name)
            if others != classes:
                raise UsageProblem(
                    f"data.path: {path / name} has the classes {', '.join(others)}; allowed: those "
                    f"of {path / 'train'}: {', '.join(classes)}"
                )
    return Pictures(
        kind="folder",
        classes=len(classes),
        training=FilePictures(training, side),
        held_out=None if held_out is None else FilePictures(held_out, side),
    )


class FilePictures:
    """Pictures in files, read one by one; what cannot be read is a `Problem` in its place."""

    channels = 3

    def __init__(self, files: Sequence[tuple[Path, int]], side: int):
        self._files = files
        self._side = side

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> Picture | Problem:
        import numpy as np
        from PIL import Image

        path, label = self._files[index]
        try:
            # The decoders of other formats have no business here.
            with Image.open(path, formats=("PNG", "JPEG")) as image:
                scaled = image.convert("RGB").resize((self._side, self._side))
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            return Problem(f"data.path: {path}: cannot be read as an image: {error}")
        return torch.from_numpy(np.array(scaled)).permute(2, 0, 1), label


def _labelled_files(folder: Path) -> tuple[list[tuple[Path, int]], list[str]]:
    """The images below `folder`, each with its class, and the classes' names."""
    by_class = {
        one.name: sorted(file for file in one.iterdir() if file.suffix.lower() in SUFFIXES)
        for one in sorted(folder.iterdir())
        if one.is_dir() and not one.name.startswith(".")
    }
    # A class that is left out, since its images lie deeper, would be missed by nobody.
    empty = [folder / name for name, files in by_class.items() if not files]
    if empty or not by_class:
        raise UsageProblem(
            f"data.path: {next(iter(empty), folder)}: no images; allowed: a folder per class with "
            f"files {', '.join(SUFFIXES)} directly in it"
        )
    numbered = enumerate(by_class.values())
    return [(file, label) for label, files in numbered for file in files], list(by_class)


def _require_pillow() -> None:
    try:
        import PIL.Image  # noqa: F401 # asked whether it is there
    except ImportError as error:
        raise Unsupported(
            f"data.source=images: Pillow, which reads PNG and JPEG, cannot be imported ({error}): "
            "pip install pillow"
        ) from error
