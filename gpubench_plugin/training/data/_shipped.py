"""Reading what is shipped with the package (``datasets/README.md``), and nothing else."""

from __future__ import annotations

import gzip
import hashlib
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from gpubench_plugin.errors import GpubenchError

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

DATASETS: Final = files("gpubench_plugin") / "datasets"


def unpacked(path: Traversable, sha256: str) -> str:
    """The text in the gzipped file at `path`.

    Raises:
        GpubenchError: the file is not there, or not the one that was shipped.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise GpubenchError(f"{path}: {error}: install pytest-gpubench again") from error
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise GpubenchError(
            f"{path}: sha256 is {found}, not {sha256}; this is not the shipped data set: "
            "install pytest-gpubench again"
        )
    return gzip.decompress(content).decode("ascii")
